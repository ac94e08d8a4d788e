"""Watch a host: gather events into batches, look at the host after each batch, and yield what changes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from agent.command.plan_results import ShownChange, shown_plan
from agent.connect.choice import Choice, open_client, open_driver
from agent.errors import USER_ERRORS, ConfigError
from agent.service.event_batches import SOON_S, WakeUps, announce_loss
from agent.settings.read import Settings
from agent.state.identity import planned_identity
from agent.sync.decide.additions import add
from agent.sync.decide.checks import PATIENCE
from agent.sync.decide.view import Wishes
from agent.sync.node import ComputeNode
from agent.sync.outcome import Status
from agent.sync.provider_yaml import read_additions
from agent.sync.run import run_pass
from drivers.base import Driver, Watchable
from drivers.events import Event
from drivers.looks import look
from reportclient.diff import diff
from reportclient.ownership import Names, Ownership
from reportclient.plan import Plan
from reportclient.renaming import child_uuid
from reportclient.tree import ObservedProvider, ObservedTree, ProviderTree

RETRY_S = 2.0  # after a look that failed
_FIRST = (
    "this is the whole host, not compared with placement (use --sync for that); from now on only changes are shown, "
    "until Ctrl-C"
)
TICK_S = 60.0  # longest time without a look: a link that goes down or an allocation that ends sends no event


class Ticks:
    """Source of batches of events; a batch is empty if a look is due without an event, and the first is due at once."""

    def __init__(self) -> None:
        self._wake_ups = WakeUps()
        self.wake = self._wake_ups.wake
        self._due = 0.0

    def again(self, seconds: float) -> None:
        """Make the next batch due after this time, even without an event."""
        self._due = time.monotonic() + seconds

    def next(self) -> tuple[tuple[Event, ...], float]:
        """Wait for the next batch; return it with the time of its first event (monotonic)."""
        batch = self._wake_ups.wait(self._due - time.monotonic())
        self._due = time.monotonic() + TICK_S
        return batch


@contextmanager
def open_watch(settings: Settings, choice: Choice, *, sync: bool) -> Iterator[Iterator[ShownChange]]:
    """
    Yield an iterator over the changes of the chosen host as they come; with ``sync`` each is written to placement.

    Raises:
        ConfigError: the driver reports no events, or ``choice`` names a recorded host. Else as a survey.
    """
    wake_ups = Ticks()
    with open_driver(settings, choice) as driver:
        if not isinstance(driver, Watchable) or choice.host:
            raise ConfigError("watch works only on a live host: set [DEFAULT] compute_driver = libvirt.LibvirtDriver")
        with driver.watching(wake_ups.wake):
            name = driver.nodes()[0]
            choice.trace.nodes.append(name)
            if not sync:
                yield watch_host(driver, name, settings, wake_ups)
                return
            client, where = open_client(settings, choice, writes=True)
            node = ComputeNode(name=name, driver=driver, client=client, settings=settings, where=where)
            yield watch_and_sync(node, wake_ups)


def watch_host(driver: Driver, node: str, settings: Settings, wake_ups: Ticks) -> Iterator[ShownChange]:
    """Yield each change of the desired tree, without end; write nothing."""
    stood = ObservedTree()
    while True:
        events, since = wake_ups.next()
        try:
            tree = _desired(driver, node, settings)
        except USER_ERRORS as error:
            wake_ups.again(RETRY_S)
            yield _change(events, None, notes=(str(error),))
            continue
        plan = _compare(stood, tree)
        if events or plan.operations or not stood.providers:
            notes = () if stood.providers else (_FIRST,)
            yield _change(events, None, plan, stood, notes=notes, seconds=time.monotonic() - since)
        stood = _as_observed(tree)


def watch_and_sync(node: ComputeNode, wake_ups: Ticks) -> Iterator[ShownChange]:
    """Run a pass at the start and after each batch of events, without end; yield what each changed."""
    started = False
    hardware: frozenset[str] = frozenset()  # PCI addresses of reported devices; their loss is confirmed at once
    looks = PATIENCE  # unsafe passes since a loss was announced; PATIENCE or more: no announced loss waits
    while True:
        events, since = wake_ups.next()
        looks = 0 if announce_loss(events, hardware) else looks
        try:
            outcome = run_pass(node, Wishes(counts=not events or looks < PATIENCE))
        except USER_ERRORS as error:
            wake_ups.again(RETRY_S)
            yield _change(events, Status.FAILED.value, notes=(str(error),))
            continue
        refused = outcome.status is Status.UNSAFE
        hardware = hardware | outcome.hardware if refused else outcome.hardware
        looks += refused
        if outcome.status is Status.UNSAFE and looks < PATIENCE:
            wake_ups.again(SOON_S)
        if not events and outcome.status is Status.UNCHANGED and started:
            continue
        started = True
        seconds = time.monotonic() - since
        yield _change(
            events, outcome.status.value, outcome.plan, outcome.observed, notes=outcome.notes, seconds=seconds
        )


def _change(
    events: tuple[Event, ...],
    outcome: str | None,
    plan: Plan = Plan(),
    before: ObservedTree = ObservedTree(),
    *,
    notes: tuple[str, ...],
    seconds: float = 0.0,
) -> ShownChange:
    """Return the result of one look, as of now."""
    return ShownChange(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        events=events,
        seconds=round(seconds, 3),
        outcome=outcome,
        notes=notes,
        plan=shown_plan(plan, before),
    )


def _desired(driver: Driver, node: str, settings: Settings) -> ProviderTree:
    tree, _ = driver.shape(look(lambda: driver.survey(node)), settings.policy, None)
    additions = read_additions(settings.provider_config, required=settings.provider_config_named)
    return add(tree, planned_identity(node), additions)[0]


def _compare(stood: ObservedTree, tree: ProviderTree) -> Plan:
    """Plan the difference between two desired trees, as if the agent owned all of the first."""
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
