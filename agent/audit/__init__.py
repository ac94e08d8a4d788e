"""Compare what consumers have allocated with what the hypervisor says, and mend what is certain."""
