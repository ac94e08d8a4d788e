"""What the agent remembers between passes, and the host's identity. Touches both and the clock, and no more."""
