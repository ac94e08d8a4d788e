"""Try everything that a pass needs, and find mistakes of an operator; write nothing, and leave nothing on the host."""

import argparse
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from agent.audit.heal import read_policy
from agent.command.exits import Exit
from agent.command.result import Report, choice_of, settings_of
from agent.command.wording import columns
from agent.connect.choice import Choice, open_client, open_driver, open_nova, read_host
from agent.errors import USER_ERRORS, ConfigError
from agent.service.slots import read_kinds
from agent.settings.read import Settings
from agent.settings.slips import slips_of_the_pen
from agent.settings.values import Values, one_line
from agent.state.node_file import RESERVE_BYTES
from agent.sync.approvals import tell_approvals
from agent.sync.decide.checks import REPARENTING, conditions_on, judge
from agent.sync.decide.feature import Draft
from agent.sync.decide.features.boot import AWAITED
from agent.sync.decide.features.second_writer import SECOND_WRITER
from agent.sync.decide.owner import disputed, only_audits, tell_disputed
from agent.sync.decide.view import Wishes
from agent.sync.decide.wanted import resembling
from agent.sync.node import ComputeNode
from agent.sync.provider_yaml import unread_keys
from drivers import FAKE
from drivers.base import Driver, Survey
from drivers.cells import plain_mib
from drivers.errors import MalformedFact
from drivers.facts import DiskSpace, HostFacts, dotted
from drivers.libvirt.absent import why_absent
from drivers.libvirt.shape import idle
from drivers.policy import OF_CELLS, Policy
from reportclient.client import PlacementClient
from reportclient.names import CPUS

