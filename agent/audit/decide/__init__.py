"""Find what does not agree between placement and the hypervisor. Pure: reads and writes nothing."""
