"""Compare many Ironic nodes, each a root provider, with placement, and write what differs."""
