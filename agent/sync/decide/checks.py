"""Judge whether the plan of a pass may be carried out, and say what a person should know of it. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.state.memory import NodeState
from agent.sync.decide.beside import against_root
from agent.sync.decide.feature import Draft, PassEnd, Refusal
from agent.sync.decide.laws import sentences
from agent.sync.decide.layout import excused
from agent.sync.decide.owner import advice, only_audits, open_stock, stranded
from agent.sync.decide.undoing import Conversion, not_as_before, why_barred
from agent.sync.decide.wanted import ignored
from agent.sync.outcome import Condition, Status
from reportclient.errors import UnsafePlan
from reportclient.forecast import Limits, check_use, losses, shrinkage
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA, Names, is_marked, is_novas
from reportclient.plan import Delete, Plan, Reparent
from reportclient.reserve import HELD, is_mark, reserved_by_operator
from reportclient.settings import lost_settings, set_back
from reportclient.tree import ObservedProvider

PATIENCE = 3  # passes in a row that must want the same loss, whatever else their plans change
REPARENTING = (1, 37)  # the first microversion that can change a provider's parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a plan may be carried out, and what to remember of that."""

    refused: Status | None = None  # None: the plan may be carried out
    notes: tuple[str, ...] = ()  # why it is refused, a sentence each
    memory: NodeState
    reserving: Plan = field(default_factory=Plan)  # of a refused plan: what is carried out all the same
    broken: tuple[str, ...] = ()  # the laws that the plan breaks, or what it reserves beside it, of each breach


def judge(draft: Draft) -> Verdict:
    """
    Return whether the plan may be carried out, and why not.

    What only reserves goes through although the rest is refused, unless nothing may be written here, or the memory is
    wrong, or a person agreed to one plan alone.
    """
    refused, wishes = _refused(draft), draft.view.wishes
    memory = remember(draft.memory, PassEnd(draft=draft, refused=refused))
    if refused is None:
        return Verdict(memory=replace(memory, smaller="", smaller_seen=0))
    if refused.status not in (Status.AUDIT_ONLY, Status.CONTESTED):
        memory = replace(memory, smaller=refused.loss, smaller_seen=refused.seen)
    if refused.forgets:
        memory = replace(memory, observed=None, configured={}, reported={})
    outdated = refused.forgets and draft.memory.observed is not None
    waits = bool(refused.bars or outdated or wishes.agreed or wishes.undone)
    unreserved = () if waits else draft.unreserved
    return Verdict(
        refused=refused.status,
        notes=(*refused.notes, *sentences(unreserved, "what is to be reserved beside it")),
        memory=memory,
        reserving=Plan() if waits else draft.reserving,
        broken=(*refused.broken, *(one.law for one in unreserved)),
    )


def remember(memory: NodeState, end: PassEnd) -> NodeState:
    """Return the memory with what the features remember of a pass that ends like this."""
    for one in end.draft.features:
        memory = memory.with_bodies(one.remember(end))
    return memory


def _refused(draft: Draft) -> Refusal | None:
    """Return the first objection: the roles', each feature's, then the general ones."""
    if draft.view.terms.audits_only and draft.plan.operations:
        return Refusal(status=Status.AUDIT_ONLY, notes=(only_audits(draft.view.node),))
    if draft.view.beside and (refusal := against_root(draft.view.node, draft.observed)):
        return Refusal(status=Status.CONTESTED, notes=refusal)
    for feature in draft.features:
        if refused := feature.refuse(draft):
            return refused
    if wrong := next(filter(None, _general(draft)), ()):
        return Refusal(status=Status.UNSAFE, notes=wrong)
    if draft.breaches:
        broken = tuple(one.law for one in draft.breaches)
        return Refusal(status=Status.UNSAFE, notes=sentences(draft.breaches), broken=broken)
    if why := barred(draft):
        return Refusal(status=Status.RESHAPE_NEEDED, notes=(why,))
    if draft.plan.moves and not draft.view.wishes.reshape:
        return Refusal(status=Status.RESHAPE_NEEDED, notes=_needs_reshape(draft))
    return _much_smaller(draft)


def is_conversion(draft: Draft) -> bool:
    """Return whether a plan moves allocations, or changes the layout of a tree that nobody has allocations on."""
    return bool(draft.plan.moves) or (draft.observed.root is not None and draft.stands_in != draft.layout)


