"""Metrics for Prometheus, served on a port."""

import json
import socket
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, Counter, Info, Metric, Summary, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from agent import VERSION
from agent.audit.decide.findings import Kind
from agent.service.rounds import RoundResult
from agent.service.status import ServiceStatus
from agent.sync.decide.laws import LAWS
from agent.sync.outcome import Status
from reportclient.allocations import usages
from reportclient.errors import printable

ASKING_S = 5  # how long a connection may take in all, and stay silent, before it is closed
NAME, EXPORTER = "compute_node_agent", "openstack_placement_resource"  # begin the names of metrics
MOST_ASKING = 16  # connections at a time
_GAUGES: Mapping[str, tuple[str, ...]] = {  # what each says, and its labels
    f"{NAME}_source_up": ("Whether a source answered at the last attempt.", "source"),
    f"{NAME}_source_last_success_timestamp_seconds": ("Time at which a source last answered without error.", "source"),
    f"{NAME}_findings": ("Findings of the last audit, one of a kind for each consumer or provider.", "kind"),
    f"{NAME}_conditions": ("What the last pass said of its hosts, as status shows it.", "kind", "text"),
    f"{NAME}_slots": ("How many more guests of a kind of [metrics] slots fit this host.", "name"),
    f"{NAME}_last_pass_timestamp_seconds": ("Time at which the last pass ended that no error stopped.",),
    # with the names of openstack-exporter, for its dashboards
    f"{EXPORTER}_total": ("Total of a class of a provider.", "hostname", "resourcetype"),
    f"{EXPORTER}_reserved": ("What is reserved of it.", "hostname", "resourcetype"),
    f"{EXPORTER}_allocation_ratio": ("How often it may be allocated.", "hostname", "resourcetype"),
    f"{EXPORTER}_generation": ("Generation of the provider.", "hostname", "resourcetype"),
    f"{EXPORTER}_usage": ("What consumers have of it, by the last audit.", "hostname", "resourcetype"),
    f"{EXPORTER}_provider_allocations": ("What one consumer has of it.", "hostname", "uuid", "resourcetype"),
}


class Metrics(Collector):
    """
    All metrics of the service, in their own registry.

    Passes and requests are counted as they come; all else is taken from the last pass and from ``status`` at a scrape.
    """

    def __init__(self, status: Callable[[], ServiceStatus]) -> None:
        self.status = status
        self._taken = RoundResult(outcomes={})  # the last pass in which no node failed
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace=NAME, registry=self.registry)
        summary = partial(Summary, namespace=NAME, registry=self.registry)
        Info(NAME, "Version of the agent.", registry=self.registry).info({"version": VERSION})
        self._passes = counter("passes", "Passes, by outcome.", ["outcome"])
        self._pass_s = summary("pass_seconds", "Time that passes took.")
        self._requests = counter(
            "placement_requests", "Requests to placement, by method and code; no answer is code 0.", ["method", "code"]
        )
        self._request_s = summary("placement_request_seconds", "Time that requests to placement took.", ["method"])
        self._broken = counter(
            "broken_laws",
            "Places at which a plan broke a law, so that it was refused: a fault of this agent, to be reported.",
            ["law"],
        )
        for law in LAWS:
            self._broken.labels(law)
        self.registry.register(self)

    def passed(self, taken: RoundResult, seconds: float) -> None:
        """Count a pass by the outcome of each node that it names, and keep what it saw if none of them failed."""
        for outcome in taken.outcomes.values():
            self._passes.labels(outcome).inc()
            self._pass_s.observe(seconds)
        for law in taken.broken:
            self._broken.labels(law).inc()
        if Status.FAILED.value not in taken.outcomes.values():  # else the sums would lack a node
            self._taken = taken

    def requested(self, method: str, code: int, seconds: float) -> None:
        """Count a request to placement by the status code of its answer (0: no answer)."""
        self._requests.labels(method, str(code)).inc()
        self._request_s.labels(method).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Yield what is no counter, as it is now."""
        now, taken = self.status(), self._taken
        said: Tally[tuple[str, ...]] = Tally((one.kind, one.text) for each in now.conditions.values() for one in each)
        rows: dict[str, Mapping[tuple[str, ...], float]] = {  # numbers by the values of the labels
            "source_up": {(name,): not one.error for name, one in now.sources.items()},
            "source_last_success_timestamp_seconds": {
                (name,): one.ok_s for name, one in now.sources.items() if one.ok_s is not None
            },
            "findings": {(kind.value,): taken.findings.get(kind.value, 0) for kind in Kind if taken.outcomes},
            "conditions": said,
            "slots": {(name,): number for name, number in taken.slots.items()},
            "last_pass_timestamp_seconds": {(): now.last_pass_s or 0},
        }
        rows = {f"{NAME}_{name}": each for name, each in rows.items()}
        rows |= {f"{EXPORTER}_{name}": each for name, each in _exported(taken).items()}
        for name, (text, *labels) in _GAUGES.items():
            family = GaugeMetricFamily(name, text, labels=labels)
            for values, number in rows[name].items():
                family.add_metric([*map(printable, values)], number)
            yield family


def _exported(taken: RoundResult) -> dict[str, Mapping[tuple[str, ...], float]]:
    """Return what openstack-exporter would say of these providers, by the ends of its metrics' names."""
    used = usages(taken.allocations)
    stocks = {(one.name, name): stock for one in taken.providers for name, stock in one.provider.inventories.items()}
    generations = {one.name: one.generation for one in taken.providers}
    return {
        **{
            field: {slot: getattr(stock, field) for slot, stock in stocks.items()}
            for field in ("total", "reserved", "allocation_ratio")
        },
        "generation": {slot: generations[slot[0]] for slot in stocks},
        "usage": {slot: used.get(slot, 0) for slot in stocks},
        "provider_allocations": {
            (one.provider, one.consumer, one.resource_class): one.amount for one in taken.allocations
        },
    }


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


def serve(metrics: Metrics, address: str, port: int, is_lively: Callable[[], bool]) -> int:
    """
    Serve /metrics, /healthz (the loop makes progress) and /readyz (all sources serve) at an address, in a thread.

    Nobody has to log in, so these tell which sources failed, and not why. Return the port; ``port`` 0 takes a free one.

    Raises:
        OSError: cannot listen on the port.
    """
    application: WSGIApplication = make_wsgi_app(metrics.registry)

    def route(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/metrics":
            return application(environ, start)
        now = metrics.status()
        good = {"/healthz": is_lively(), "/readyz": now.is_ready}.get(environ["PATH_INFO"])
        code = "404 Not Found" if good is None else "200 OK" if good else "503 Service Unavailable"
        start(code, [("Content-Type", "application/json")])
        return [] if good is None else [json.dumps({"ok": good, "failed": [*now.failed]}).encode()]

    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound: type[_Server] = type("_Bound", (_Server,), {"address_family": family})
    server = make_server(address, port, route, server_class=bound, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_port)
