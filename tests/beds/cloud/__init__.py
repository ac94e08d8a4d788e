"""A nova cloud on loopback: Keystone, placement, Glance, nova, and nova-compute on synthetic hosts."""
