"""One host: from what was observed to what placement is told. Writes to placement only through the report client."""
