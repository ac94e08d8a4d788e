"""The verbs for a hypervisor: each takes the parsed options and returns a ``Report``."""

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from agent.command.changes import Forecast, names_of
from agent.command.check import doubts
from agent.command.exits import Exit
from agent.command.picture.subjects import of_conversion, of_standing
from agent.command.result import (
    ENDINGS,
    Report,
    agreed,
    asks,
    choice_of,
    configured_layout,
    open_host,
    placement_of,
    settings_of,
    whole,
    wishes_of,
)
from agent.command.shown import (
    encode_forecast,
    encode_outcome,
    encode_reserving,
    forecast_lines,
    outcome_lines,
    standing_lines,
    tree_lines,
)
from agent.command.trial import check_trial, confirm_trial, how_to_keep
from agent.command.verbs import VERBS
from agent.command.wording import columns
from agent.connect.adapters import api_in_the_way
from agent.connect.choice import open_client, open_driver, read_host
from agent.errors import USER_ERRORS, ConfigError
from agent.state.identity import parse_identity, planned_identity, read_identity
from agent.state.locks import locked
from agent.sync.approvals import approve, withdraw
from agent.sync.convert import Agreement, convert, convert_approved
from agent.sync.decide.additions import add
from agent.sync.decide.checks import Verdict, conditions_on, judge
from agent.sync.decide.feature import Draft
from agent.sync.decide.reserving import reservation_notes
from agent.sync.decide.undoing import Conversion
from agent.sync.decide.view import Wishes
from agent.sync.journal import kept_conversions, read_journal
from agent.sync.json_form import Form, encode
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.node import ComputeNode, conditions_left
from agent.sync.outcome import Condition, Outcome, Status
from agent.sync.pool_node import pool_nodes
from agent.sync.provider_yaml import read_additions
from agent.sync.run import foresee, run_pass
from drivers.errors import DiscoveryError
from reportclient.allocations import Observed
from reportclient.errors import PlacementError
from reportclient.plan import Delete
from reportclient.recording import Unrecorded
from reportclient.tree import ObservedTree


def discover(options: argparse.Namespace) -> Report:
    """Report the desired tree of this host; needs no placement."""
    choice = choice_of(options)
    settings = settings_of(options)
    with open_driver(settings, choice) as driver:
        additions = read_additions(settings.operator_files.folder, required=settings.operator_files.named)
        node, survey = read_host(driver, choice)
        tree, holdings = driver.shape(survey, settings.policy, None)
    told = survey.compute_id and parse_identity(survey.compute_id, "compute_id of the host archive")
    identity = told if settings.recorded else read_identity(settings.folders.identity)
    tree, _ = add(tree, identity or planned_identity(node), additions)
    remarks = [
        *holdings.of_guests,
        *holdings.lacking,
        *holdings.notes,
        *survey.facts.disk_unread,
        *doubts(settings, survey),
        *holdings.backing.odd.sentences.values(),
    ]
    providers = {one.name: one for one in tree}
    lines = tree_lines(providers, whole=whole(options))
    return Report(data={"providers": providers}, lines=lines, remarks=remarks)


def show(options: argparse.Namespace) -> Report:
    """Report the tree that placement holds under this host's name, or with --project what a project uses."""
    if options.project:
        return show_usages(options)
    with open_host(options) as one:
        if options.node not in (None, one.name):
            raise ConfigError(f"--node {options.node}: this agent reports no such node")
        standing = one.client.find(one.name)
        observed = one.client.observe(standing) if standing else ObservedTree()
        held = one.client.allocations(observed)
        names, remarks = dict[str, str](), list[str]()
        try:
            names = names_of({each.consumer for each in held}, one.survey()) if standing else {}
        except DiscoveryError as error:
            remarks.append(f"guests are shown without names, as this host cannot be read: {error}")
        conditions = conditions_left(one.settings, standing, one.where) if standing else ()
    report = report_standing(one.name, Observed(observed, held), names, conditions, whole=whole(options))
    return replace(report, remarks=[*report.remarks, *remarks])


