"""Bare-metal nodes as Ironic tells of them: each is the root of a tree of its own."""
