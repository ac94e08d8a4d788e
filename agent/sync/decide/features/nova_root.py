"""Write nothing on a root that nova-compute reports, unless a person takes it over. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.nova.answers import NovaRecord
from agent.state.memory import NodeState
from agent.sync.decide.feature import Draft, Feature, PassEnd, Refusal
from agent.sync.decide.owner import ROOT, against_writing, signs_of_nova
from agent.sync.decide.view import Unread, View
from agent.sync.outcome import Status
from drivers.facts import ServiceSigns
from reportclient.plan import Plan

_BODY = "taken_over"  # signs of nova-compute that a person overruled, by their keys, sorted


@dataclass(frozen=True, slots=True, kw_only=True)
class NovaRoot(Feature):
    """Before something is written, the agent looks for signs that nova reports the root."""

    signs: Mapping[str, str] = field(default_factory=dict)  # a sentence each, by key; empty: none, or not looked for
    looked: bool = False

    @classmethod
    def in_another_role(cls, memory: NodeState) -> Mapping[str, Any]:
        return {_BODY: sorted(taken_over(memory))}

    def ask(self, view: View, plan: Plan) -> "NovaRoot":
        """A recorded host has no signs: nobody runs a service on it."""
        read, asked = view.readings, bool(plan.operations) or view.wishes.take_over
        if view.terms.recorded:
            return self
        if asked and read.nova_compute is None and not view.beside:
            raise Unread(nova_compute=True)
        found, record = read.nova_compute or ServiceSigns(), read.nova_record or NovaRecord()
        signs = signs_of_nova(view.observed.root, found, record, remembered=view.memory.wrote)
        return NovaRoot(signs=signs, looked=read.nova_compute is not None)

    def refuse(self, draft: Draft) -> Refusal | None:
        if draft.view.wishes.take_over or draft.view.beside or not draft.plan.operations:
            return None
        notes = against_writing(draft.desired.root.name, self.signs, taken_over(draft.memory))
        return Refusal(status=Status.CONTESTED, notes=notes) if notes else None

    def remember(self, end: PassEnd) -> Mapping[str, Any]:
        """Remember the signs that a person overruled, as far as they still stand."""
        if not end.done or not self.looked:
            return {}
        signs = frozenset(self.signs) - {ROOT}
        return {_BODY: sorted(signs if end.draft.view.wishes.take_over else signs & taken_over(end.draft.memory))}


def taken_over(memory: NodeState) -> frozenset[str]:
    """Return the signs of nova-compute that a person overruled, by their keys."""
    return frozenset(memory.bodies.get(_BODY, ()))
