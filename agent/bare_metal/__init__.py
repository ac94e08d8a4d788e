"""Many Ironic nodes, each a root provider: compare them with placement, and write what differs."""
