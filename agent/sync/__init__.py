"""Passes over one host: look, plan, judge, write. Writes to placement only through the report client."""
