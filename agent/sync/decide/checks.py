"""Judge whether the plan of a pass may be carried out, and say what a person should know of it. Pure."""

from dataclasses import dataclass, field, replace

from agent.state.memory import NodeState
from agent.sync.decide.beside import against_root, twice_on_root
from agent.sync.decide.doubled import excused
from agent.sync.decide.draft import Draft
from agent.sync.decide.laws import sentences
from agent.sync.decide.novas import advice, open_stock, stranded
from agent.sync.decide.owner import against_writing, only_audits, outlook
from agent.sync.decide.shared_disk import DISK
from agent.sync.decide.undoing import Conversion, not_as_before
from agent.sync.decide.unmatched import misspelt
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from drivers.pools import SHARER
from reportclient.errors import UnsafePlan
from reportclient.hold import device_classes
from reportclient.names import NO_DEVICES
from reportclient.ownership import MANAGED, MARKER, OWNER_NOVA, Names, is_novas
from reportclient.plan import Delete, Limits, Plan, Reparent, check_use, losses, shrinkage
from reportclient.reserve import HELD, is_mark
from reportclient.settings import lost_settings, set_back

PATIENCE = 3  # passes in a row that must want the same loss, whatever else their plans change
REPARENTING = (1, 37)  # the first microversion that can change a provider's parent
_STOP = "stop that service on this host"
FORGIVEN = 10  # quiet passes, and intervals, after which strikes of a second writer no longer count


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a plan may be carried out, and what to remember of that."""

    refused: Status | None = None  # None: the plan may be carried out
    notes: tuple[str, ...] = ()  # why it is refused, a sentence each
    memory: NodeState
    broken: tuple[str, ...] = ()  # the laws that the plan breaks, of each breach: it is refused for nothing else then


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms on which a plan may be carried out, from the configuration and from this placement."""

    node: str
    audits_only: bool = False  # True: nothing is written on this host but repairs of audits
    now_s: float = field(compare=False)  # seconds since the epoch; counts only after a strike
    interval_s: float  # seconds between two passes of the service
    shrink_fraction: float  # the part (0 to 1) of a class's total that may go without a person's consent
    free_ratios: frozenset[str]  # classes whose allocation ratio the operator sets
    microversion: tuple[int, int]  # the one agreed on with this placement


def judge(draft: Draft, wishes: Wishes, terms: Terms) -> Verdict:
    """Return whether the plan may be carried out, and why not."""
    memory = draft.memory
    if terms.audits_only and draft.plan.operations:
        return Verdict(refused=Status.AUDIT_ONLY, notes=(only_audits(terms.node),), memory=memory)
    if draft.beside and (refusal := against_root(terms.node, draft.observed)):
        return Verdict(refused=Status.CONTESTED, notes=refusal, memory=memory)
    if refusal := _contested(draft, wishes):
        return Verdict(refused=Status.CONTESTED, notes=refusal, memory=replace(memory, contested=refusal))
    if refusal := _novas(draft, wishes):
        return Verdict(refused=Status.CONTESTED, notes=refusal, memory=memory)
    struck = _count_strikes(draft, wishes, terms.now_s, terms.interval_s)
    memory = replace(struck, contested=(), smaller="", smaller_seen=0)
    if wrong := _lacks_reparenting(draft.plan, terms.microversion) or _twice(draft) or _unplaceable(draft):
        return Verdict(refused=Status.UNSAFE, notes=wrong, memory=memory)
    if wrong := _renamed_unseen(draft):  # a memory of another moment is none
        unknown = replace(memory, observed=None, configured={}, reported={})
        return Verdict(refused=Status.UNSAFE, notes=wrong, memory=unknown)
    if not wishes.force and (waits := _converts_while_awaiting(draft) or _converts_while_undecided(draft)):
        return Verdict(refused=Status.UNSAFE, notes=waits, memory=memory)
    if lost := _lost_settings(draft, terms.free_ratios) or (not wishes.agreed and _lost_names(draft)):
        return Verdict(refused=Status.UNSAFE, notes=lost, memory=memory)
    try:
        check_use(draft.plan, draft.observed, draft.allocations_after, force=wishes.force)
    except UnsafePlan as error:
        return Verdict(refused=Status.UNSAFE, notes=(str(error),), memory=memory)
    if wishes.undone and (other := _not_undone(draft, wishes.undone, terms.node)):
        return Verdict(refused=Status.UNSAFE, notes=other, memory=memory)
    if draft.breaches:
        broken = tuple(one.law for one in draft.breaches)
        return Verdict(refused=Status.UNSAFE, notes=sentences(draft.breaches), memory=memory, broken=broken)
    if draft.plan.moves and not wishes.reshape:
        return Verdict(refused=Status.RESHAPE_NEEDED, notes=_needs_reshape(draft, terms.node), memory=memory)
    shrinking = (*lost_root(draft), *shrinkage(draft.plan, draft.observed, _limits(draft, terms.shrink_fraction)))
    loss, before = "; ".join((*lost_root(draft), *losses(draft.plan, draft.observed))), draft.memory
    seen = (before.smaller_seen if before.smaller == loss else 0) + wishes.counts
    if not shrinking or wishes.force or wishes.agreed or seen >= PATIENCE:
        return Verdict(memory=memory)
    notes = (
        *shrinking,
        f"seen {seen} of {PATIENCE} times in a row: run sync --force, or reshape --apply --digest D with the digest "
        f"that reshape shows, or wait for the third pass",
    )
    return Verdict(refused=Status.UNSAFE, notes=notes, memory=replace(memory, smaller=loss, smaller_seen=seen))