def barred(draft: Draft) -> str:
    """Return why a plan must not begin a conversion beside one that is, or may be, on trial; empty: it may go on."""
    trial, untold = draft.view.terms.trial, draft.view.terms.untold
    if draft.view.wishes.undone or not draft.plan.operations or not is_conversion(draft):
        return ""
    if untold:
        return f"it is not known whether a conversion is on trial, so none begins: {untold}"
    return why_barred(trial) if trial and not _goes_on(draft, trial) else ""


def _goes_on(draft: Draft, trial: Conversion) -> bool:
    """Return whether a plan goes on with a conversion on trial that was cut off, and that has time left."""
    has_time = draft.view.wishes.confirm_by_s or draft.view.terms.now_s < (trial.confirm_by_s or 0)
    return trial.is_gone_on_with(draft.layout) and bool(has_time)


def _untriable(draft: Draft) -> tuple[str, ...]:
    """Return why a plan cannot be on trial; empty: it can, or is not to be."""
    trial = draft.view.terms.trial
    is_asked = draft.view.wishes.confirm_by_s and draft.plan.operations
    if not is_asked or draft.stands_in != draft.layout or (trial and _goes_on(draft, trial)):
        return ()
    return (
        "no layout changes, and by itself the service takes back only a change of the layout: leave out "
        "--confirm-within",
    )


def _general(draft: Draft) -> Iterator[tuple[str, ...]]:
    """Yield the reasons why any plan is unsafe, one check after the other."""
    yield _untriable(draft)
    yield _lacks_reparenting(draft.plan, draft.view.terms.microversion)
    yield _twice(draft)
    yield (draft.way.unplaceable,) if draft.way.unplaceable else ()
    yield _lost_settings(draft)
    yield () if draft.view.wishes.agreed else _lost_names(draft)
    try:
        check_use(draft.plan, draft.observed, draft.allocations_after, force=draft.view.wishes.force)
    except UnsafePlan as error:
        yield (str(error),)
    if draft.view.wishes.undone:
        yield _not_undone(draft, draft.view.wishes.undone)


def _much_smaller(draft: Draft) -> Refusal | None:
    """Refuse a plan by which the host gets much smaller, until a person wants that or it was wanted often enough."""
    lost, wishes = lost_root(draft), draft.view.wishes
    shrinking = (*lost, *shrinkage(draft.plan, draft.observed, _limits(draft)))
    now = dict.fromkeys(lost, (1, 1)) | losses(draft.plan, draft.observed)
    is_same = _is_same(draft.memory.smaller, now, draft.view.changes.shrink_fraction)
    seen = (draft.memory.smaller_seen if is_same else 0) + wishes.counts
    if not shrinking or wishes.force or wishes.agreed or seen >= PATIENCE:
        return None
    notes = (
        *shrinking,
        f"seen {seen} of {PATIENCE} times in a row: run sync --force, or reshape --apply --digest D with the digest "
        f"that reshape shows, or wait for the third pass",
    )
    loss = "; ".join(f"{what} {units}" for what, (units, _) in now.items() if units)
    return Refusal(status=Status.UNSAFE, notes=notes, loss=draft.memory.smaller if is_same else loss, seen=seen)


def _is_same(loss: str, now: Mapping[str, tuple[int, int]], fraction: float) -> bool:
    """Return whether a loss that was refused is the one now: no amount differs by as much as the limit of a pass."""
    parts = (part.rpartition(" ") for part in loss.split("; "))
    before = {what: int(units) for what, _, units in parts if units.isdecimal()}
    return before.keys() <= now.keys() and all(
        abs(units - before.get(what, 0)) < max(1, fraction * stands) for what, (units, stands) in now.items()
    )


def lost_root(draft: Draft) -> tuple[str, ...]:
    """
    Return why it is doubtful that placement has no root of this host, a sentence; empty where nothing speaks for one.

    It stood at an earlier pass, here or in another placement: the database may be empty, or the URL wrong. Guests that
    run here have no allocations in such a placement, so a tree that is made anew offers what they use.
    """
    before = draft.memory.elsewhere
    if draft.observed.root or not (before or draft.memory.stood):
        return ()
    where = f"the placement {before.where} had it" if before else "this placement had it"
    return (
        f"placement does not have the provider {draft.desired.root.name}, and at an earlier pass {where}: a tree that "
        f"is made anew has no allocations, so what running guests use is on offer. Check that this is the right "
        f"placement, and that its database is whole",
    )


