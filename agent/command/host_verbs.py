"""The verbs for a hypervisor: each takes the parsed options and returns a ``Report``."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from agent.command.check import check_host
from agent.command.doubts import doubts
from agent.command.exits import Exit
from agent.command.explain import explain_provider
from agent.command.explain_request import explain_request, read_request
from agent.command.host_tables import (
    print_candidacy,
    print_checks,
    print_reasons,
    print_shown,
    print_tree,
    print_usages,
)
from agent.command.outcomes import (
    ENDINGS,
    ended,
    names_of,
    print_left,
    print_outcome,
    print_start,
    reserving_of,
    wishes_of,
)
from agent.command.picture.subjects import Subject, of_conversion, of_shown
from agent.command.plan_results import ApprovalAnswer, DesiredTree, Forecast, Foreseen, ShownTree, shown_plan
from agent.command.plan_tables import print_conversion, print_foreseen, print_withdrawn
from agent.command.result import Printer, Report, choice_of, open_host, placement_of, settings_of
from agent.command.results import Checks, Usages, Withdrawn
from agent.connect.adapters import ApiLook, look_for_placement
from agent.connect.choice import open_driver, read_host, settings_for
from agent.errors import USER_ERRORS, ConfigError
from agent.state.identity import parse_identity, planned_identity, read_identity
from agent.state.locks import locked
from agent.sync.convert import Agreement, convert, convert_approved, sync_node
from agent.sync.decide.additions import add
from agent.sync.decide.checks import Verdict, conditions_on, judge
from agent.sync.decide.feature import Draft
from agent.sync.decide.reserving import reservation_notes
from agent.sync.decide.view import Wishes
from agent.sync.journal import approve, withdraw
from agent.sync.leave import hand_over_node, retire_node
from agent.sync.node import ComputeNode, conditions_left
from agent.sync.outcome import Outcome, Status
from agent.sync.pool_node import pool_nodes
from agent.sync.provider_yaml import read_additions
from agent.sync.run import foresee
from drivers.base import Survey
from drivers.errors import DiscoveryError
from reportclient.allocations import Allocation, Observed, apply_moves
from reportclient.forecast import forecast
from reportclient.plan import Plan
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
        *doubts(settings, survey),
        *holdings.backing.odd.sentences.values(),
    ]
    return Report(data=DesiredTree({one.name: one for one in tree}), table=print_tree, remarks=remarks)


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
    shown = ShownTree(Observed(observed, held), names, conditions)
    if standing:
        return Report(data=shown, table=print_shown, remarks=remarks, subjects=[of_shown(shown)])
    remarks = [f"placement has no provider {one.name}: run compute-node-agent sync first"]
    return Report(data=shown, table=print_shown, exit=Exit.ERROR, remarks=remarks)


def show_usages(options: argparse.Namespace) -> Report:
    """Report what a project, or one user of it, uses in the whole placement."""
    client, _ = placement_of(options)
    usages = client.usages(options.project, options.user)
    return Report(data=Usages(options.project, options.user, usages), table=print_usages)


def plan(options: argparse.Namespace) -> Report:
    """Report what a pass would change; write nothing to placement."""
    wishes = wishes_of(options)
    records: list[Foreseen] = []
    remarks: list[str] = []
    with open_host(options) as host:
        for one in (*pool_nodes(host), host):
            draft, verdict, said = _look(one, wishes, options)
            records.append(_foreseen(one.name, draft, verdict))
            doing = "stop here" if verdict.refused is Status.RESHAPE_NEEDED else "refuse this"
            remarks += [*said, *(f"sync would {doing}: {note}" for note in verdict.notes)]
            reserved = reservation_notes(verdict.reserving, draft.observed)
            remarks += [f"sync would do this all the same: {note}" for note in reserved]
            if not draft.identified:
                remarks.append(f"{one.name} has no compute_id yet: the uuid is a stand-in, sync makes the real one")
    ending = Exit.DIFFERENCES if any(one.forecast.shown.plan.operations for one in records) else Exit.DONE
    return _foreseen_report(records, print_foreseen, ending, remarks)


def reshape(options: argparse.Namespace) -> Report:
    """Report the plan of a conversion; with --apply carry it out, with --approve approve it, or withdraw approvals."""
    if options.withdraw:
        return _withdraw(options)
    if options.apply:
        return _convert(options)
    wishes = replace(wishes_of(options), reshape=True)
    api = _look_for_api(options)
    remarks = [] if api.up is False else [f"{options.verb} --apply would refuse this: {api.told}"]
    with open_host(options) as one:
        draft, verdict, said = _look(one, wishes, options, agreed=True)
        doing = "approve" if options.approve else "apply"
        remarks += [*said, *(f"{options.verb} --{doing} would refuse this: {note}" for note in verdict.notes)]
        approval: ApprovalAnswer | None = "refused" if options.approve else None
        if options.approve and verdict.refused is None:
            approval, remark = _approve(one, draft, options.digest)
            remarks.append(remark)
    against = None if verdict.refused is None or options.approve else True
    record = replace(_foreseen(one.name, draft, verdict), approval=approval, refused=against)
    if approval == "refused" or against:
        ending = Exit.REFUSED
    elif not options.approve:
        ending = Exit.DIFFERENCES if draft.plan.operations else Exit.DONE
    else:
        ending = Exit.DONE
        remarks += _to_configure(
            options,
            "before the service starts the next time: otherwise the service plans with the configured layout, and "
            "refuses this plan",
        )
    return _foreseen_report([record], print_conversion, ending, remarks)


def _to_configure(options: argparse.Namespace, when: str) -> list[str]:
    """Return that the layout of --to has to be configured, and when and why; empty: there is no need to."""
    configured = settings_for(replace(choice_of(options), layout=None)).policy.layout
    if options.to in (None, configured):
        return []
    return [f"set [compute] layout = {options.to} in the configuration {when}"]


def _approve(node: ComputeNode, draft: Draft, digest: str) -> tuple[ApprovalAnswer, str]:
    """Approve the current plan if it has this digest; return the result and a sentence for it."""
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
        f"reshape --withdraw "
        "takes that back"
    )


def _withdraw(options: argparse.Namespace) -> Report:
    """Withdraw the approvals of this host; host and placement need not answer for that."""
    directory = settings_of(options).folders.state
    with locked(directory):
        gone, begun = withdraw(directory)
    data = Withdrawn(gone, tuple(path for path, _ in begun))
    remarks = [
        f"the conversion of {one.node} was begun, so its approval stays: complete it with reshape --apply --digest "
        f"{one.digest}, or look at undo"
        for _, one in begun
    ]
    ending = Exit.REFUSED if begun else Exit.DONE
    return Report(data=data, table=print_withdrawn, exit=ending, remarks=remarks)


def _look_for_api(options: argparse.Namespace) -> ApiLook:
    """Look whether a placement API serves the database of --database; without --database the answer is no."""
    if options.database is None:
        return ApiLook(False)
    found = look_for_placement(settings_of(options))
    return ApiLook(False) if found.up is None and options.api_is_down else found


def _convert(options: argparse.Namespace) -> Report:
    """Convert this host as planned now, or only by the plan of --digest, or with --approved by the approved plan."""
    api = _look_for_api(options)
    if api.up is not False:
        with open_driver(settings_of(options), choice_of(options)) as driver:
            refused = Outcome(node=driver.name(), status=Status.UNSAFE, reasons=(api.told,))
        return _ended_report([refused], print_start)
    wishes = replace(wishes_of(options), reshape=not options.approved, agreed=options.digest)
    act = convert_approved if options.approved else convert
    with open_host(options, writes=True) as one:
        outcome = act(one, wishes)
    report = _ended_report([outcome], print_start if options.approved else print_outcome)
    too = "too: otherwise the next pass plans the old layout again"
    remarks = _to_configure(options, too) if report.exit is Exit.DONE else ()
    drawn = [_converted(outcome)] if options.picture else []
    return replace(report, remarks=remarks, subjects=drawn)


def _converted(outcome: Outcome) -> Subject:
    """Return the picture of a conversion that was carried out, or refused."""
    well = ENDINGS[outcome.status] is Exit.DONE
    shown = _forecast(outcome.plan, outcome.observed, outcome.allocations, outcome.survey)
    return replace(of_conversion(shown, () if well else outcome.notes), node=outcome.node)


def _forecast(
    plan: Plan, observed: ObservedTree, allocations: tuple[Allocation, ...], survey: Survey | None
) -> Forecast:
    """Return a plan with what stands before it and after it; ``allocations`` are those before it."""
    names = names_of({each.consumer for each in allocations}, survey)
    after = Observed(forecast(plan, observed), apply_moves(allocations, plan.moves))
    return Forecast(shown_plan(plan, observed, names), Observed(observed, allocations), after)


def sync(options: argparse.Namespace) -> Report:
    """Run one pass over this host, and over the pool that its agent reports; one that fails does not stop the other."""
    wishes = wishes_of(options)
    outcomes, remarks = list[Outcome](), list[str]()
    with open_host(options, writes=True) as host:
        nodes = (*pool_nodes(host), host)
        for one in nodes:
            with _noted(one, outcomes, alone=len(nodes) == 1):
                outcomes.append(sync_node(one, wishes))
            remarks += doubts(one.settings, outcomes[-1].survey)
    return replace(_ended_report(outcomes, print_outcome), remarks=remarks)


def retire(options: argparse.Namespace) -> Report:
    """Remove this host's tree from placement."""
    return _leaving(options, partial(retire_node, dry=options.dry_run))


