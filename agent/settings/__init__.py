"""What the operator configured, as values. Reads configuration files and systemd's credentials; sets up the log."""
