"""Look at host and placement for a pass, and plan what the pass would do. Writes nothing."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.errors import StateError
from agent.nova.answers import NovaRecord
from agent.nova.client import NovaClient
from agent.settings.read import Settings
from agent.state.clock import Clock, probe_clock
from agent.state.identity import parse_identity, planned_identity, read_identity
from agent.state.machine import Machine, probe_machine, read_machine, tie_machine
from agent.state.memory import NodeState
from agent.state.node_file import StateFile
from agent.sync.decide.beside import against_root
from agent.sync.decide.feature import Draft
from agent.sync.decide.features import FEATURES, Features
from agent.sync.decide.features.nova_root import taken_over
from agent.sync.decide.layout import layout_of
from agent.sync.decide.owner import NOVA_COMPUTE, against_handing, against_writing, only_audits, signs_of_nova
from agent.sync.decide.plan import draft
from agent.sync.decide.undoing import Conversion
from agent.sync.decide.view import Readings, SeenTree, Terms, Unread, View, Wishes
from agent.sync.journal import find_trial
from agent.sync.outcome import Condition, conditions_of
from agent.sync.provider_yaml import read_additions
from drivers.base import Driver, Survey
from drivers.facts import ServiceSigns
from drivers.host.services import probe_service
from drivers.looks import look
from drivers.policy import Layout
from reportclient.client import PlacementClient
from reportclient.errors import TreeMismatch
from reportclient.ownership import MANAGED, is_marked
from reportclient.tree import ObservedTree

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeNode:
    """One node and its tree in placement, as this agent looks at them under one configuration."""

    name: str
    driver: Driver
    client: PlacementClient
    settings: Settings
    where: str  # the placement's name
    clock: Callable[[], Clock] = probe_clock
    probe: Callable[[str], ServiceSigns] = probe_service  # what shows a service on this host, by its program
    machine: Callable[[str, str | None], Machine] = probe_machine  # this machine, by product uuid and boot id
    nova: Callable[[], NovaClient | None] = lambda: None  # logs in where it is called; None: no nova is configured
    features: Features = FEATURES

    def survey(self) -> Survey:
        """Read the host, again where something went away meanwhile; errors as ``Driver.survey``."""
        return look(lambda: self.driver.survey(self.name))

    def draft(self, wishes: Wishes = Wishes(), *, survey: Survey | None = None) -> Draft:
        """
        Look at host and placement and plan; writes nothing anywhere.

        ``survey`` is what was just seen of the host, by default a new look.

        Raises:
            DiscoveryError, PolicyError: the host cannot be read, or contradicts the policy.
            ConfigError, StateError: files of this host are wrong.
            PlacementError: placement cannot be read, or holds another host's tree under this name.
        """
        return self.complete(self.view(wishes, survey=survey))

    def view(
        self,
        wishes: Wishes = Wishes(),
        *,
        identity: str | None = None,
        left: NodeState | None = None,
        survey: Survey | None = None,
        tried: tuple[ObservedTree, ...] = (),
        any_role: bool = False,
    ) -> View:
        """
        Look at everything that must be seen before a draft can be made; ``survey`` and errors as ``draft``.

        ``identity`` is the root's uuid if it was just made; else it is read, or a stand-in where there is none.
        ``left`` is the memory to compare with, by default the one on disk. ``tried`` are the trees that cut-off
        attempts since then were to make. ``any_role``: all that the last pass left counts, also in another role, for a
        tree that need not be planned.
        """
        survey = survey or self.survey()
        root_uuid = self.known_uuid(survey, identity) or planned_identity(self.name)
        memory = left or self.state_file(root_uuid).read(self.where)
        memory = memory if any_role else self._in_this_role(memory)
        before_s = memory.whole_s
        memory, observed = self.look_at_tree(root_uuid, memory, deep=wishes.deep)
        settings, clock, (trial, untold) = self.settings, self.clock(), self.on_trial(root_uuid)
        added = any(names.classes or names.traits for names in memory.configured.values())
        return View(
            node=self.name,
            root_uuid=root_uuid,
            policy=settings.policy,
            additions=read_additions(
                settings.operator_files.folder,
                required=settings.operator_files.named or bool(memory.configured),
                added=added and not wishes.force,
                shown=settings.operator_files.shown,
            ),
            survey=survey,
            seen=SeenTree(
                tree=observed, whole=memory.whole_s != before_s, went_back=self.client.went_back, tried=tried
            ),
            memory=memory,
            beside=settings.beside_nova,
            wishes=wishes,
            changes=settings.changes,
            terms=Terms(
                recorded=settings.recorded,
                audits_only=settings.audits_only,
                now_s=clock.now_s(),
                skew_s=self.client.transport.skew_s or 0.0,
                uptime_s=clock.now_s() - (0 if settings.recorded else clock.offset_s),
                interval_s=settings.service.interval_s,
                microversion=self.client.transport.microversion,
                trial=trial,
                untold=untold,
            ),
        )

    def on_trial(self, root_uuid: str) -> tuple[Conversion | None, str]:
        """Return the conversion of this root that waits to be confirmed, if any, or why that is not known."""
        try:
            trial = find_trial(self.settings.folders.state, self.where)
        except StateError as error:
            return None, str(error)
        return trial if trial and trial.root_uuid == root_uuid else None, ""

    def look_at_tree(
        self, root_uuid: str, memory: NodeState, *, deep: bool | None = None
    ) -> tuple[NodeState, ObservedTree]:
        """
        Read the tree in placement, and return it with the memory to compare it with.

        Where placement has older data, the remembered tree is of a later state, and the memory comes without it.

        A command reads every provider: after a restored backup, a listing does not tell old stock from ours once claims
        have raised the generation. The service does so in its ``deep`` passes only, and not again within half of
        ``full_audit_interval``: periods vary, and a restart reads only what is old.

        Raises:
            as ``PlacementClient.observe``.
        """
        now_s, patience_s = self.clock().now_s(), self.settings.service.full_audit_interval_s / 2
        whole = deep is None or (deep and not 0 <= now_s - memory.whole_s < patience_s)
        observed = self.client.observe(root_uuid, memory.observed, whole=whole)
        if self.client.went_back and memory.observed:
            LOG.warning(
                "placement has older data than at the last pass (a restored backup, or a cache on the way?): all of "
                "this tree is read again node=%s where=%s",
                self.name,
                self.where,
            )
            for feature in self.features:
                memory = memory.with_bodies(feature.after_restored(memory))
            memory = replace(memory, observed=None)
        if whole or memory.observed is None:
            memory = replace(memory, whole_s=now_s, lacked_traits=frozenset())  # placement may have been upgraded
        return memory, observed

    def check_name(self, draft: Draft | View) -> None:
        """
        Check that the name of a root that is still to be made is free; a write finds that out by itself.

        Raises:
            TreeMismatch: the name is taken.
        """
        if draft.observed.root is None and (standing := self.client.find(self.name)):
            known = draft.root_uuid if draft.root_uuid != planned_identity(self.name) else None
            raise self.unlike(standing, known)

    def unlike(self, standing: str, known: str | None) -> TreeMismatch:
        """Return the error for a root of our name with the uuid ``standing`` instead of ``known`` (None: none yet)."""
        adopt = "" if known else ", or run compute-node-agent adopt"
        return TreeMismatch(
            f"placement has a provider {self.name} with uuid {standing}, and this host's compute_id is "
            f"{known or 'not made yet'}: if that provider is this host's, put its uuid into "
            f"{self.settings.folders.identity[0] / 'compute_id'}{adopt}; else rename one of the two hosts"
        )

    def against_writing(self, seen: Draft | View) -> tuple[str, ...]:
        """
        Return why nothing may be written on this host's root, or below it, a sentence each; empty: it may be.

        Raises:
            DiscoveryError: it cannot be read whether nova-compute is on this host.
        """
        if self.settings.audits_only:
            return (only_audits(self.name),)
        if self.settings.beside_nova:
            return against_root(self.name, seen.observed)
        return against_writing(self.name, self.signs(seen), taken_over(seen.memory))

    def against_handing(self, seen: View, *, force: bool) -> tuple[str, ...]:
        """Return why this host's root is not left to nova, as the function of this name."""
        if self.settings.audits_only:
            return (only_audits(self.name),)
        root = seen.observed.root
        if not (root and is_marked(root)):
            return ()
        return against_handing(self.name, self.signs(seen), taken_over(seen.memory), force=force)

    def signs(self, seen: Draft | View) -> dict[str, str]:
        """Return the signs that nova reports the root; none of a recorded host."""
        if self.settings.recorded:
            return {}
        record = self._record(seen.root_uuid) or NovaRecord()
        return signs_of_nova(seen.observed.root, self.probe(NOVA_COMPUTE), record, remembered=seen.memory.wrote)

    def _record(self, root_uuid: str) -> NovaRecord | None:
        """Ask nova about this hypervisor; None: there is no nova, or this agent does not report the root."""
        nova = self.nova() if self.settings.reports_root else None
        return nova.record(root_uuid) if nova else None

    def standing_layout(self, tree: ObservedTree, left: NodeState) -> Layout:
        """
        Return the layout to judge a tree by: its own, or the configured one where its own cannot be told.

        Where this agent only audits, nova's PCI tracker reports its devices below the root in the layout flat, too.
        """
        configured = self.settings.policy.layout
        if self.settings.audits_only and configured == "flat":
            tree = replace(tree, providers=tuple(seen for seen in tree if MANAGED not in seen.provider.traits))
        return layout_of(tree, left, self.driver.emitted, configured)

    def state_file(self, root_uuid: str) -> StateFile:
        """Return the file that keeps this node's memory."""
        return StateFile(self.settings.folders.state, root_uuid)

    def known_uuid(self, survey: Survey, identity: str | None = None) -> str | None:
        """
        Return the uuid of this node, None if it has none; a recorded host without one takes the root of its name.

        ``identity`` is that of a live host, where it was read already.

        Raises:
            TreeMismatch: this live host's identity is another machine's. StateError: a file of it cannot be used.
        """
        if not self.settings.recorded:
            known = identity or read_identity(self.settings.folders.identity)
            if known and (why := self.unlike_before(known, survey)):
                raise TreeMismatch(self._cloned(known, why))
            return known
        if survey.compute_id is not None:
            return parse_identity(survey.compute_id, "compute_id of the host archive")
        return self.client.find(self.name)

    def unlike_before(self, identity: str, survey: Survey) -> str:
        """Return what shows that a live host's identity is another machine's, as ``Machine.unlike``; empty: nothing."""
        before = read_machine(self.settings.folders.state, identity)
        return self.machine(survey.facts.product, survey.facts.boot).unlike(before)

    def tie(self, identity: str, survey: Survey, *, anew: bool = False) -> None:
        """Tie a live host's identity to this machine; parameters and errors as ``tie_machine``."""
        machine = self.machine(survey.facts.product, survey.facts.boot)
        tie_machine(self.settings.folders.state, identity, machine, anew=anew)

    def _cloned(self, identity: str, why: str) -> str:
        files = [folder / "compute_id" for folder in self.settings.folders.identity]
        path = next((one for one in files if one.exists()), files[0])
        return (
            f"this host's compute_id {identity} is that of {why}: if this disk is a clone, remove {path} and "
            f"{self.settings.folders.state} here, and give this host another name; if the mainboard was replaced, or "
            f"the disk was moved and the other machine is gone, run compute-node-agent adopt {identity}"
        )

    def _in_this_role(self, memory: NodeState) -> NodeState:
        """Return the memory; of another role only what does not say what is ours: the roles divide a tree otherwise."""
        beside = self.settings.beside_nova
        if memory.beside == beside:
            return memory
        kept = NodeState(where=memory.where, wrote=memory.wrote, stood=memory.stood, beside=beside)
        for feature in self.features:
            kept = kept.with_bodies(feature.in_another_role(memory))
        return kept

    def complete(self, view: View) -> Draft:
        """Return the draft, once the view has all readings that it needs; errors as ``draft``."""
        while True:
            try:
                return draft(view, self.driver, self.features)
            except Unread as unread:
                view = replace(view, readings=self._read(unread, view))

    def _read(self, needs: Unread, view: View) -> Readings:
        """
        Read what is needed, and return it together with what was read before.

        Raises:
            PlacementError: something cannot be read. Conflict: a provider changed since it was observed.
        """
        readings, client, root = view.readings, self.client, view.observed.root
        near = root.provider.aggregates if root else frozenset[str]()
        known = client.known_traits(needs.traits)
        wanted = [seen for seen in view.observed if seen.uuid in needs.allocations]
        found = client.allocations(wanted, as_observed=True)
        rows = {seen.uuid: tuple(row for row in found if row.provider == seen.name) for seen in wanted}
        held = [row for each in readings.allocations.values() for row in each]
        read = {one.uuid: one for one in client.consumers(needs.consumers, held)}
        return Readings(
            allocations={**readings.allocations, **rows},
            consumers={**readings.consumers, **{uuid: read.get(uuid) for uuid in needs.consumers}},
            traits={**readings.traits, **{name: name in known for name in needs.traits}},
            providers={**readings.providers, **{key: client.named(key) for key in sorted(needs.providers)}},
            sharing=client.sharing_with(near) if needs.sharing else readings.sharing,
            usages={**readings.usages, **{slot: client.used(*slot) for slot in sorted(needs.usages)}},
            nova_compute=self.probe(NOVA_COMPUTE) if needs.nova_compute else readings.nova_compute,
            nova_record=self._record(view.root_uuid) if needs.nova_compute else readings.nova_record,
        )


def conditions_left(settings: Settings, root_uuid: str, where: str) -> tuple[Condition, ...]:
    """Return what the last pass of this host said of it, or why that cannot be read."""
    try:
        return conditions_of(StateFile(settings.folders.state, root_uuid).read(where).bodies)
    except StateError as error:
        return (Condition(kind="unread", text=f"what the last pass said of this host is not known: {error}"),)