SKEW_LIMIT_S = 10
_LEAKING = 10_005_000  # the first libvirt without that leak
_FIRST_IN = {  # a standard trait -> the first release of placement whose os-traits has it
    "COMPUTE_NET_VIRTIO_PACKED": "2023.2",
    "COMPUTE_SECURITY_STATELESS_FIRMWARE": "2024.2",
    "HW_PCI_LIVE_MIGRATABLE": "2025.1",
    "COMPUTE_SOUND_MODEL_AC97": "2025.2",
    "HW_CPU_X86_AMXINT8": "2026.1",
    "HW_CPU_X86_INTEL_TDX": "2026.2",
}
_CANNOT = {  # what placement cannot do before a microversion
    REPARENTING: "move a provider below another one, as some conversions need",
    (1, 38): "tell servers from migrations by the type of a consumer",
}
UNASKED = "not asked, as no file sets [nova] auth_type: repairs that only nova's word makes certain are not made"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check; ``detail`` is a sentence, which also says what to do if ``ok`` is false."""

    check: str
    ok: bool
    detail: str
    doubt: bool = False  # it hinders no pass, and may not be what was meant

    @property
    def result(self) -> str:
        return "FINDING" if not self.ok else "doubt" if self.doubt else "ok"


def check(options: argparse.Namespace) -> Report:
    """Try everything that a pass needs."""
    return report_checks(check_host(options), strict=options.strict)


def report_checks(each: Iterable[Check], *, strict: bool = False) -> Report:
    """Report checks in their order; ``strict``: a doubt counts as a finding for the exit code."""
    checks = tuple(each)
    rows = ((one.check, one.result, one.detail) for one in checks)
    good = all(one.ok and not (strict and one.doubt) for one in checks)
    return Report(
        data={"checks": checks},
        lines=columns(rows, heads=("check", "result", "what was found")),
        exit=Exit.DONE if good else Exit.DIFFERENCES,
    )


def doubtful_names(settings: Settings) -> tuple[str, ...]:
    """Return a sentence for each name in the files that is probably misspelt, and for each vGPU type without a card."""
    try:
        ignored = unread_keys(settings.operator_files.folder)
    except ConfigError:  # a wrong file is told elsewhere
        ignored = ()
    return (*slips_of_the_pen(Values(settings.apis.source)), *ignored)


def doubts(settings: Settings, survey: Survey | None) -> list[str]:
    """Return a sentence for each name and each rule that has no effect here; without a survey only for names."""
    unmatched = idle(survey.facts, settings.policy) if survey else ()
    return [f"configuration: {text}" for text in (*doubtful_names(settings), *unmatched)]


class CheckFailed(Exception):
    """Something prevents a pass; the message says what it is, and what to do."""


def check_host(options: argparse.Namespace) -> Iterator[Check]:
    """Yield all checks in the order in which a pass needs them; leave out those that depend on a failed one."""
    try:
        choice, settings = choice_of(options), settings_of(options)
    except ConfigError as error:
        yield from (Check("configuration", False, problem) for problem in error.problems)
        return
    yield from check_files(settings)
    yield from tried("service", _check_service(settings))
    yield from tried("approval", _check_approvals(settings))
    yield from tried("host", _check_node(settings, choice))


def check_files(settings: Settings) -> Iterator[Check]:
    """Yield what is doubtful in the configuration files, and whether the state directory can be written."""
    slips = [Check("configuration", False, slip) for slip in doubtful_names(settings)]
    yield from slips or [Check("configuration", True, "no wrong or unsupported option")]
    yield from tried("state", check_state(settings))


def tried(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    """Yield checks; of one that cannot be made yield why, under this name, and no further one."""
    try:
        yield from checks
    except (CheckFailed, *USER_ERRORS) as error:
        parts = getattr(error, "problems", (str(error),))
        yield Check(name, False, "; ".join(" ".join(part.split()) for part in parts))


def _check_approvals(settings: Settings) -> Iterator[Check]:
    yield from (Check("approval", True, text) for text in tell_approvals(settings.folders.state))


def _check_service(settings: Settings) -> Iterator[Check]:
    """Check the file that only ``run`` reads."""
    if policy := settings.service.heal_policy:
        try:
            read_policy(policy)
        except ConfigError as error:
            raise ConfigError(f"[agent] heal_policy: {error}: mend it, or leave the option out") from error
    kinds = read_kinds(settings)
    yield Check("service", True, f"{policy} is usable" if policy else "no [agent] heal_policy: it repairs nothing")
    yield from [Check("service", True, f"[metrics] slots counts {', '.join(kinds)}")] if kinds else []


def check_state(settings: Settings) -> Iterator[Check]:
    """
    Check that the state directory can be written and has the room that a pass needs.

    A directory that does not exist yet is judged by its nearest parent.

    Raises:
        CheckFailed: the directory or a file in it cannot be written.
    """
    folder = settings.folders.state
    place = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    inside = tuple(folder.iterdir()) if os.path.isdir(folder) and os.access(folder, os.R_OK) else ()
    _try_room(place, settings.folders.option)
    barred = [path for path in inside if not os.access(path, os.W_OK)]
    if barred:
        raise CheckFailed(f"{barred[0]} cannot be written: run as its owner, or set {settings.folders.option}")
    yield Check("state", True, f"{folder} can be {'written' if place == folder else 'made'}")


def _try_room(folder: Path, option: str) -> None:
    """Write a temporary file of ``RESERVE_BYTES`` to the disk, of which nothing remains; ``option`` names it."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b" " * RESERVE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        advice = f"run as its owner, make room, or set {option}"
        kib = RESERVE_BYTES // 1024
        raise CheckFailed(f"{kib} KiB cannot be written below {folder}: {error.strerror}: {advice}") from error


def _check_node(settings: Settings, choice: Choice) -> Iterator[Check]:
    with open_driver(settings, choice) as driver:
        node, survey = read_host(driver, choice)
        yield from tried("host", _check_shape(driver, survey, settings))
        yield from tried("placement", _check_placement(settings, choice, driver, node, survey))


