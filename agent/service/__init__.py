"""The service: when a pass is due, what the service reports about itself, and how it stops."""
