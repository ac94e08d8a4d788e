"""Hardware vocabulary and discovery: facts, and the drivers that read them, by nova's ``[DEFAULT] compute_driver``."""

LIBVIRT, FAKE, IRONIC = "libvirt.LibvirtDriver", "fake.FakeDriver", "ironic.IronicDriver"
INSIDE = "compute_node_agent.LibvirtDriver"
"""What the option names where nova-compute reports a host with this project's driver: this agent only audits it."""
NAMES = (LIBVIRT, FAKE, IRONIC, INSIDE)
