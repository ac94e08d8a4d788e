"""Print what the verbs found as trees and tables for people: in colour on a terminal, plain in a pipe."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from agent.allocations.operations import Ending
from agent.audit.heal import UNASKED, UNLISTED, Healed
from agent.command.changes import stock_of
from agent.command.plan_results import DesiredTree, ShownTree
from agent.command.results import (
    Adoption,
    Audit,
    AuditedFinding,
    Bundle,
    Checks,
    ExplainedProvider,
    ExplainedRequest,
    Journal,
    Recorded,
    ShownStatus,
    Upgrade,
    Usages,
    Written,
)
from agent.command.screen import LONG, SHOWN_GUESTS, Screen
from agent.command.wording import alike, counted, families, grouped, guest, written_amounts
from agent.sync.json_form import by_consumer
from agent.sync.outcome import Condition
from reportclient.allocations import Allocation, usages
from reportclient.tree import ObservedProvider, Provider

Used = Mapping[tuple[str, str], int]  # sums of allocations, by provider and class


def print_tree(out: Screen, tree: DesiredTree) -> None:
    """Print a desired tree."""
    _print_providers(out, tree.providers, {}, {}, ())


def _print_providers(
    out: Screen,
    providers: Mapping[str, Provider],
    observed: Mapping[str, ObservedProvider],
    used: Used,
    conditions: Iterable[Condition],
) -> None:
    """Print providers below their parents; of those in ``observed`` also uuid, generation and use."""
    texts: dict[str, list[str]] = {}
    for one in conditions:
        texts.setdefault(one.provider if one.provider in providers else "", []).append(one.text)
    branches: dict[str | None, Tree] = {}
    groups = _alike(providers, used) if len(providers) > LONG and not out.whole else {}
    for name, provider in providers.items():
        seen, group = observed.get(name), groups.get(name, [name])
        if name != group[0]:
            continue
        identity = f"  {seen.uuid}  generation {seen.generation}" if seen and len(group) == 1 else ""
        label = Text.assemble((alike(group), "bold"), (identity, "dim"))
        above = branches.get(provider.parent)
        branches[name] = Tree(label) if above is None else above.add(label)
        for text in stock_of(provider, None if seen is None else used):
            branches[name].add(Text(text))
        for family, names in families(sorted(provider.traits)):
            branches[name].add(Text.assemble((family, "cyan"), names))
        for aggregate in sorted(provider.aggregates):
            branches[name].add(Text(f"aggregate {aggregate}", "dim"))
        for text in dict.fromkeys((*texts.get(name, ()), *(texts.get("", ()) if provider.parent is None else ()))):
            branches[name].add(Text(text, "yellow"))
    for name, provider in providers.items():
        if provider.parent is None:
            out.print(branches[name])
    if any(len(group) > 1 for group in groups.values()):
        out.print(Text("those alike are one branch: --all shows each", "dim"))


def _alike(providers: Mapping[str, Provider], used: Used) -> dict[str, list[str]]:
    """Return by each name the siblings without children that differ by their name alone, itself among them."""
    above = {one.parent for one in providers.values()}
    keyed = (
        (None if name in above else (one.parent, (*stock_of(one, used),), one.traits, one.aggregates), name)
        for name, one in providers.items()
    )
    return {name: group for group in grouped(keyed) for name in group}


def print_shown(out: Screen, data: ShownTree) -> None:
    """Print a tree and its allocations; nothing where placement has no such tree."""
    observed = data.observed.tree.by_name
    if observed:
        providers = {name: seen.provider for name, seen in observed.items()}
        _print_providers(out, providers, observed, usages(data.observed.allocations), data.conditions)
        _print_allocations(out, data.observed.allocations, data.names)


def _print_allocations(out: Screen, held: Iterable[Allocation], names: Mapping[str, str]) -> None:
    """Print what each consumer holds where; many consumers that hold the same in one line, with their names."""
    allocations = by_consumer(held)
    if not allocations:
        out.print("no allocations")
        return
    lines = {
        consumer: tuple(f"{written_amounts(resources)} on {provider}" for provider, resources in providers.items())
        for consumer, providers in allocations.items()
    }
    each = out.whole or len(allocations) <= SHOWN_GUESTS
    out.print(Text(f"{counted(len(allocations), 'consumer')} with allocations", "bold"))
    for several in grouped((None if each else what, consumer) for consumer, what in lines.items()):
        told = [names.get(one, one) for one in several] if len(several) > 1 else [guest(several[0], names)]
        out.print(Text(alike(told), "bold"), soft_wrap=True)
        for line in lines[several[0]]:
            out.print(Padding(Text(line), (0, 0, 0, 2)))


def print_recorded(out: Screen, data: Recorded) -> None:
    """Print where a host archive was written."""
    out.print(f"recorded this host in {data.directory}: {data.files} files")


def print_ending(out: Screen, data: Ending) -> None:
    """Print how an operation on one consumer ended, and the allocations that the consumer has now."""
    out.print(f"{data.consumer}: {data.told.value}")
    for uuid, amounts in sorted(data.held.items()):
        out.print(f"  {written_amounts(amounts)} on {uuid}")
    if not data.held:
        out.print("  holds nothing")


def print_findings(out: Screen, data: Audit) -> None:
    """Print how many findings of which kinds there are, and those about one consumer or provider together."""
    subjects: dict[str, dict[str, list[AuditedFinding]]] = {}
    for one in data.findings:
        about = one.finding.consumer or one.finding.provider or ""
        subjects.setdefault(about, {}).setdefault(one.finding.kind.value, []).append(one)
    if not subjects:
        depth = " (only providers whose generation changed were read)" if data.light else ""
        young = f", but for {counted(len(data.young), 'consumer')} too young to be judged" if data.young else ""
        out.print(
            f"nothing found: placement's allocations agree with the guests that the hypervisor runs{young}{depth}"
        )
        return
    kinds = Counter(kind for by_kind in subjects.values() for kind in by_kind)
    total = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    consumers = {one.finding.consumer for one in data.findings if one.finding.consumer}
    sums = (counted(len(consumers), "consumer"), counted(len(subjects) - len(consumers), "provider"))
    out.print(Text(f"{total}: about {' and '.join(one for one in sums if not one.startswith('0'))}", "bold"))
    for subject, by_kind in subjects.items():
        out.print(Text.assemble((guest(subject, data.names), "bold")), soft_wrap=True)
        for kind, several in by_kind.items():
            out.print(Text.assemble("  ", (kind, "bold"), (f" since {several[0].since}", "dim")))
            _print_subject(out, several)


def _print_subject(out: Screen, several: list[AuditedFinding]) -> None:
    """Print amounts and observations of the findings of one kind about one subject, and how they are mended."""
    lines = []
    for one in (each.finding for each in several):
        resource_class = one.resource_class or ""
        where = f"{resource_class} on {one.provider}" if one.consumer else resource_class
        if one.expected is not None:
            lines.append(Text(f"{where.strip()}: {one.actual}, should be {one.expected}"))
    lines += [Text(seen, "dim") for seen in dict.fromkeys(one.finding.seen for one in several)]
    first, why = several[0].finding, several[0].why
    if first.repair:
        doing = {Healed.HEALED: "done", Healed.FAILED: f"failed: {why}"}.get(several[0].outcome, why)
        lines.append(Text(f"repair: {first.repair.text} ({doing})"))
        lines += [Text(f"it writes: {_written(uuid, one)}") for uuid, one in several[0].writes.items()]
    else:
        lines.append(Text(why))
    if first.repair and first.safe and why in (UNASKED, UNLISTED):
        lines.append(
            Text(f"to mend it: compute-node-agent audit --heal --policy FILE, with heal: [{first.kind.value}]")
        )
    for line in lines:
        out.print(Padding(line, (0, 0, 0, 4)))


def _written(consumer: str, one: Written) -> str:
    """Return what a repair makes of a consumer."""
    kept = [f"{written_amounts(resources)} on {place}" for place, resources in one.allocations.items()]
    owner = f"project {one.project}, user {one.user}, {one.type or 'no type'}"
    return f"{consumer} ({owner}) has {', '.join(kept) or 'nothing'}"


def print_journal(out: Screen, data: Journal) -> None:
    """Print the conversions of a host, one line each."""
    if not data.conversions:
        out.print("no conversion")
        return
    columns = (Column("began"), Column("node"), Column("from"), Column("to"), Column("consumers", justify="right"))
    table = Table(*columns, Column("digest"), Column("outcome"), box=None, pad_edge=False)
    for one in data.conversions:
        row = (one.began[:19], one.node, one.layout, one.target, str(one.consumers), one.digest)
        table.add_row(*map(Text, (*row, one.outcome)))
    out.print(table)


def print_status(out: Screen, data: ShownStatus) -> None:
    """Print what the service last wrote about itself: a sentence, its sources with their age, outcomes and notes."""
    now, status = time.time(), data.status
    sentence = status.sentence()
    if not status.is_running:
        sentence = f"not running; its last status: {sentence}"
    elif status.is_late:
        sentence = (
            f"late: status.json is {status.age_s:.0f} s old, as the service hangs or cannot write it: look at its log; "
            f"its last status: {sentence}"
        )
    well = status.is_ready and status.is_running and not status.is_late
    out.print(sentence, style="bold" if well else "bold red", highlight=False)
    table = Table("source", "last answered", "now", box=None)
    for name, source in status.sources.items():
        table.add_row(name, f"{now - source.ok_s:.0f} s ago" if source.ok_s else "never", source.error or "ok")
    if status.sources:
        out.print(table)
    for node, outcome in status.outcomes.items():
        out.print(f"{node}: {outcome}")
    for note in status.notes:
        out.print(f"  {note}")
    for case in data.cases:
        out.print(f"case: {case} (plan --replay repeats it)", markup=False, highlight=False, soft_wrap=True)
    for approval in data.approvals:
        out.print(approval, markup=False, highlight=False)
    if status.last_pass_s:
        out.print(f"last pass {now - status.last_pass_s:.0f} s ago, in {status.took_s:.2f} s", highlight=False)
    out.print(f"pid {status.process.pid}, version {status.process.version}", highlight=False)


def print_usages(out: Screen, data: Usages) -> None:
    """Print what a project, or one user of it, uses, by consumer type."""
    whose = f"project {data.project}" + (f", user {data.user}" if data.user else "")
    table = Table("type", "class", Column("used", justify="right"), box=None)
    for kind, sums in data.usages.items():
        for name, amount in sums.items():
            table.add_row(kind or "-", name, str(amount))
    out.print(whose if data.usages else f"{whose}: uses nothing (give the id of a project or user, not its name)")
    if data.usages:
        out.print(table)


def print_reasons(out: Screen, data: ExplainedProvider) -> None:
    """Print each class and trait of a provider with its fact and its rule."""
    under = f" under {data.parent}" if data.parent else ""
    counted = f"; its inventory is reported on {data.counted_in} ([compute] layout = flat)" if data.counted_in else ""
    left = f"; {data.left_to} reports it" if data.left_to else ""
    out.print(Text.assemble((data.provider, "bold"), f"{under}{counted}{left}"))
    for one in data.reasons:
        stock = one.inventory
        what = f": total {stock.total}, reserved {stock.reserved}, ratio {stock.allocation_ratio:g}" if stock else ""
        out.print(Text.assemble("  ", (one.name, "bold"), what))
        out.print(Text(f"    fact: {one.fact}"))
        out.print(Text(f"    rule: {one.rule}"))
    for condition in data.conditions:
        out.print(Text(f"  {condition.text}", "yellow"))


def print_adoption(out: Screen, data: Adoption) -> None:
    """Print the root providers that may be this host's, and the chosen one."""
    table = Table(
        "", Column("root provider", overflow="fold"), "name", Column("providers", justify="right"), "guests", box=None
    )
    for one in data.found:
        name = f"{one.name} (this host's)" if one.named_alike else one.name
        guests = f"{one.guests} of {data.guests}"
        table.add_row("->" if one.uuid == data.chosen else "", one.uuid, name, str(one.providers), guests)
    if data.found:
        out.print(table)
    if data.chosen:
        out.print(f"{data.chosen}: {data.why}")
    if data.written:
        out.print(f"written to {data.path}: the next pass finds its tree")


