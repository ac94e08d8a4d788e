"""Watches a node: events become looks, debounced, and each look says what it changes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from agent.command.forms import ChangeForm
from agent.connect.choice import Choice, open_client, open_driver
from agent.errors import USER_ERRORS, ConfigError
from agent.service.events import SOON_S, WakeUps, announce_loss
from agent.settings.read import Settings
from agent.state.identity import planned_identity
from agent.sync.decide.additions import add
from agent.sync.decide.judge import PATIENCE
from agent.sync.decide.view import Wishes
from agent.sync.json_form import encode_plan
from agent.sync.node import ComputeNode, look
from agent.sync.outcome import Status
from agent.sync.provider_yaml import read_additions
from agent.sync.run import run_pass
from drivers.base import Driver, Watchable
from drivers.events import Event
from reportclient.diff import diff
from reportclient.ownership import Names, Ownership
from reportclient.plan import Plan
from reportclient.renaming import child_uuid
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree

RETRY_S = 2.0  # after a look that failed
_FIRST = (
    "the whole host, compared with nothing; from now on what changes, until Ctrl-C (--sync compares with placement)"
)
TICK_S = 60.0  # without any event: links that go down and allocations that end announce themselves to nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one look found: the events that asked for it, and what changed."""

    events: tuple[Event, ...]
    plan: Plan = field(default_factory=Plan)
    before: ObservedTree = field(default_factory=ObservedTree)
    outcome: str = ""  # of the pass, where changes are written
    notes: tuple[str, ...] = ()
    seconds: float = 0.0  # from the first event to the end


class Ticks:
    """Batches of events, and one without any when it is time to look all the same; the first comes at once."""

    def __init__(self) -> None:
        self._wake_ups = WakeUps()
        self.wake = self._wake_ups.wake
        self._due = 0.0

    def again(self, seconds: float) -> None:
        """Look again by then, event or not."""
        self._due = time.monotonic() + seconds

    def next(self) -> tuple[tuple[Event, ...], float]:
        """The next batch, and when its first event came (monotonic)."""
        batch = self._wake_ups.wait(self._due - time.monotonic())
        self._due = time.monotonic() + TICK_S
        return batch


@contextmanager
def open_watch(settings: Settings, choice: Choice, *, sync: bool) -> Iterator[Iterator[Change]]:
    """
    The changes of the chosen host as they come; with ``sync`` each is written to placement.

    Raises:
        ConfigError: the host is no live one. And as a survey does.
    """
    wake_ups = Ticks()
    with open_driver(settings, choice) as driver:
        if not isinstance(driver, Watchable) or choice.host:
            raise ConfigError("watch looks at a live host: leave --host out, and use the libvirt driver")
        with driver.watching(wake_ups.wake):
            name = driver.nodes()[0]
            if not sync:
                yield watch_host(driver, name, settings, wake_ups)
                return
            client, where = open_client(settings, choice, writes=True)
            node = ComputeNode(name=name, driver=driver, client=client, settings=settings, where=where)
            yield watch_and_sync(node, wake_ups)


def encode_change(change: Change) -> ChangeForm:
    """A change as JSON: a plan with its events, its outcome and when it was done."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "events": [{"source": event.source, "what": event.what} for event in change.events],
        "seconds": round(change.seconds, 3),
        "outcome": change.outcome or None,
        "notes": list(change.notes),
        **encode_plan(change.plan, change.before),
    }


def watch_host(driver: Driver, node: str, settings: Settings, wake_ups: Ticks) -> Iterator[Change]:
    """Each change of the desired tree, without end; nothing is written anywhere."""
    stood = ObservedTree()
    while True:
        events, since = wake_ups.next()
        try:
            tree = _desired(driver, node, settings)
        except USER_ERRORS as error:
            wake_ups.again(RETRY_S)
            yield Change(events=events, notes=(str(error),))
            continue
        plan = _compare(stood, tree)
        if events or plan.operations or not stood.providers:
            notes = () if stood.providers else (_FIRST,)
            yield Change(events=events, plan=plan, before=stood, notes=notes, seconds=time.monotonic() - since)
        stood = _as_observed(tree)


def watch_and_sync(node: ComputeNode, wake_ups: Ticks) -> Iterator[Change]:
    """A pass at the start and after each batch of events, without end."""
    started = False
    hardware: frozenset[str] = frozenset()  # whose loss, once announced, is looked at at once
    looks = PATIENCE  # in a row that found less than the limits allow to take away, since something was announced
    while True:
        events, since = wake_ups.next()
        looks = 0 if announce_loss(events, hardware) else looks
        try:
            outcome = run_pass(node, Wishes(counts=not events or looks < PATIENCE))
        except USER_ERRORS as error:
            wake_ups.again(RETRY_S)
            yield Change(events=events, outcome=Status.FAILED.value, notes=(str(error),))
            continue
        refused = outcome.status is Status.UNSAFE
        hardware = hardware | outcome.hardware if refused else outcome.hardware
        looks += refused
        if outcome.status is Status.UNSAFE and looks < PATIENCE:
            wake_ups.again(SOON_S)
        if not events and outcome.status is Status.UNCHANGED and started:
            continue
        started = True
        yield Change(
            events=events,
            plan=outcome.plan,
            before=outcome.observed,
            outcome=outcome.status.value,
            notes=outcome.notes,
            seconds=time.monotonic() - since,
        )


def _desired(driver: Driver, node: str, settings: Settings) -> ProviderTree:
    tree, _ = driver.shape(look(lambda: driver.survey(node)), settings.policy, None)
    additions = read_additions(settings.provider_config, required=settings.provider_config_named)
    return add(tree, planned_identity(node), additions)[0]


def _compare(stood: ObservedTree, tree: ProviderTree) -> Plan:
    """What became of a tree that was all ours, in the words of a plan."""
    everything = {seen.name: Names(frozenset(seen.provider.inventories), seen.provider.traits) for seen in stood}
    ours = Ownership(emitted=Names(), configured=everything)
    return diff(stood, tree, ours, root_uuid=planned_identity(tree.root.name))


def _as_observed(tree: ProviderTree) -> ObservedTree:
    root_uuid = planned_identity(tree.root.name)
    return ObservedTree(
        tuple(
            ObservedProvider(
                uuid=child_uuid(root_uuid, tree.root.name, provider.name) if provider.parent else root_uuid,
                generation=0,
                provider=provider,
            )
            for provider in tree
        )
    )
