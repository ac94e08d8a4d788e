"""What the agent remembers between passes, and the host's identity. Its I/O is these files and the clock."""