def report_standing(
    node: str, shown: Observed, names: Mapping[str, str], conditions: Collection[Condition], *, whole: bool
) -> Report:
    """Report what placement holds of a node, with the names of its guests; an error where that is nothing."""
    missing = [] if shown.tree.root else [f"placement has no provider {node}: run compute-node-agent sync first"]
    return Report(
        data={**encode(shown), "names": names, "conditions": conditions},
        lines=standing_lines(shown, names, conditions, whole=whole),
        exit=Exit.ERROR if missing else Exit.DONE,
        remarks=missing,
        subjects=() if missing else [of_standing(shown, names)],
    )


def show_usages(options: argparse.Namespace) -> Report:
    """Report what a project, or one user of it, uses in the whole placement."""
    client, _ = placement_of(options)
    usages = client.usages(options.project, options.user)
    whose = f"project {options.project}" + (f", user {options.user}" if options.user else "")
    rows = [(kind or "-", name, str(amount)) for kind, sums in usages.items() for name, amount in sums.items()]
    nothing = "" if rows else ": uses nothing (give the id of a project or user, not its name)"
    return Report(
        data={"project": options.project, "user": options.user, "usages": usages},
        lines=[whose + nothing, *columns(rows, heads=("type", "class", "used"))],
    )


def plan(options: argparse.Namespace) -> Report:
    """Report what a pass would change; write nothing to placement."""
    wishes = wishes_of(options)
    reports: list[Report] = []
    with open_host(options) as host:
        for one in (*pool_nodes(host), host):
            draft, verdict, said = _look(one, wishes, options)
            doing = "stop here" if verdict.refused is Status.RESHAPE_NEEDED else "refuse this"
            reserved = reservation_notes(verdict.reserving, draft.observed)
            remarks = [
                *said,
                *(f"sync would {doing}: {note}" for note in verdict.notes),
                *(f"sync would do this all the same: {note}" for note in reserved),
            ]
            if draft.root_uuid == planned_identity(one.name) and not one.settings.recorded:
                remarks.append(f"{one.name} has no compute_id yet: the uuid is a stand-in, sync makes the real one")
            reports.append(_foreseen(draft, verdict, options, remarks))
    return _together(reports, "plans")


def reshape(options: argparse.Namespace) -> Report:
    """Report the plan of a conversion; with --apply carry it out, with --approve approve it, or withdraw approvals."""
    if options.withdraw:
        return _withdraw(options)
    if options.confirm:
        return confirm_trial(options)
    if options.apply:
        return _convert(options)
    wishes = replace(wishes_of(options), reshape=True)
    api = _refused_by_api(options)
    remarks = [f"{options.verb} --apply would refuse this: {api}"] if api else []
    with open_host(options) as one:
        draft, verdict, said = _look(one, wishes, options, agreed=True)
        doing = "approve" if options.approve else "apply"
        remarks += [*said, *(f"{options.verb} --{doing} would refuse this: {note}" for note in verdict.notes)]
        approval = "refused" if options.approve else None
        if options.approve and verdict.refused is None:
            approval, remark = _approve(one, draft, options.digest)
            remarks.append(remark)
    against = verdict.refused is not None and not options.approve
    exactly = f"to carry out exactly this, add --apply --digest {draft.plan.digest}"
    agreed = "a case only shows what would be done" if getattr(options, "case", None) else exactly
    step = approval or (f"{options.verb} --apply would refuse this" if against else agreed)
    shown = _foreseen(draft, verdict, options, remarks, step)
    answer: Form = {"approval": approval} if approval else {"refused": True} if against else {}
    shown = replace(shown, data={**shown.data, **answer})
    if approval == "refused" or against:
        return replace(shown, exit=Exit.REFUSED)
    if not options.approve:
        return shown
    return replace(shown, exit=Exit.DONE, remarks=[*remarks, *_to_configure(options)])


