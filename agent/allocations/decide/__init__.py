"""Decide which changes of allocations are allowed, and whether a request fits. Pure: reads and writes nothing."""
