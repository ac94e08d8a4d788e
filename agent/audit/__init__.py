"""Compare the allocations of consumers with the hypervisor, and repair what is certain."""