def _not_undone(draft: Draft, undone: Conversion) -> tuple[str, ...]:
    """Return why the plan does not take a conversion back; empty where it does, and where that is done."""
    node, configured = draft.view.node, draft.view.wishes.configured
    if undone.node != node:
        return (f"the last conversion {undone.name} is of {undone.node}, not of {node}: nothing is taken back",)
    if draft.plan.operations and draft.stands_in not in (undone.layout, undone.target):
        return (
            f"the tree of {node} stands in the layout {draft.stands_in}, and the last conversion {undone.name} made it "
            f"{undone.target}: it was changed since, so there is nothing to take back. Convert it with "
            f"compute-node-agent reshape --to LAYOUT",
        )
    if draft.plan.operations and not draft.plan.moves and configured != undone.layout:
        return (
            f"no allocation has to move, so the next pass would convert {node} to {configured} again: set "
            f"[compute] layout = {undone.layout} first",
        )
    return not_as_before(undone, draft.plan, draft.observed, draft.way.allocations, draft.allocations_after)


def conditions_on(draft: Draft) -> tuple[Condition, ...]:
    """Return what a person should know of a host beside the plan."""
    found = [Condition(kind="lost-root", text=text) for text in lost_root(draft)]
    if draft.view.seen.went_back:
        text = (
            "placement has older data than at the last pass (a restored backup, or a cache on the way?): all of "
            "this tree was read again, and all that differs from this host is written again"
        )
        found.append(Condition(kind="older-placement", text=text))
    for feature in draft.features:
        found += feature.conditions(draft)
    found += [each.condition for one in draft.features for each in one.reserve(draft.desired) if each.kind]
    found += draft.held
    found += [Condition(kind="lost-names", text=text) for text in _lost_names(draft)]
    found += [Condition(kind="set-back", text=text) for text in set_back(draft.said, draft.desired)]
    found += [Condition(kind="file", text=text) for text in ignored(draft.wanted.strays, draft.desired)]
    novas = () if draft.view.beside else stranded(draft.observed, draft.wanted.ours)
    found += [Condition(kind="novas", text=advice(seen), provider=seen.name) for seen in novas if open_stock(seen)]
    if draft.plan.left_out:
        text = "this placement is too old to know the traits " + ", ".join(sorted(draft.plan.left_out))
        found.append(Condition(kind="unknown-traits", text=text))
    if (root := draft.observed.root) and (kept := _unexplained(draft, root)):
        is_lost = draft.memory.observed is None and not draft.view.seen.went_back and is_marked(root)
        lost = "the saved state of this agent was lost; " if is_lost else ""
        text = f"{lost}the root keeps {', '.join(kept)}, which another service may have added"
        found.append(Condition(kind="lost-state" if is_lost else "strange-names", text=text))
    return tuple(dict.fromkeys(found))


def _twice(draft: Draft) -> tuple[str, ...]:
    """Return why devices would be on offer twice: the root has classes not of ours that children are to get."""
    root, beside = draft.observed.root, draft.view.beside
    if root is None:
        return ()
    stands = root.provider.inventories.keys()
    carried = stands if beside else stands - draft.wanted.ours.classes(root)  # what is wanted on the root is ours
    below = frozenset[str]().union(*(one.inventories for one in draft.desired if one.parent))
    both = ", ".join(sorted(carried & below))
    if not both:
        return ()
    origin = "nova reports that" if beside else "this agent does not know whether it reported this itself"
    cure = f"remove {both} from {root.name} by hand"
    if beside:
        cure = "take them out of nova's provider.yaml or out of this agent's configuration"
    return (
        f"{root.name} has {both}, and {origin}. The plan adds {both} to child providers too: if both stand for the "
        f"same devices, {cure}",
    )


