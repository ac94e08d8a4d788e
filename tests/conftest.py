"""Fixtures that every kind of test shares; the services themselves are in ``beds``."""

pytest_plugins = ["beds.fixtures", "beds.agents"]