def lost_root(draft: Draft) -> tuple[str, ...]:
    """
    Return why it is doubtful that placement has no root of this host, a sentence; empty where nothing speaks for one.

    It stood at an earlier pass, here or in another placement: the database may be empty, or the URL wrong. Guests that
    run here have no allocations in such a placement, so a tree that is made anew offers what they use.
    """
    before = draft.memory.elsewhere
    if draft.observed.root or draft.beside or not (draft.plan.operations and (before or draft.memory.stood)):
        return ()
    where = f"the placement {before.where} had it" if before else "this placement had it"
    return (
        f"placement does not have the provider {draft.desired.root.name}, and at an earlier pass {where}: a tree that "
        f"is made anew has no allocations, so what running guests use is on offer. Check that this is the right "
        f"placement, and that its database is whole",
    )


def _not_undone(draft: Draft, undone: Conversion, node: str) -> tuple[str, ...]:
    """Return why the plan does not take a conversion back; empty where it does, and where that is done."""
    if undone.node != node:
        return (f"the last conversion {undone.name} is of {undone.node}, not of {node}: nothing is taken back",)
    if draft.plan.operations and draft.stands_in not in (undone.layout, undone.target):
        return (
            f"the tree of {node} stands in the layout {draft.stands_in}, and the last conversion {undone.name} made it "
            f"{undone.target}: it was changed since, so there is nothing to take back. Convert it with "
            f"compute-node-agent reshape --to LAYOUT",
        )
    if draft.plan.operations and not draft.plan.moves and undone.configured != undone.layout:
        return (
            f"no allocation has to move, so the next pass would convert {node} to {undone.configured} again: set "
            f"[compute] layout = {undone.layout} first",
        )
    return not_as_before(undone, draft.plan, draft.observed, draft.allocations, draft.allocations_after)


def notes_on(draft: Draft) -> tuple[str, ...]:
    """Return what a person should know of a pass beside its plan, a sentence each."""
    notes = [*lost_root(draft)]
    if draft.contest:
        changes = "; ".join(draft.contest.changes)
        notes.append(f"another writer changed {draft.contest.provider} since the last pass: {changes}")
    if draft.went_back:
        notes.append(
            "placement has older data than at the last pass (a restored backup, or a cache on the way?): all of "
            "this tree was read again, and all that differs from this host is written again"
        )
    notes += outlook(draft.desired, draft.nova) if draft.plan.operations and not draft.beside else ()
    notes += draft.held
    notes += _lost_names(draft)
    notes += set_back(draft.said, draft.desired)
    notes += misspelt(draft.strays, draft.desired)
    novas = () if draft.beside else stranded(draft.observed, draft.ours)
    notes += [advice(seen) for seen in novas if open_stock(seen)]
    if draft.plan.left_out:
        notes.append("this placement is too old to know the traits " + ", ".join(sorted(draft.plan.left_out)))
    if kept := _unexplained(draft):
        lost = "" if draft.went_back else "the saved state of this agent was lost; "
        notes.append(f"{lost}the root keeps {', '.join(kept)}, which another service may have added")
    return tuple(notes)