def print_bundle(out: Screen, data: Bundle) -> None:
    """Print what a bundle has inside."""
    table = Table("part", "files", Column("KiB", justify="right"), box=None)
    for part in data.parts:
        names = [*part.files]
        several = f"{names[0].rpartition('/')[0]}/: {len(names)} files" if len(names) > 1 else "".join(names)
        size = f"{sum(part.files.values()) / 1024:.0f}" if names else ""
        table.add_row(part.what, Text(several) if names else Text(f"missing: {part.missing}", "yellow"), size)
    out.print(table)
    out.print(f"{'written to' if data.written else 'not written:'} {data.path}; without secrets, names are as they are")


def print_candidacy(out: Screen, data: ExplainedRequest) -> None:
    """Print who gives what for a request, or what is missing."""
    known = {
        True: ("is a candidate", "green"),
        False: ("is no candidate", "bold red"),
        None: ("may be a candidate: placement has none without what other hosts share", ""),
    }
    verdict, style = known[data.candidate]
    if data.candidate is None and data.refusal:
        verdict = "may be a candidate: this placement cannot be asked about one host"
    refusal = f"placement refuses what was asked: {data.refusal}" if data.refusal else ""
    out.print(Text.assemble((data.node, "bold"), " ", (verdict, style)), refusal)
    for provider, resources in data.gives.items():
        out.print(Text.assemble("  ", (provider, "bold"), f" gives {written_amounts(resources)}"))
    for one in data.missing:
        out.print(Text.assemble("  ", (str(one.wish), "bold"), f": {one.why}"))


def print_checks(out: Screen, data: Checks) -> None:
    """Print a table of checks."""
    verdicts = {True: Text("ok", "green"), False: Text("FINDING", "bold red")}
    _print_verdicts(out, "", ((one.check, verdicts[one.ok], one.detail) for one in data.checks))


def print_upgrade(out: Screen, data: Upgrade) -> None:
    """Print a table of checks before an upgrade."""
    styles = {"success": "green", "warning": "yellow", "failure": "bold red"}
    rows = ((one.check, Text(one.result, styles[one.result]), one.detail) for one in data.checks)
    _print_verdicts(out, "result", rows)


def _print_verdicts(out: Screen, heading: str, rows: Iterable[tuple[str, Text, str]]) -> None:
    table = Table("check", heading, "what was found", box=None)
    for check, verdict, detail in rows:
        table.add_row(check, verdict, Text(detail))
    out.print(table)
