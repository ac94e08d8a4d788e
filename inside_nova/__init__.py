"""Our libvirt driver inside nova-compute: nova reports the tree, this package shapes it. docs/inside-nova.md."""