def _to_configure(options: argparse.Namespace) -> list[str]:
    """Return that the layout of --to has to be configured, and when and why; empty: there is no need to."""
    if options.to in (None, configured_layout(options)):
        return []
    when = "before the service makes its next pass: otherwise that pass wants the configured layout back"
    if options.approve:
        when = "before the service starts the next time: otherwise the approved plan is not carried out"
    return [f"set [compute] layout = {options.to} {when}"]


def _approve(node: ComputeNode, draft: Draft, digest: str) -> tuple[str, str]:
    """Approve the current plan if it has this digest; return "approved", "refused" or "not-needed", and a sentence."""
    if not draft.plan.moves:
        return "not-needed", f"no allocation has to move on {node.name}: the next pass does this without an approval"
    if other := Agreement(digest, again="nothing was approved")(node, draft):
        return "refused", other[0]
    if draft.plan.digest != digest:  # the rest of it: the approval stands
        return "approved", f"the plan {digest} for {node.name} was begun, and its rest is still approved"
    with locked(node.settings.folders.state):
        approve(node, draft)
    return "approved", (
        f"approved: the plan {digest} for {node.name} is carried out before the service starts the next time; "
        "reshape --withdraw takes that back"
    )


def _withdraw(options: argparse.Namespace) -> Report:
    """Withdraw the approvals of this host; host and placement need not answer for that."""
    directory = settings_of(options).folders.state
    with locked(directory):
        gone, begun = withdraw(directory)
    lines = [f"withdrawn: {path}" for path in gone]
    remarks = [
        f"the conversion of {one.node} was begun, so its approval stays: complete it with reshape --apply --digest "
        f"{one.digest}, or look at undo"
        for _, one in begun
    ]
    return Report(
        data={"withdrawn": gone, "begun": [path for path, _ in begun]},
        lines=lines or ([] if begun else ["no approval to withdraw"]),
        exit=Exit.REFUSED if begun else Exit.DONE,
        remarks=remarks,
    )


def _refused_by_api(options: argparse.Namespace) -> str:
    """Return why the database of --database must not be written, as its API may run; empty: it may be."""
    if options.database is None:
        return ""
    return api_in_the_way(settings_of(options), said_down=options.api_is_down)


def _convert(options: argparse.Namespace) -> Report:
    """Convert this host as planned now, or only by the plan of --digest, or with --approved by the approved plan."""
    if api := _refused_by_api(options):
        with open_driver(settings_of(options), choice_of(options)) as driver:
            refused = Outcome(node=driver.name(), status=Status.UNSAFE, reasons=(api,))
        return _ended(refused, options, with_plan=False)
    wishes = replace(wishes_of(options), reshape=not options.approved, agreed=options.digest)
    check_trial(options, wishes)
    act = convert_approved if options.approved else convert
    with open_host(options, writes=True) as one:
        outcome = act(one, wishes)
        is_shown = options.format == "table" or options.picture
        if is_shown and outcome.status is Status.CHANGED and outcome.allocations is None:
            outcome = _with_allocations(one, outcome)
    report = _ended(outcome, options, with_plan=not options.approved)
    well = report.exit is Exit.DONE
    drawn = []
    if options.picture:
        became = Forecast.of(outcome.plan, outcome.observed, outcome.allocations or (), outcome.survey)
        drawn = [replace(of_conversion(became, () if well else outcome.notes), node=outcome.node)]
    remarks = ["take it back with: compute-node-agent undo"] if outcome.status is Status.CHANGED else []
    if well and not wishes.undone and (until := how_to_keep(one)):
        remarks.append(until)
    else:
        remarks = [*_to_configure(options), *remarks]
    return replace(report, remarks=remarks if well else (), subjects=drawn)


