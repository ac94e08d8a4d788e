"""Fixtures that every kind of test shares; the services themselves are in ``beds``."""

from hypothesis import HealthCheck, settings

settings.register_profile("soak", max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))

pytest_plugins = ["beds.fixtures", "beds.agents"]
