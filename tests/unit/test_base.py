"""The drivers' interface, in the words of the seed, and the pass's patience with a host that moves."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import fakes
from drivers.base import Survey
from drivers.errors import DiscoveryError, Vanished
from drivers.looks import LOOKS, look
from drivers.policy import Policy
from inside_nova.provider_tree import update_provider_tree
from reportclient.allocations import Holdings, Observed
from reportclient.ownership import Names
from reportclient.tree import ObservedTree, Provider, ProviderTree


@dataclass
class OneHost:
    """A driver of one host."""

    emitted: Names = field(default_factory=Names)

    def name(self) -> str:
        return "host"

    def survey(self, node: str) -> Survey:
        return Survey(fakes.FACTS)

    def shape(self, survey: Survey, policy: Policy, observed: ObservedTree | None) -> tuple[ProviderTree, Holdings]:
        return ProviderTree((Provider(name=survey.facts.hostname),)), Holdings()


def test_a_driver_answers_with_a_tree_and_no_moves_as_long_as_its_shape_stays() -> None:
    tree, moves = update_provider_tree(OneHost(), Policy(), Observed(ObservedTree()), "host")

    assert (tree.root.name, moves) == ("host", ())


def test_what_vanished_during_a_look_is_looked_at_again() -> None:
    outcomes: Iterator[Exception | str] = iter([Vanished("gone"), Vanished("gone"), "whole"])

    def survey() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert look(survey) == "whole"


def test_a_host_that_never_stands_still_is_an_error_in_the_end() -> None:
    looks = []

    def survey() -> str:
        looks.append(1)
        raise Vanished("gone")

    with pytest.raises(DiscoveryError, match="gone"):
        look(survey)
    assert len(looks) == LOOKS
