"""What the service prints at SIGUSR2: version, passes, configuration without secrets, and where each thread is."""

import dataclasses
import sys
import threading
from collections.abc import Iterable

from oslo_reports.generators.conf import ConfigReportGenerator
from oslo_reports.models.threading import ThreadModel
from oslo_reports.models.with_default_views import ModelWithDefaultViews
from oslo_reports.report import TextReport
from oslo_reports.views.text.generic import KeyValueView, MultiView

from agent.service.status import ServiceStatus
from agent.settings.read import Settings
from agent.settings.resolve import is_secret

MASK = "***"


def service_report(status: ServiceStatus, passes: Iterable[str], settings: Settings) -> str:
    """Return the report as text; ``passes`` are lines on the last ones. Any thread may call it."""
    report = TextReport(f"Report of compute-node-agent {status.process.version}")
    report.add_section(_Headed("Service"), lambda: _values(dataclasses.asdict(status)))
    report.add_section(_Headed("Last passes"), lambda: "\n".join(passes) or "none yet")
    report.add_section(_Headed("Threads"), _threads)
    report.add_section(_Headed("Configuration"), lambda: _configuration(settings))
    return f"{report.run()}\n"


def configuration_report(settings: Settings) -> str:
    """Return its part on the configuration, as text."""
    report = TextReport("Options of compute-node-agent")
    report.add_section(_Headed("Configuration"), lambda: _configuration(settings))
    return f"{report.run()}\n"


class _Headed:
    """Shows a part of the report below its heading."""

    def __init__(self, heading: str) -> None:
        self._heading = heading

    def __call__(self, model: object) -> str:
        return f"\n== {self._heading} ==\n{model}"


def _values(values: dict[str, object]) -> ModelWithDefaultViews:
    return ModelWithDefaultViews(values, text_view=KeyValueView())


def _threads() -> ModelWithDefaultViews:
    """Return the stack of each thread, by its name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    models: dict[str, object] = {}
    for number, frame in sys._current_frames().items():
        model = ThreadModel(number, frame)
        model["thread_id"] = f"{names.get(number, 'of a library')} ({number})"
        models[str(number)] = model
    return ModelWithDefaultViews(models, text_view=MultiView())


def _configuration(settings: Settings) -> ModelWithDefaultViews:
    """Return all options that the agent knows; what may be a secret is masked, also where oslo.config knows of none."""
    model = ConfigReportGenerator(settings.apis.source)()
    for group in model.values():
        for name, value in group.items():
            if value not in (None, "", []) and is_secret(name, str(value)):
                group[name] = MASK
    return model