def _with_allocations(node: ComputeNode, outcome: Outcome) -> Outcome:
    """Add the allocations to a conversion that moved none, so that its plan is shown as it was before."""
    gone = {step.uuid for step in outcome.plan.operations if isinstance(step, Delete)}  # nobody had anything there
    with suppress(PlacementError):  # the conversion is done, whatever can be shown of it
        return replace(
            outcome, allocations=node.client.allocations(seen for seen in outcome.observed if seen.uuid not in gone)
        )
    return outcome


def sync(options: argparse.Namespace) -> Report:
    """Run one pass over this host, and over the pool that its agent reports; one that fails does not stop the other."""
    wishes = wishes_of(options)
    outcomes, remarks = list[Outcome](), list[str]()
    with open_host(options, writes=True) as host:
        nodes = (*pool_nodes(host), host)
        for one in nodes:
            try:
                outcomes.append((convert if one.settings.changes.allow_reshape else run_pass)(one, wishes))
            except USER_ERRORS as error:
                if len(nodes) == 1:
                    raise
                outcomes.append(Outcome(node=one.name, status=Status.FAILED, reasons=(str(error),)))
            remarks += doubts(one.settings, outcomes[-1].survey)
    return replace(_together([_ended(one, options) for one in outcomes], "nodes"), remarks=remarks)


def undo(options: argparse.Namespace) -> Report:
    """Report the plan that takes the last conversion back; with --apply carry it out, with --list list conversions."""
    settings = settings_of(options)
    _, where = open_client(settings, choice_of(options))
    entries = kept_conversions(read_journal(settings.folders.state, where))
    if options.list:
        return _listed(entries[::-1])
    if not entries:
        nothing = f"nothing to take back: {settings.folders.state}/journal has no conversion in {where}"
        return replace(_listed(()), exit=Exit.REFUSED, remarks=[nothing])
    undone = entries[-1]
    if settings.changes.allow_reshape and settings.policy.layout != undone.layout:
        raise ConfigError(
            f"[agent] allow_reshape is true, so the next pass would convert this host to {settings.policy.layout} "
            f"again: set [compute] layout = {undone.layout} first"
        )
    said = {"to": undone.layout, "undone": undone, "configured": settings.policy.layout, "settings": None}
    vars(options).update({**VERBS["reshape"].defaults(), **vars(options), **said})
    shown = reshape(options)
    name = f"takes back the conversion of {undone.began} from {undone.layout} to {undone.target}"
    return replace(shown, remarks=[name, *shown.remarks])


def retire(options: argparse.Namespace) -> Report:
    """Remove this host's tree from placement."""
    return _leaving(options, retire_node, "remove all this from placement?")


def hand_over(options: argparse.Namespace) -> Report:
    """Remove the agent's marks from this host's tree."""
    return _leaving(options, partial(hand_over_node, force=options.force), "hand this host over?")


def _leaving(options: argparse.Namespace, leave: Callable[..., Outcome], question: str) -> Report:
    """End a host under this agent, or show how; on a terminal only after a yes to what was shown."""
    no = False
    with open_host(options, writes=True) as one:
        shown = leave(one, dry=True) if options.dry_run or asks(options) else None
        refused = shown is not None and ENDINGS[shown.status] is not Exit.DONE
        planned = shown is not None and not refused and bool(shown.plan.operations)
        if shown and planned and not options.dry_run:
            no = not agreed(outcome_lines(shown), question)
        stays = shown if options.dry_run or refused or no else None
        report = _ended(stays or leave(one, agreed=shown.plan.digest if shown else None), options)
    return replace(
        report,
        data={**report.data, "dry_run": options.dry_run},
        lines=() if no else report.lines,
        exit=Exit.DIFFERENCES if stays and planned else report.exit,
        remarks=["nothing was written: --yes does it without this question"] if no else (),
    )


