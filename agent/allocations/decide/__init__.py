"""Which changes of allocations are allowed, and what fits. Pure: reads and writes nothing."""