def _check_shape(driver: Driver, survey: Survey, settings: Settings) -> Iterator[Check]:
    """Report what a node's tree has in all, odd devices, and memory of which nobody said whether guests may have it."""
    yield from (Check("devices", False, text) for text in idle(survey.facts, settings.policy))
    if settings.hypervisor.driver != FAKE and (libvirt := survey.facts.hypervisor.versions.libvirt) < _LEAKING:
        text = f"libvirt {dotted(libvirt)} may leak memory in queries about devices, which {dotted(_LEAKING)} does not"
        yield Check("libvirt", True, f"{text}: watch the memory of libvirtd or virtnodedevd")
    tree, holdings = driver.shape(survey, settings.policy, None)
    totals, capacity = Counter[str](), Counter[str]()
    for one in tree:
        totals.update({name: stock.total for name, stock in one.inventories.items()})
        capacity.update({name: stock.capacity for name, stock in one.inventories.items()})
    stock = ", ".join(f"{total} {name}" for name, total in totals.items())
    yield Check("host", True, f"{tree.root.name} can be read: {stock}, {len(tree.root.traits)} traits")
    yield from (Check("devices", False, text) for text in holdings.backing.odd.sentences.values())
    yield from (Check("guests", False, text) for text in holdings.of_guests)
    if not settings.beside_nova:  # else CPUs and memory are nova's
        if "VCPU" not in totals:
            why = why_absent(survey.facts, settings.policy, "VCPU")
            text = f"no guest without pinned CPUs comes here, as there is no VCPU: {why}"
            yield Check("cpus", True, text, doubt=True)
        for name in sorted(own for own in ("VCPU", "PCPU", "MEMORY_MB") if own in totals and capacity[own] < 1):
            text = f"no guest gets {name} here: all of it is reserved, or its ratio leaves nothing"
            yield Check("cpus" if name in CPUS else "memory", True, text, doubt=True)
        yield from (Check("host", False, text) for text in holdings.lacking)
        yield from (Check("memory", True, text) for text in holdings.notes)
    yield from _check_pages(survey.facts, settings.policy)  # nova counts them so too


def _check_pages(facts: HostFacts, policy: Policy) -> Iterator[Check]:
    """Say what huge pages leave for other guests, in a layout that counts all pages alike."""
    if policy.layout in OF_CELLS or policy.file_backed_mib:
        return
    try:
        whole_mib, small_mib = plain_mib(facts, policy)
    except MalformedFact as error:  # a pass does not need it in this layout
        text = f"what huge pages leave for other guests is not known: {one_line(error)}"
        yield Check("memory", True, text, doubt=True)
        return
    kept_mib = policy.reserved_memory_mib
    huge = f"{whole_mib - small_mib} of {whole_mib} MiB are huge pages"
    text = f"{huge}, and the layout {policy.layout} counts all as MEMORY_MB"
    if small_mib < min(whole_mib, kept_mib):
        least = (
            f"the host is to keep {kept_mib} MiB ([DEFAULT] reserved_host_memory_mb), and {small_mib} are left for it"
        )
        text = f"{text}: {least}. Allocate fewer, unless that option stands for huge pages too"
        yield Check("memory", True, text, doubt=True)
    elif small_mib < whole_mib:
        room = f"guests without huge pages can have {small_mib - kept_mib} MiB"
        yield Check("memory", True, f"{text}: {room}. The layouts cells and numa count the two apart")


def _check_placement(settings: Settings, choice: Choice, driver: Driver, node: str, survey: Survey) -> Iterator[Check]:
    client, where = open_client(settings, choice)
    client.find(node)
    yield Check("placement", True, f"{where} {release_of(client)}")
    yield _check_clock(client)
    yield from tried("role", _check_role(client, settings))
    nova = cache(partial(open_nova, settings, choice))
    one = ComputeNode(name=node, driver=driver, client=client, settings=settings, where=where, nova=nova)
    yield from tried("tree", check_pass(one, survey))
    if settings.apis.nova_chosen:
        yield from tried("nova", check_nova(one, survey))
    elif not settings.reports_root:
        yield Check("nova", True, UNASKED)


def release_of(client: PlacementClient) -> str:
    """Return which release a placement seems to be, and what it cannot do."""
    known, version = client.known_traits(_FIRST_IN), client.transport.microversion
    release = max((first for trait, first in _FIRST_IN.items() if trait in known), default="2023.1 or before")
    lacks = [what for since, what in _CANNOT.items() if version < since]
    text = f"answers at microversion {'.'.join(map(str, version))}, with the standard traits of {release}"
    return f"{text}; it cannot {', and cannot '.join(lacks)}" if lacks else text


def _check_clock(client: PlacementClient) -> Check:
    skew = client.transport.skew_s
    if skew is None:
        return Check("clock", True, "placement sends no date to compare with")
    if abs(skew) > SKEW_LIMIT_S:
        return Check("clock", False, f"placement's clock is {skew:+.0f} s from ours: set both by NTP")
    return Check("clock", True, f"within {SKEW_LIMIT_S} s of placement's")


def _check_role(client: PlacementClient, settings: Settings) -> Iterator[Check]:
    if settings.audits_only and not settings.service.heal_policy:
        yield Check("role", True, "the user may read placement, which is all that an audit without repairs needs")
        return
    if not client.may_write():
        raise CheckFailed("the user may not write providers: give it the role service on its project")
    if settings.audits_only:
        yield Check("role", True, "the user may write")
        return
    if not client.may_reshape():
        raise CheckFailed("the user may write, but not reshape: give it the role service (admin does not include it)")
    yield Check("role", True, "the user may write providers and reshape")


