"""What the agent remembers between passes, in the state directory. Reads and writes files there and nowhere else."""
