"""Ask nova which servers and migrations it knows, for the audit."""