def check_nova(one: ComputeNode, survey: Survey) -> Iterator[Check]:
    """Check whether nova answers what an audit asks it about this host; CheckFailed: it does not."""
    nova, root_uuid = one.nova(), one.known_uuid(survey)
    if nova is None or root_uuid is None:
        yield Check("nova", True, "not tried: this host has no identity yet, by which nova knows it")
        return
    told = nova.witness(root_uuid, ())
    if told.silence:
        raise CheckFailed(told.silence)
    known = f"{len(told.servers)} servers and {len(told.migrations)} migrations"
    yield Check("nova", True, f"{nova.where} knows {known} of this host, which it calls {told.host}")


def check_pass(one: ComputeNode, survey: Survey) -> Iterator[Check]:
    """Check whether a pass over this node would be refused, and what else its plan shows."""
    wishes = Wishes(reshape=one.settings.changes.allow_reshape)  # as the first pass of sync and of the service
    draft = one.draft(wishes, survey=survey)
    slips = resembling(draft.wanted.strays, draft.desired, one.client.find)
    yield from tried("tree", _check_tree(one, survey, draft))
    yield from (Check("provider_config", False, slip) for slip in slips)
    yield from (Check("devices", False, one.text) for one in conditions_on(draft) if one.kind == AWAITED)
    disk, settings = survey.facts.disk, one.settings
    yield from (Check("storage", False, text) for text in survey.facts.disk_unread)
    if isinstance(disk, DiskSpace) and disk.missing and not settings.policy.disk.shared:
        text = f"{disk.missing} does not exist, so DISK_GB is the size of the file system of {disk.folder}"
        advice = "make or mount the folder, in a container too, or set [DEFAULT] instances_path"
        is_novas = not settings.reports_root  # nova reports the disk
        yield Check("storage", is_novas, f"{text}: {advice}", doubt=is_novas)


def _check_tree(one: ComputeNode, survey: Survey, draft: Draft) -> Iterator[Check]:
    one.check_name(draft)
    if one.settings.audits_only:
        if draft.observed.root is None:
            raise CheckFailed(f"placement has no provider {one.name}: start nova-compute, which reports it")
        _check_options(one, survey, draft)
        yield Check("tree", True, f"{one.name} can be read and audited; {only_audits(one.name)}")
        return
    if novas := one.against_writing(draft):
        raise CheckFailed("; ".join(novas))
    if one.settings.beside_nova:
        _check_options(one, survey, draft)
    verdict = judge(draft)
    if verdict.refused:
        raise CheckFailed(f"{one.name}: sync would end with {verdict.refused.value}: {'; '.join(verdict.notes)}")
    if writers := [found.text for found in conditions_on(draft) if found.kind == SECOND_WRITER]:
        raise CheckFailed(f"{writers[0]}: stop that second writer, then run sync --take-over")
    count = len(draft.plan.operations)
    left = f": sync would do {count} operation(s), see compute-node-agent plan" if count else " is up to date"
    yield Check("tree", True, f"{one.name}{left}; {_role_text(one, one.signs(draft))}")


def _check_options(one: ComputeNode, survey: Survey, draft: Draft) -> None:
    """
    Check that nova reports the CPUs and the memory that this agent's options give.

    Raises:
        CheckFailed: it does not.
    """
    policy = one.settings.policy
    layout = one.standing_layout(draft.observed, draft.memory) if one.settings.audits_only else "devices"
    wanted, _ = one.driver.shape(survey, replace(policy, layout=layout), draft.observed)
    if found := disputed((seen.provider for seen in draft.observed), wanted):
        raise CheckFailed(tell_disputed(one.name, found))


def _role_text(one: ComputeNode, signs: Mapping[str, str]) -> str:
    if one.settings.role:
        return f"[agent] role = {one.settings.role}"
    if signs:
        return f"[agent] role is not set, and a person took the root over (--take-over): {'; '.join(signs.values())}"
    if one.settings.recorded:
        return "[agent] role is not set; what shows that nova reports a host is not looked for on a recorded one"
    return "[agent] role is not set, and sole fits, as nothing shows that nova reports this host"
