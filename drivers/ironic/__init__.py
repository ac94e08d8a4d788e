"""Bare-metal nodes as Ironic reports them; each is the root of a provider tree of its own."""
