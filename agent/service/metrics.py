"""What Prometheus is told: on a loopback port, or in a file for the node exporter."""

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, Summary, make_wsgi_app, write_to_textfile
from prometheus_client.exposition import ThreadingWSGIServer

from agent import VERSION
from agent.service.status import ServiceStatus

ASKING_S = 5  # for which a connection may stay silent
_LOOPBACK = "127.0.0.1"
OPERATION = ("source", "operation")
Environ = dict[str, Any]


class Metrics:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "compute_node_agent"
        Info(name, "Version of the agent.", registry=self.registry).info({"version": VERSION})
        self._passes = Counter(f"{name}_passes", "Passes, by outcome.", ["outcome"], registry=self.registry)
        self._pass_s = Summary(f"{name}_pass_seconds", "Time that passes took.", registry=self.registry)
        self._source_s = Summary(
            f"{name}_source_seconds", "Time that a source took in a pass.", ["source"], registry=self.registry
        )
        self._source_up = Gauge(
            f"{name}_source_up", "Whether a source served at the last try.", ["source"], registry=self.registry
        )
        self._source_ok = Gauge(
            f"{name}_source_last_success_timestamp_seconds",
            "When a source last served.",
            ["source"],
            registry=self.registry,
        )
        self._operations: dict[tuple[str, str], tuple[Summary, Counter, Gauge]] = {}
        self._operation_s = Summary(
            f"{name}_operation_seconds",
            "Time that an operation of a source took: a call of libvirt, a request.",
            OPERATION,
            registry=self.registry,
        )
        self._operation_failures = Counter(
            f"{name}_operation_failures", "Operations of a source that failed.", OPERATION, registry=self.registry
        )
        self._operation_ok = Gauge(
            f"{name}_operation_last_success_timestamp_seconds",
            "When an operation of a source last served.",
            OPERATION,
            registry=self.registry,
        )
        self._requests = Counter(
            f"{name}_placement_requests",
            "Requests to placement, by method and code; no answer is code 0.",
            ["method", "code"],
            registry=self.registry,
        )
        self._request_s = Summary(
            f"{name}_placement_request_seconds",
            "Time that requests to placement took.",
            ["method"],
            registry=self.registry,
        )
        self._found: dict[str, int] = {}
        self._findings = Gauge(f"{name}_findings", "Findings of the last audit.", ["kind"], registry=self.registry)
        self._stock = Gauge(
            f"{name}_inventory",
            "Totals of a class: desired by the host, and observed in placement before the last pass.",
            ["resource_class", "side"],
            registry=self.registry,
        )
        self._stocked: Mapping[str, Mapping[str, int]] = {}
        self._last_pass = Gauge(
            f"{name}_last_pass_timestamp_seconds", "The end of the last pass that was done.", registry=self.registry
        )

    def passed(self, outcome: str, seconds: float) -> None:
        """A pass over one node, or over all bare-metal nodes, ended so."""
        self._passes.labels(outcome).inc()
        self._pass_s.observe(seconds)

    def asked(self, source: str, seconds: float, error: str) -> None:
        """A source was read in a pass; with an error it did not serve."""
        self._source_s.labels(source).observe(max(0.0, seconds))
        self._source_up.labels(source).set(0 if error else 1)
        if not error:
            self._source_ok.labels(source).set_to_current_time()

    def requested(self, method: str, code: int, seconds: float) -> None:
        """A request to placement was answered with this code; 0: not at all."""
        self._requests.labels(method, str(code)).inc()
        self._request_s.labels(method).observe(seconds)

    def operated(self, source: str, operation: str, seconds: float, served: bool) -> None:
        """One operation of a source took so long, and served or not."""
        took_s, failures, ok = self._operations.get((source, operation)) or self._new_operation(source, operation)
        took_s.observe(seconds)
        if served:
            ok.set_to_current_time()
        else:
            failures.inc()

    def _new_operation(self, source: str, operation: str) -> tuple[Summary, Counter, Gauge]:
        self._operations[source, operation] = made = (
            self._operation_s.labels(source, operation),
            self._operation_failures.labels(source, operation),
            self._operation_ok.labels(source, operation),
        )
        return made

    def found(self, findings: dict[str, int]) -> None:
        """All kinds of findings with their numbers, of the last audit."""
        for kind, count in findings.items() - self._found.items():
            self._findings.labels(kind).set(count)
        self._found = findings

    def stocked(self, **sides: Mapping[str, int]) -> None:
        """The totals of all trees by class, ``desired`` and ``observed``; what is in neither any more is not told."""
        if sides == self._stocked:
            return
        before, self._stocked = self._stocked, sides
        names = _names(sides)
        for side, totals in sides.items():
            for name in names:  # also what one side has not, so that a difference is one
                self._stock.labels(name, side).set(totals.get(name, 0))
        for name in _names(before) - names:
            for side in before:
                self._stock.remove(name, side)

    def done(self) -> None:
        """A pass was done over all that is ours."""
        self._last_pass.set_to_current_time()

    def write(self, path: Path) -> None:
        """For the node exporter's textfile collector; errors as of a file."""
        write_to_textfile(str(path), self.registry)
        path.chmod(0o644)  # for the exporter, whatever our umask is


def _names(sides: Mapping[str, Mapping[str, int]]) -> set[str]:
    return {name for totals in sides.values() for name in totals}


class _Quiet(WSGIRequestHandler):
    """Requests of probes are no news, and who asks nothing is not waited for."""

    timeout = ASKING_S

    def log_message(self, *_args: object) -> None:
        return


class _Server(ThreadingWSGIServer):
    """A thread a request; who hangs up in the middle of an answer is no news either."""

    def handle_error(self, *_args: object) -> None:
        return


def serve(metrics: Metrics, port: int, status: Callable[[], ServiceStatus], is_lively: Callable[[], bool]) -> int:
    """
    Serve /metrics, /healthz (the loop goes on) and /readyz (and all that it needs serves) on loopback, in a thread.

    Answers the port, a free one where 0 was asked for.

    Raises:
        OSError: the port cannot be had.
    """
    application = make_wsgi_app(metrics.registry)

    def route(environ: Environ, start: Any) -> Any:
        if environ["PATH_INFO"] == "/metrics":
            return application(environ, start)
        now = status()
        good = {"/healthz": is_lively(), "/readyz": now.is_ready}.get(environ["PATH_INFO"])
        code = "404 Not Found" if good is None else "200 OK" if good else "503 Service Unavailable"
        start(code, [("Content-Type", "application/json")])
        return [json.dumps({"status": now.sentence(), "pid": os.getpid()}).encode()]

    server = make_server(_LOOPBACK, port, route, server_class=_Server, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)
