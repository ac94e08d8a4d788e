"""What is probably a mistake in the configuration: told by ``check``, and by verbs whose numbers it may make wrong."""

from pathlib import Path

from agent.audit.decide.findings import NEVER_REPAIRED
from agent.audit.heal import HealPolicy
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.settings.slips import slips_of_the_pen, types_left_out
from agent.settings.values import Values
from agent.sync.provider_yaml import unread_keys
from drivers.base import Driver, Survey


def doubtful_names(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each name in the files that is probably misspelt, and for each vGPU type without a card."""
    values = Values(settings.apis.source)
    left_out = types_left_out(values, settings.policy.devices.mdevs)
    return (*slips_of_the_pen(values), *left_out, *_unread(settings))


def _unread(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each key of the operator's files that is not read; a wrong file is told elsewhere."""
    try:
        return unread_keys(settings.operator_files.folder)
    except ConfigError:
        return ()


def doubts(settings: Settings, driver: Driver, survey: Survey | None) -> list[str]:
    """Return a sentence for each name and each rule that has no effect here; without a survey only for names."""
    idle = driver.idle(survey, settings.policy) if survey else ()
    return [f"configuration: {text}" for text in (*doubtful_names(settings), *idle)]


def never_repaired(policy: HealPolicy, path: Path) -> str:
    """Return a sentence on the kinds that a heal policy names in vain; empty: it names none of these."""
    idle = ", ".join(sorted(kind.value for kind in policy.kinds.intersection(NEVER_REPAIRED)))
    return f"{path}: no audit repairs {idle}: take it out of heal" if idle else ""
