"""The daemon: when a pass is due, what it tells of itself, and how it ends."""
