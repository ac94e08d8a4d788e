"""Placement's vocabulary (provider, inventory, allocation, plan) and the client that reads and writes it."""