def _twice(draft: Draft) -> tuple[str, ...]:
    """Return why devices would be on offer twice: the root has classes of unknown origin that children are to get."""
    if draft.beside:
        return twice_on_root(draft.observed, draft.desired)
    root = draft.observed.root
    if root is None:
        return ()
    carried = root.provider.inventories.keys() - draft.ours.classes(root)  # what is wanted on the root is ours
    children = [provider for provider in draft.desired if provider.parent]
    both = sorted(name for name in carried if any(name in provider.inventories for provider in children))
    if not both:
        return ()
    return (
        f"{root.name} has {', '.join(both)}, and this agent does not know whether it reported this itself. The plan "
        f"adds {', '.join(both)} to child providers too: if both stand for the same devices, remove {', '.join(both)} "
        f"from {root.name} by hand",
    )


def _renamed_unseen(draft: Draft) -> tuple[str, ...]:
    """
    Return why a class of unknown origin may be the old name of a new class; empty: there is none.

    With a memory there is one only if, since then, a class of devices went from the root and another came to it: the
    memory is of an earlier moment. Where CPUs or memory went too, somebody replaced the whole inventory: that is
    written again.
    """
    root, left = draft.observed.root, draft.memory.observed
    if root is None or MARKER not in root.provider.traits or draft.beside:
        return ()
    stands = {name for seen in draft.observed for name in seen.provider.inventories}
    came = sorted({name for one in draft.desired for name in one.inventories} - stands - NO_DEVICES)
    before = left.root.provider.inventories.keys() if left and left.root else set()
    carried = sorted(root.provider.inventories.keys() - draft.ours.classes(root) - before)
    gone = before - root.provider.inventories.keys()
    if not (came and carried) or (left and (not gone or gone & NO_DEVICES)):
        return ()
    old, new = ", ".join(carried), ", ".join(came)
    return (
        f"the saved state of this agent was lost, or is of an earlier moment, and {root.name} has {old}, which may be "
        f"the old name of {new}. Write {old} instead of {new} into the configuration for one pass, so that the agent "
        f"records {old} as its own. Then write {new} again. Or, if you are sure that {old} and {new} stand for the "
        f"same devices, remove {old} from {root.name} by hand",
    )


def _converts_while_awaiting(draft: Draft) -> tuple[str, ...]:
    """Return why a tree is not converted now: another layout has no place for devices that are out of sight."""
    if draft.beside or not draft.awaited or draft.stands_in == draft.layout:
        return ()
    return (
        f"devices are awaited since this host was booted, and a conversion from {draft.stands_in} to {draft.layout} "
        f"would forget them: start what sets them up, or wait until [agent] expect_timeout is over (0: no wait). "
        f"Nothing is written meanwhile, so what is missing is not reserved either: guests may be sent to it",
    )


def _converts_while_undecided(draft: Draft) -> tuple[str, ...]:
    """Return why a total on the root is not divided now: what odd devices are of it has no place below the root."""
    root = draft.observed.root
    if draft.beside or not root or not draft.holdings.odd or draft.stands_in != "flat" or draft.layout == "flat":
        return ()
    if not device_classes(root.provider.inventories.keys() & draft.ours.classes(root)):
        return ()
    return (
        f"devices are undecided, and a conversion from flat to {draft.layout} would forget them: repair or reset them "
        f"first ({'; '.join(draft.holdings.odd.values())}), or take them away by --force",
    )


def _lost_settings(draft: Draft, free_ratios: frozenset[str]) -> tuple[str, ...]:
    """Return why the plan would lose what an operator set by hand; empty when it loses nothing."""
    ours, files = draft.ours, draft.meanwhile.configured
    owned = {seen.name for seen in draft.observed if ours.writes(seen)}
    apart = {name: names.classes for name, names in files.items()}
    for seen in draft.observed:
        apart[seen.name] = apart.get(seen.name, frozenset()) | (seen.provider.inventories.keys() - ours.classes(seen))
    return lost_settings(
        draft.said,
        draft.desired,
        owned,
        free_ratios,
        elsewhere=draft.elsewhere,
        away=draft.away,
        apart=apart,
    )


