"""Decide whether a conversion can be taken back: exactly what was before it, or nothing."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePath

from agent.sync.json_form import Form, encode_observed_tree
from reportclient.allocations import Allocation
from reportclient.forecast import forecast
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA
from reportclient.plan import Plan
from reportclient.reserve import HOLD, is_mark
from reportclient.tree import ObservedTree

DONE = "done"
OURS = frozenset({MARKER, MANAGED, OWNER_NOVA})
_NAMED = 4  # differences that a refusal names


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A conversion that was carried out, at least in part, as the journal has it."""

    path: str  # its file
    node: str
    began: str  # ISO 8601, UTC
    outcome: str  # DONE, or what a person must know
    digest: str  # of the plan that a person agreed to, else of the plan itself
    agreed: str | None = None  # the digest of the plan that a person read; None: no plan was agreed on
    layout: str  # in which the tree stood before
    target: str
    undoes: str | None = None  # name of the conversion that this one takes back
    undone_by: str | None = None  # name of an attempt to take this one back of which the end is not known
    confirm_by_s: float | None = None  # seconds since the epoch: on trial, and taken back then; None: it is not
    trial_ended: str | None = None  # how: a person confirmed it, or nothing was left to take back
    before: Form
    after: Form
    moves: tuple[Form, ...]

    @property
    def name(self) -> str:
        return PurePath(self.path).stem

    @property
    def root_uuid(self) -> str:
        return self.name.partition("Z-")[2]

    @property
    def is_on_trial(self) -> bool:
        return self.confirm_by_s is not None and self.trial_ended is None

    def is_gone_on_with(self, layout: str) -> bool:
        """Return whether a plan to a layout is the rest of it: it was cut off, and is not being taken back."""
        return self.outcome != DONE and self.undone_by is None and self.target == layout

    @property
    def confirm_by(self) -> str:
        """When it is taken back, as ISO 8601 in UTC."""
        return datetime.fromtimestamp(self.confirm_by_s or 0.0, UTC).isoformat(timespec="seconds")

    @property
    def trial_text(self) -> str:
        """Until when it is on trial, or how that ended; "-": it was not made on trial."""
        return self.trial_ended or (f"until {self.confirm_by}" if self.is_on_trial else "-")

    @property
    def consumers(self) -> int:
        """How many consumers' allocations moved."""
        return len({move["consumer"] for move in self.moves})

    @property
    def former(self) -> dict[tuple[str, str, str], str]:
        """
        Return where consumers had what they got: (consumer, provider, class) -> provider before the conversion.

        What came together from several providers is left out.
        """
        came: dict[tuple[str, str, str], set[str]] = {}
        for move in self.moves:
            for name in move.get("to_resources") or move["moved_resources"]:
                slot = move["consumer"], move["to_resource_provider"], name
                came.setdefault(slot, set()).add(move["from_resource_provider"])
        return {slot: sources.pop() for slot, sources in came.items() if len(sources) == 1}


def why_barred(trial: Conversion) -> str:
    """Return why no other conversion begins while one is on trial, and what to do first."""
    until = f"is on trial until {trial.confirm_by}"
    if trial.outcome == DONE:
        return f"the conversion of {trial.began} {until}: run reshape --confirm, or undo --apply, first"
    if trial.undone_by:
        return (
            f"the conversion of {trial.began} is being taken back, and that was cut off: run undo --apply first, or "
            f"let it stand by reshape --apply --to {trial.target}, and then reshape --confirm"
        )
    return (
        f"the conversion of {trial.began} to {trial.target} {until}, and was cut off: run undo --apply first, or go on "
        f"with it by reshape --apply --to {trial.target} --confirm-within TIME"
    )


def what_comes(trial: Conversion) -> str:
    """Return what becomes of a conversion on trial, and when."""
    when = f"the service takes it back at its first pass after {trial.confirm_by}"
    if trial.outcome == DONE:
        return f"the conversion of {trial.began} is on trial: {when}, unless reshape --confirm comes"
    return f"the conversion of {trial.began} is on trial and not whole: {when}: {trial.outcome}"


def not_as_before(
    undone: Conversion, plan: Plan, observed: ObservedTree, held: Iterable[Allocation], after: Iterable[Allocation]
) -> tuple[str, ...]:
    """
    Return why a plan would not bring back what was before a conversion; empty if it would.

    ``observed`` and ``held`` are the tree and its allocations before the plan, ``after`` its allocations after it.
    Consumers that changed since, that came since or that are gone may have anything.
    """
    made = encode_observed_tree(forecast(plan, observed), after)
    found = list(_changed(undone.before["providers"], made["providers"]))
    found += _lost_names(undone.before, made, {seen.name for seen in observed})
    now, then = encode_observed_tree(observed, held)["allocations"], made["allocations"]
    for consumer, before in sorted(undone.before["allocations"].items()):
        unchanged = now.get(consumer) == undone.after["allocations"].get(consumer)
        if unchanged and consumer in now and then.get(consumer) != before:
            found.append(f"consumer {consumer} would not get back what it had")
    if not found:
        return ()
    more = f", and {len(found) - _NAMED} more differences" if len(found) > _NAMED else ""
    return (
        f"the tree would not be as it was before the conversion {undone.name}: {'; '.join(found[:_NAMED])}{more}: "
        f"compute-node-agent reshape --to {undone.layout} shows what a conversion of today would make",
    )


def _changed(was: Form, now: Form) -> Iterator[str]:
    """Yield each provider and each class that two trees do not have alike, and each other parent."""
    of_host = any(trait.startswith(f"{HOLD}HOST") for one in (*was.values(), *now.values()) for trait in one["traits"])
    for name in sorted(was.keys() | now.keys()):
        if name not in was or name not in now:
            yield f"provider {name} is {'new' if name in now else 'gone'}"
            continue
        before, after = was[name]["inventories"], now[name]["inventories"]
        # What a person holds now, or held then, is reserved or not whatever the layout is.
        held = of_host or any(trait.startswith(HOLD) for trait in (*was[name]["traits"], *now[name]["traits"]))
        for kind in sorted(before.keys() ^ after.keys()):
            yield f"{kind} on {name} is {'new' if kind in after else 'gone'}"
        for kind in sorted(before.keys() & after.keys()):
            for key, value in before[kind].items():
                if value != after[kind][key] and not (held and key == "reserved"):
                    yield f"{key} of {kind} on {name} {value} -> {after[kind][key]}"
        if was[name]["parent"] != now[name]["parent"]:
            yield f"parent of {name} {was[name]['parent']} -> {now[name]['parent']}"


def _lost_names(before: Form, made: Form, standing: Collection[str]) -> Iterator[str]:
    """
    Yield each trait and aggregate of others that a provider had, and that it lacks when the plan makes it again.

    Providers that stood all the time are as their owners left them.
    """
    for name in sorted(before["providers"].keys() & made["providers"].keys() - standing):
        old, new = before["providers"][name], made["providers"][name]
        for trait in sorted(set(old["traits"]) - set(new["traits"])):
            if not is_mark(trait) and trait not in OURS:
                yield f"trait {trait}, which this agent does not set, on {name} is gone"
        for aggregate in sorted(set(old["aggregates"]) - set(new["aggregates"])):
            yield f"aggregate {aggregate}, which this agent does not set, on {name} is gone"