def _look(
    node: ComputeNode, wishes: Wishes, options: argparse.Namespace, *, agreed: bool = False
) -> tuple[Draft, Verdict, list[str]]:
    """Foresee a pass and judge it, with remarks on host and plan; ``agreed``: as if a person had named its digest."""
    draft = _with_use(node, foresee(node, wishes), options)
    with suppress(Unrecorded):
        node.check_name(draft)
    agreeing = replace(draft.view, wishes=replace(draft.view.wishes, agreed=draft.plan.digest))
    verdict = judge(replace(draft, view=agreeing) if agreed else draft)
    notes = dict.fromkeys(one.text for one in conditions_on(draft) if one.text not in verdict.notes)
    return draft, verdict, [*doubts(node.settings, draft.view.survey), *notes]


def _with_use(node: ComputeNode, draft: Draft, options: argparse.Namespace) -> Draft:
    """Add the allocations to a draft that is shown, but to a table without changes, which has no sums."""
    if draft.way.allocations or (options.format == "table" and not draft.plan.operations):
        return draft
    try:
        return replace(draft, way=replace(draft.way, allocations=node.client.allocations(draft.observed)))
    except Unrecorded:  # a case of the service has only what its pass read
        return draft


def _foreseen(
    one: Draft, verdict: Verdict, options: argparse.Namespace, remarks: Sequence[str], next_step: str = ""
) -> Report:
    """Report what a pass over one node would do, with its picture."""
    data = Forecast.of(one.plan, one.observed, one.way.allocations, one.view.survey)
    foreseen = {
        "node": one.view.node,
        "outcome": verdict.refused or (Status.CHANGED if one.plan.operations else Status.UNCHANGED),
        "layout": one.stands_in,
        "target": one.layout,
        "notes": verdict.notes,
        **encode_reserving(verdict.reserving, one.observed),
    }
    return Report(
        data={**encode_forecast(data), **foreseen},
        lines=forecast_lines(data, whole=whole(options), next_step=next_step),
        exit=Exit.DIFFERENCES if one.plan.operations else Exit.DONE,
        remarks=remarks,
        subjects=[of_conversion(data, verdict.notes)],
    )


def _ended(outcome: Outcome, options: argparse.Namespace, *, with_plan: bool = True) -> Report:
    """Report how the pass over one node ended."""
    lines = outcome_lines(outcome, whole=whole(options), with_plan=with_plan)
    return Report(data=encode_outcome(outcome), lines=lines, exit=ENDINGS[outcome.status])


def _together(reports: Sequence[Report], name: str) -> Report:
    """Return the report of a single node as it is, those of several as one, with a list of this name."""
    if len(reports) == 1:
        return reports[0]
    return Report(
        data={name: [one.data for one in reports]},
        lines=[line for one in reports for line in one.lines],
        exit=max(one.exit for one in reports),
        remarks=[remark for one in reports for remark in one.remarks],
        subjects=[subject for one in reports for subject in one.subjects],
    )


def _listed(conversions: Sequence[Conversion]) -> Report:
    """Report conversions; ``takes_back`` is the digest of the one that a conversion took back, None: it took none."""
    digests: dict[str | None, str] = {one.name: one.digest for one in conversions}
    keys = (
        "node",
        "began",
        "outcome",
        "layout",
        "target",
        "digest",
        "consumers",
        "path",
        "confirm_by_s",
        "trial_ended",
    )
    told = [{**{key: getattr(one, key) for key in keys}, "takes_back": digests.get(one.undoes)} for one in conversions]
    rows = [
        (one["began"][:19], one["node"], *(str(one[key]) for key in keys[2:7]), one["takes_back"] or "-", trial)
        for one, trial in zip(told, (each.trial_text for each in conversions), strict=True)
    ]
    heads = ("began", "node", "outcome", "from", "to", "digest", "consumers", "takes back", "on trial")
    return Report(data={"conversions": told}, lines=columns(rows, heads=heads) or ["no conversion"])