def _lost_names(draft: Draft) -> tuple[str, ...]:
    """
    Return which traits and aggregates of a hand a conversion loses, and what to do; empty when it loses none.

    Without a memory nothing tells which traits rules and files gave, so that only aggregates count.
    """
    if draft.beside or draft.stands_in == draft.layout:
        return ()
    sentences, stands = [], draft.observed.by_uuid
    for seen in (stands[step.uuid] for step in draft.plan.operations if isinstance(step, Delete)):
        if is_novas(seen) or (HELD in seen.provider.traits and seen.name not in draft.present):
            continue  # nova sets these by its own rules; the other one stands for a lost device, and goes with it
        found = seen.provider.traits - draft.ours.traits(seen) - {OWNER_NOVA, MANAGED} if draft.memory.observed else ()
        if names := sorted({name for name in found if not is_mark(name)} | seen.provider.aggregates):
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


def _unplaceable(draft: Draft) -> tuple[str, ...]:
    return (draft.unplaceable,) if draft.unplaceable else ()


def _needs_reshape(draft: Draft, node: str) -> tuple[str, ...]:
    count = len({move.consumer for move in draft.plan.moves})
    return (
        f"the tree of {node} changes its shape, so the allocations of {count} consumer{'s' * (count > 1)} must move: "
        f"look at the plan with compute-node-agent reshape, and carry the plan out with --apply, or set [compute] "
        f"layout back",
    )


def _count_strikes(draft: Draft, wishes: Wishes, now_s: float, interval_s: float) -> NodeState:
    """
    Return the memory with this pass counted: a strike for a sign of a second writer, or a quiet pass.

    Enough quiet passes forgive the strikes if enough time went by too: events bring on many passes within a minute,
    between two writes of a service that writes once a minute.
    """
    memory = draft.memory
    if wishes.take_over:
        return replace(memory, strikes=0, quiet=0)
    if draft.contest:
        return replace(memory, strikes=memory.strikes + 1, struck_s=now_s, quiet=0)
    if not memory.strikes:
        return memory
    forgiven = memory.quiet + 1 >= FORGIVEN and now_s - memory.struck_s >= FORGIVEN * interval_s
    return replace(memory, strikes=0 if forgiven else memory.strikes, quiet=0 if forgiven else memory.quiet + 1)


def _contested(draft: Draft, wishes: Wishes) -> tuple[str, ...]:
    """Return why the agent must not write beside a second writer; empty without one, or if a person took over."""
    if wishes.take_over:
        return ()
    found, before = draft.contest, draft.memory.contested
    if found is None or not (found.nova or before or draft.memory.strikes):
        return before
    who = "nova-compute (by its trait OWNER_NOVA)" if found.marked else "another service"
    end = "find out which service does that, and let it leave this provider alone" if draft.beside else _STOP
    return (
        f"{who} writes on {found.provider} too: " + "; ".join(found.changes),
        f"nothing is written any more: {end}, then run sync --take-over",
    )


def _novas(draft: Draft, wishes: Wishes) -> tuple[str, ...]:
    """Return why a root that nova reports is not written; empty when it may be, or nothing is to be written."""
    if wishes.take_over or draft.beside or not draft.plan.operations:
        return ()
    return against_writing(draft.desired.root.name, draft.nova, draft.memory.taken_over)


def _unexplained(draft: Draft) -> list[str]:
    """Return custom names of unknown origin on a root with our mark; empty while there is a memory."""
    root = draft.observed.root
    if root is None or draft.memory.observed is not None or MARKER not in root.provider.traits:
        return []
    wanted = draft.desired.root.traits | draft.desired.root.inventories.keys()
    names = root.provider.traits | root.provider.inventories.keys()
    return sorted(name for name in names - wanted if name.startswith("CUSTOM_"))


def _limits(draft: Draft, shrink_fraction: float) -> Limits:
    withdrawn = {
        provider: names.classes - draft.lasting.configured.get(provider, Names()).classes
        for provider, names in draft.memory.configured.items()
    }
    root = draft.desired.root.name
    if SHARER in draft.desired.root.traits:  # the storage that it shares has that stock
        withdrawn[root] = withdrawn.get(root, frozenset()) | {DISK}
    for provider, classes in excused(draft.observed, draft.desired, shrink_fraction).items():
        withdrawn[provider] = withdrawn.get(provider, frozenset()) | classes
    return Limits(fraction=shrink_fraction, withdrawn=withdrawn, present=draft.present)