def hand_over(options: argparse.Namespace) -> Report:
    """Remove the agent's marks from this host's tree."""
    return _leaving(options, partial(hand_over_node, dry=options.dry_run, force=options.force))


def _leaving(options: argparse.Namespace, leave: Callable[[ComputeNode], Outcome]) -> Report:
    with open_host(options, writes=True) as one:
        outcome = leave(one)
    report = _ended_report([outcome], print_left, dry_run=options.dry_run)
    planned = options.dry_run and outcome.plan.operations
    return replace(report, exit=Exit.DIFFERENCES) if planned and report.exit is Exit.DONE else report


def check(options: argparse.Namespace) -> Report:
    """Try everything that a pass needs."""
    checks = check_host(options)
    ending = Exit.DONE if all(one.ok for one in checks) else Exit.DIFFERENCES
    return Report(data=Checks(checks), table=print_checks, exit=ending)


def explain(options: argparse.Namespace) -> Report:
    """Report why one provider has its classes and traits, or with --request why a host is no candidate."""
    if options.request:
        return _explain_request(options)
    if not options.name:
        raise ConfigError("explain needs the name of a provider, or --request FILE")

    return Report(data=explain_provider(choice_of(options), options.name, options.what), table=print_reasons)


def _explain_request(options: argparse.Namespace) -> Report:
    """Report whether each node is among the allocation candidates of a request, and why not."""
    if options.name:
        raise ConfigError("explain takes the name of a provider or --request FILE, not both")
    wishes = read_request(options.request)
    with open_host(options) as one:
        record = explain_request(one.client, one.name, wishes)
    return Report(data=record, table=print_candidacy)