def _lost_settings(draft: Draft) -> tuple[str, ...]:
    """Return why the plan would lose what an operator set by hand; empty when it loses nothing."""
    ours, files = draft.wanted.ours, draft.meanwhile.configured
    apart = {name: names.classes for name, names in files.items()}
    for seen in draft.said:
        theirs = seen.provider.inventories.keys() - ours.classes(seen)
        if not ours.writes(seen):  # what our traits say there was of a provider that another service took over
            theirs |= reserved_by_operator(seen.provider).keys()
        apart[seen.name] = apart.get(seen.name, frozenset()) | theirs
    return lost_settings(
        draft.said,
        draft.desired,
        draft.view.policy.ratios.free,
        elsewhere=draft.shaped.holdings.backing.elsewhere,
        away=draft.shaped.holdings.backing.away,
        apart=apart,
    )


def _lost_names(draft: Draft) -> tuple[str, ...]:
    """
    Return which traits and aggregates of a hand a conversion loses, and what to do; empty when it loses none.

    Without a memory those are known that rules and files give now.
    """
    if draft.view.beside or draft.stands_in == draft.layout:
        return ()
    given = (
        frozenset[str]() if draft.memory.observed else frozenset[str]().union(*(one.traits for one in draft.desired))
    )
    sentences, stands = [], draft.observed.by_uuid
    for seen in (stands[step.uuid] for step in draft.plan.operations if isinstance(step, Delete)):
        if is_novas(seen) or (HELD in seen.provider.traits and seen.name not in draft.shaped.present):
            continue  # nova sets these by its own rules; the other one stands for a lost device, and goes with it
        found = seen.provider.traits - draft.wanted.ours.traits(seen) - given - {OWNER_NOVA, MANAGED}
        if names := sorted(found | seen.provider.aggregates):
            sentences.append(
                f"{', '.join(names)} on {seen.name}: this agent does not know it for its own, and the conversion from "
                f"{draft.stands_in} to {draft.layout} deletes it with its provider: put it on the providers of the new "
                f"layout afterwards. Take it off first, or agree by reshape --apply --digest D with the digest that "
                f"reshape shows"
            )
    return tuple(sentences)


def _lacks_reparenting(plan: Plan, microversion: tuple[int, int]) -> tuple[str, ...]:
    """Return why this placement cannot put providers under other parents as planned; empty when it can."""
    moving = [step.name for step in plan.operations if isinstance(step, Reparent)]
    if not moving or microversion >= REPARENTING:
        return ()
    return (
        f"{moving[0]}{' and others' if len(moving) > 1 else ''} would come under another parent. Placement can do "
        f"that from microversion 1.37 on, but this placement has "
        f"{'.'.join(map(str, microversion))}: upgrade placement, or keep [compute] layout as it was",
    )


def _needs_reshape(draft: Draft) -> tuple[str, ...]:
    count = len({move.consumer for move in draft.plan.moves})
    return (
        f"the tree of {draft.view.node} changes its shape, so the allocations of {count} consumer{'s' * (count > 1)} "
        f"must move: look at the plan with compute-node-agent reshape, and carry the plan out with --apply, or set "
        f"[compute] layout back",
    )


def _unexplained(draft: Draft, root: ObservedProvider) -> list[str]:
    """
    Return names of unknown origin that stay on a root with our mark.

    Of traits only where the memory is lost; classes on offer always, as a memory may be of an earlier moment.
    """
    if not is_marked(root):
        return []
    wanted = draft.desired.root.traits | draft.desired.root.inventories.keys() | draft.wanted.ours.classes(root)
    names = {*open_stock(root)}
    if draft.memory.observed is None:
        traits = (name for name in root.provider.traits if not is_mark(name) and not name.startswith(MARKER))
        names |= {name for name in (*root.provider.inventories, *traits) if name.startswith("CUSTOM_")}
    return sorted(names - wanted)


def _limits(draft: Draft) -> Limits:
    fraction = draft.view.changes.shrink_fraction
    withdrawn = {
        provider: names.classes - draft.lasting.configured.get(provider, Names()).classes
        for provider, names in draft.memory.configured.items()
    }
    by_option = {draft.desired.root.name: draft.shaped.holdings.backing.withdrawn}
    for each in (by_option, excused(draft.observed, draft.desired, fraction)):
        for provider, classes in each.items():
            withdrawn[provider] = withdrawn.get(provider, frozenset()) | classes
    return Limits(fraction=fraction, withdrawn=withdrawn, present=draft.shaped.present)
