"""Settings with other values."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.settings.read import Settings


def changed(settings: Settings, **groups: Mapping[str, Any]) -> Settings:
    """Return settings with other values in their groups: ``changed(settings, service={"interval_s": 1})``."""
    return replace(settings, **{group: replace(getattr(settings, group), **values) for group, values in groups.items()})