@contextmanager
def _noted(node: ComputeNode, outcomes: list[Outcome], *, alone: bool) -> Iterator[None]:
    """Note the failure of a node that is not ``alone`` as its outcome."""
    try:
        yield
    except USER_ERRORS as error:
        if alone:
            raise
        outcomes.append(Outcome(node=node.name, status=Status.FAILED, reasons=(str(error),)))


def _look(
    node: ComputeNode, wishes: Wishes, options: argparse.Namespace, *, agreed: bool = False
) -> tuple[Draft, Verdict, list[str]]:
    """Foresee a pass and judge it, with remarks on host and plan; ``agreed``: as if a person had named its digest."""
    draft = _with_use(node, foresee(node, wishes), options)
    with suppress(Unrecorded):
        node.check_name(draft)
    agreeing = replace(draft.view, wishes=replace(wishes, agreed=draft.plan.digest))
    verdict = judge(replace(draft, view=agreeing) if agreed else draft)
    notes = (one.text for one in conditions_on(draft) if one.text not in verdict.notes)
    return draft, verdict, [*doubts(node.settings, draft.view.survey), *notes]


def _with_use(node: ComputeNode, draft: Draft, options: argparse.Namespace) -> Draft:
    """Add the allocations to a draft that is shown, but to a table without changes, which has no sums."""
    if draft.way.allocations or (options.format == "table" and not draft.plan.operations):
        return draft
    try:
        return replace(draft, way=replace(draft.way, allocations=node.client.allocations(draft.observed)))
    except Unrecorded:  # a case of the service has only what its pass read
        return draft


def _foreseen(node: str, one: Draft, verdict: Verdict) -> Foreseen:
    return Foreseen(
        node=node,
        outcome=verdict.refused or (Status.CHANGED if one.plan.operations else Status.UNCHANGED),
        layout=one.stands_in,
        target=one.layout,
        notes=verdict.notes,
        forecast=_forecast(one.plan, one.observed, one.way.allocations, one.view.survey),
        reserving=reserving_of(verdict.reserving, one.observed),
    )


def _foreseen_report(records: Sequence[Foreseen], table: Printer, ending: Exit, remarks: Sequence[str]) -> Report:
    """Report plans, which are not carried out, with their pictures."""
    subjects = [of_conversion(one.forecast, one.notes) for one in records]
    return replace(_for_each(records, "plans", table, ending), remarks=remarks, subjects=subjects)


def _ended_report(outcomes: Sequence[Outcome], table: Printer, *, dry_run: bool | None = None) -> Report:
    """Report how the pass over each node ended, with the exit code of the highest number."""
    ending = max(ENDINGS[outcome.status] for outcome in outcomes)
    return _for_each([ended(outcome, dry_run=dry_run) for outcome in outcomes], "nodes", table, ending)


def _for_each(records: Sequence[object], name: str, table: Printer, ending: Exit) -> Report:
    """Report the record of a single node as it is, those of several nodes in a list of this name."""
    if len(records) == 1:
        return Report(data=records[0], table=table, exit=ending)
    return Report(data={name: records}, table=table, each=records, exit=ending)
