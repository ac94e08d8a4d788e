"""What the operator configured, as values. Reads configuration files and nothing else."""
