"""Metrics for Prometheus: served on a port, or written to a file for the node exporter."""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, Counter, Gauge, Info, Summary, make_wsgi_app, write_to_textfile
from prometheus_client.exposition import ThreadingWSGIServer

from agent import VERSION
from agent.service.audits import Stock
from agent.service.status import ServiceStatus
from agent.state.rights import owners_rights
from agent.sync.decide.laws import LAWS
from reportclient.errors import printable

ASKING_S = 5  # how long a connection may take in all, and stay silent, before it is closed
NAME, EXPORTER = "compute_node_agent", "openstack_placement_resource"  # begin the names of metrics
MOST_ASKING = 16  # connections at a time


class Metrics:
    """All metrics of the service, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace=NAME, registry=self.registry)
        gauge = partial(Gauge, namespace=NAME, registry=self.registry)
        summary = partial(Summary, namespace=NAME, registry=self.registry)
        of_source, of_operation = ["source"], ["source", "operation"]
        Info(NAME, "Version of the agent.", registry=self.registry).info({"version": VERSION})
        self._passes = counter("passes", "Passes, by outcome.", ["outcome"])
        self._pass_s = summary("pass_seconds", "Time that passes took.")
        self._source_up = gauge("source_up", "Whether a source answered at the last attempt.", of_source)
        self._source_ok = gauge(
            "source_last_success_timestamp_seconds",
            "Time at which a source last answered without an error.",
            of_source,
        )
        self._operation_s = summary(
            "operation_seconds",
            "Time that an operation of a source took: a call of libvirt, a request.",
            of_operation,
        )
        self._operation_failures = counter("operation_failures", "Failed operations of a source.", of_operation)
        self._operation_ok = gauge(
            "operation_last_success_timestamp_seconds",
            "Time at which an operation of a source last succeeded.",
            of_operation,
        )
        self._requests = counter(
            "placement_requests", "Requests to placement, by method and code; no answer is code 0.", ["method", "code"]
        )
        self._request_s = summary("placement_request_seconds", "Time that requests to placement took.", ["method"])
        self._findings = gauge("findings", "Findings of the last audit.", ["kind"])
        self._conditioned: Mapping[str, int] = {}
        self._conditions = gauge("conditions", "What the last pass said of its hosts, as status shows it.", ["kind"])
        self._stock = gauge(
            "inventory",
            "Totals of a class: desired by the host, and observed in placement before the last pass.",
            ["resource_class", "side"],
        )
        self._stocked: Mapping[str, Mapping[str, int]] = {}
        of_provider = ["hostname", "resourcetype"]  # these have the names of openstack-exporter, for its dashboards
        exported = partial(Gauge, labelnames=of_provider, namespace=EXPORTER, registry=self.registry)
        self._exported = (
            exported("total", "Total of a class of a provider."),
            exported("reserved", "What is reserved of it."),
            exported("allocation_ratio", "How often it may be allocated."),
            exported("usage", "What consumers have of it, by the last audit."),
        )
        self._held: frozenset[tuple[str, str]] = frozenset()
        self._broken = counter(
            "broken_laws",
            "Places at which a plan broke a law, so that it was refused: a fault of this agent, to be reported.",
            ["law"],
        )
        for law in LAWS:
            self._broken.labels(law)
        self._last_pass = gauge(
            "last_pass_timestamp_seconds",
            "Time at which the last pass ended; a pass that an error stopped does not count.",
        )

    def passed(self, outcome: str, seconds: float) -> None:
        """Count a pass over one node, or over all bare-metal nodes, by its outcome."""
        self._passes.labels(outcome).inc()
        self._pass_s.observe(seconds)

    def asked(self, source: str, error: str) -> None:
        """Note that a source was used in a pass; ``error`` is why it failed, empty if it served."""
        self._source_up.labels(source).set(0 if error else 1)
        if not error:
            self._source_ok.labels(source).set_to_current_time()

    def requested(self, method: str, code: int, seconds: float) -> None:
        """Count a request to placement by the status code of its answer (0: no answer)."""
        self._requests.labels(method, str(code)).inc()
        self._request_s.labels(method).observe(seconds)

    def operated(self, source: str, operation: str, seconds: float, served: bool) -> None:
        """Count one operation of a source: a call of libvirt, or a request."""
        self._operation_s.labels(source, operation).observe(seconds)
        failures, ok = self._operation_failures.labels(source, operation), self._operation_ok.labels(source, operation)
        if served:
            ok.set_to_current_time()
        else:
            failures.inc()

    def found(self, findings: dict[str, int]) -> None:
        """Set the numbers of findings of the last audit; ``findings`` has every kind."""
        for kind, count in findings.items():
            self._findings.labels(kind).set(count)

    def conditions(self, counts: Mapping[str, int]) -> None:
        """Set the numbers of conditions of the last pass, by kind; a kind that is gone counts 0."""
        for kind in counts.keys() | self._conditioned.keys():
            self._conditions.labels(kind).set(counts.get(kind, 0))
        self._conditioned = counts

    def stocked(self, **sides: Mapping[str, int]) -> None:
        """Set the totals of all trees by class, ``desired`` and ``observed``; a class in neither is removed."""
        before, self._stocked = self._stocked, sides
        names = _names(sides)
        for side, totals in sides.items():
            for name in names:  # 0 where one side lacks the class, so that Prometheus can subtract the sides
                self._stock.labels(name, side).set(totals.get(name, 0))
        for name in _names(before) - names:
            for side in before:
                self._stock.remove(name, side)

    def broke(self, law: str) -> None:
        """Count a place at which a plan broke a law."""
        self._broken.labels(law).inc()

    def held(self, stocks: Mapping[tuple[str, str], Stock]) -> None:
        """Set what each provider has of each class, by (provider, class); what is gone is removed."""
        for key in self._held - stocks.keys():
            for gauge in self._exported:
                gauge.remove(*map(printable, key))
        self._held = frozenset(stocks)
        for key, stock in stocks.items():
            values = (stock.total, stock.reserved, stock.allocation_ratio, stock.used)
            for gauge, value in zip(self._exported, values, strict=True):
                gauge.labels(*map(printable, key)).set(value)

    def done(self) -> None:
        """Note the end of a pass over all nodes of this agent."""
        self._last_pass.set_to_current_time()

    def write(self, path: Path) -> None:
        """
        Write a file for the node exporter's textfile collector.

        Raises:
            OSError: the file cannot be written.
        """
        with owners_rights(path):
            write_to_textfile(str(path), self.registry)
            path.chmod(0o644)  # so that the exporter can read it, whatever our umask is


def _names(sides: Mapping[str, Mapping[str, int]]) -> set[str]:
    return {name for totals in sides.values() for name in totals}


class _Quiet(WSGIRequestHandler):
    """Does not log the requests of probes, and closes a connection that stays silent."""

    timeout = ASKING_S

    def log_message(self, *_args: object) -> None:
        return


class _Server(ThreadingWSGIServer):
    """
    Answers each request in its own thread, and does not log connections that clients break.

    A connection beyond ``MOST_ASKING`` is closed at once, and each one after ``ASKING_S``: slow clients would take all
    threads and descriptors of the service.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room = threading.BoundedSemaphore(MOST_ASKING)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(ASKING_S, _end, (request,))
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._room.release()

    def handle_error(self, *_args: object) -> None:
        return


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # it ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def family_of(address: str) -> socket.AddressFamily:
    """Return the family of a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def serve(
    metrics: Metrics, address: str, port: int, status: Callable[[], ServiceStatus], is_lively: Callable[[], bool]
) -> int:
    """
    Serve /metrics, /healthz (the loop makes progress) and /readyz (all sources serve) at an address, in a thread.

    /readyz?strict also wants that the last pass ended well for every node: a gate, where /readyz is a probe. Nobody has
    to log in, so these tell which sources failed, and not why. Return the port; ``port`` 0 takes a free one.

    Raises:
        OSError: cannot listen on the port.
    """
    application: WSGIApplication = make_wsgi_app(metrics.registry)

    def route(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            return application(environ, start)
        now = status()
        strict = "strict" in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        ready = now.is_well if strict else now.is_ready
        good = {"/healthz": is_lively(), "/readyz": ready}.get(environ["PATH_INFO"])
        code = "404 Not Found" if good is None else "200 OK" if good else "503 Service Unavailable"
        start(code, [("Content-Type", "application/json")])
        return [] if good is None else [json.dumps({"ok": good, "failed": now.failed}).encode()]

    bound: type[_Server] = type("_Bound", (_Server,), {"address_family": family_of(address)})
    server = make_server(address, port, route, server_class=bound, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)
