"""What the client makes of odd listings; the ordinary ones are in the contract tests."""

import pytest

from fakes import FakeAnswer, FakeSender
from reportclient.client import PlacementClient
from reportclient.errors import Rejected, Unavailable
from reportclient.transport import Transport
from reportclient.tree import ObservedProvider, ObservedTree, Provider

LATE, EARLY = "Sat, 21 Nov 2026 03:00:00 GMT", "Sat, 21 Nov 2026 02:00:00 GMT"


def client(*answers: FakeAnswer) -> PlacementClient:
    return PlacementClient(Transport(FakeSender(list(answers)), where="x"))


def listing(modified: str, *uuids: str) -> FakeAnswer:
    rows = [{"uuid": uuid, "name": uuid, "parent_provider_uuid": None, "generation": 1} for uuid in uuids]
    return FakeAnswer(200, {"resource_providers": rows}, {"Last-Modified": modified})


def known(modified: str) -> ObservedTree:
    return ObservedTree((ObservedProvider(uuid="r", generation=1, provider=Provider(name="r")),), modified)


def test_a_listing_older_than_one_seen_before_is_not_believed() -> None:
    with pytest.raises(Unavailable, match="older"):
        client(listing(EARLY, "r")).observe("r", known(LATE))


def test_a_listing_as_new_as_before_is() -> None:
    assert client(listing(LATE, "r")).observe("r", known(LATE)).root == known(LATE).root


def test_a_listing_may_look_older_when_providers_went() -> None:
    assert client(listing(EARLY)).observe("r", known(LATE)).providers == ()


def test_a_listing_in_no_known_form_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="not in its form"):
        client(FakeAnswer(200, {"surprise": 1})).observe("r")


@pytest.mark.parametrize(
    ("status", "allowed"),
    [pytest.param(400, True, id="malformed: the role is there"), pytest.param(403, False, id="forbidden")],
)
def test_roles_are_tried_without_writing(status: int, allowed: bool) -> None:
    answer = FakeAnswer(status, {"errors": [{"detail": "x"}]})

    assert client(answer).may_write() is allowed
    assert client(answer).may_reshape() is allowed


def test_a_placement_that_takes_nonsense_is_not_trusted() -> None:
    with pytest.raises(Unavailable):
        client(FakeAnswer(204, "", text="")).may_write()
    with pytest.raises(Unavailable):
        client(FakeAnswer(204, "", text="")).may_reshape()


def test_many_traits_are_asked_for_in_several_requests() -> None:
    sender = FakeSender([FakeAnswer(200, {"traits": ["T1"]}), FakeAnswer(200, {"traits": ["T2"]}), FakeAnswer(500, [])])
    one = PlacementClient(Transport(sender, where="x"))

    assert one.known_traits(f"T{n}" for n in range(150)) == {"T1", "T2"}
    assert one.known_traits([]) == frozenset()
    assert len(sender.asked) == 2
    with pytest.raises((Unavailable, Rejected)):
        one.known_traits(["T"])
