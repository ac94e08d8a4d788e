"""The libvirt driver: a hypervisor host as one provider tree."""
