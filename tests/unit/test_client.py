"""What the client makes of odd listings; the ordinary ones are in the contract tests."""

import pytest

from fakes import FakeAnswer, FakeSender
from reportclient.client import PlacementClient
from reportclient.errors import Conflict, Unavailable
from reportclient.transport import Transport
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

LATE, EARLY = "Sat, 21 Nov 2026 03:00:00 GMT", "Sat, 21 Nov 2026 02:00:00 GMT"


def client(*answers: FakeAnswer) -> PlacementClient:
    return PlacementClient(Transport(FakeSender(list(answers)), where="x"))


def listing(modified: str, *uuids: str) -> FakeAnswer:
    rows = [{"uuid": uuid, "name": uuid, "parent_provider_uuid": None, "generation": 1} for uuid in uuids]
    return FakeAnswer(200, {"resource_providers": rows}, {"Last-Modified": modified})


def known(modified: str) -> ObservedTree:
    return ObservedTree((ObservedProvider(uuid="r", generation=1, provider=Provider(name="r")),), modified)


def aspects() -> list[FakeAnswer]:
    """The three answers with which one provider is read."""
    return [
        FakeAnswer(200, {"inventories": {}}),
        FakeAnswer(200, {"traits": ["T"]}),
        FakeAnswer(200, {"aggregates": []}),
    ]


def test_a_listing_as_new_as_before_is_believed() -> None:
    assert client(listing(LATE, "r")).observe("r", known(LATE)).root == known(LATE).root


@pytest.mark.parametrize(
    ("modified", "generation"),
    [
        pytest.param(EARLY, 1, id="an older date: a cache"),
        pytest.param(LATE, 0, id="an older generation: a database that was restored"),
    ],
)
def test_a_listing_older_than_one_seen_before_makes_us_read_all_anew(modified: str, generation: int) -> None:
    rows = listing(modified, "r")
    rows.body["resource_providers"][0]["generation"] = generation

    found = client(rows, *aspects()).observe("r", known(LATE))

    assert found.providers[0].provider.traits == {"T"}


def test_a_listing_may_look_older_when_providers_went() -> None:
    assert client(listing(EARLY)).observe("r", known(LATE)).providers == ()


@pytest.mark.parametrize("date", ["soon", ""])
def test_a_date_that_cannot_be_read_says_nothing(date: str) -> None:
    assert client(listing(date, "r")).observe("r", known(LATE)).root == known(LATE).root


def test_a_provider_that_goes_away_while_it_is_read_makes_us_look_again() -> None:
    gone = FakeAnswer(404, {"errors": [{"detail": "No such provider"}]})

    with pytest.raises(Conflict, match="went away while it was read"):
        client(listing(LATE, "r"), gone).observe("r")


@pytest.mark.parametrize(
    "spoilt", [[], {}, {"inventories": None}, {"inventories": {"VCPU": {"total": "x"}}}, {"inventories": {"VCPU": []}}]
)
def test_an_answer_in_no_known_form_is_no_answer(spoilt: object) -> None:
    with pytest.raises(Unavailable, match=r"does not have the form|but placement answers with JSON"):
        client(listing(LATE, "r"), FakeAnswer(200, spoilt), *aspects()[1:]).observe("r")


def test_a_listing_in_no_known_form_is_no_answer() -> None:
    with pytest.raises(Unavailable, match="does not have the form"):
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
    with pytest.raises(Unavailable, match="accepted a provider without a name, which no known placement does"):
        client(FakeAnswer(204, "", text="")).may_write()
    with pytest.raises(Unavailable, match="accepted an empty reshape, which no known placement does"):
        client(FakeAnswer(204, "", text="")).may_reshape()


def test_many_traits_are_asked_for_in_several_requests() -> None:
    sender = FakeSender([FakeAnswer(200, {"traits": ["T1"]}), FakeAnswer(200, {"traits": ["T2"]}), FakeAnswer(500, [])])
    one = PlacementClient(Transport(sender, where="x"))

    assert one.known_traits(f"T{n}" for n in range(150)) == {"T1", "T2"}
    assert one.known_traits([]) == frozenset()
    assert len(sender.asked) == 2
    with pytest.raises(Unavailable, match="with 500: nothing readable: see placement's log"):
        one.known_traits(["T"])


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([("r", None), ("x", None)], id="other roots: the query was dropped"),
        pytest.param([("x", None)], id="another tree"),
        pytest.param([("r", None), ("a", "b"), ("b", "a")], id="a circle"),
        pytest.param([("r", None), ("a", "nowhere")], id="no way to the root"),
    ],
)
def test_a_listing_that_is_not_the_tree_asked_for_is_not_believed(rows: list[tuple[str, str | None]]) -> None:
    records = [{"uuid": u, "name": u, "parent_provider_uuid": parent, "generation": 1} for u, parent in rows]

    with pytest.raises(Unavailable, match="drop the query"):
        client(FakeAnswer(200, {"resource_providers": records})).observe("r")


def test_a_name_is_found_only_as_it_is_written() -> None:
    assert client(listing(LATE, "other")).find("r") is None


@pytest.mark.parametrize(
    ("generation", "total", "went_back"),
    [
        pytest.param(5, 8, False, id="the same"),
        pytest.param(4, 8, True, id="an older generation"),
        pytest.param(5, 4, True, id="other stock at the same generation"),
        pytest.param(6, 4, False, id="somebody wrote"),
    ],
)
def test_a_whole_look_tells_another_history(generation: int, total: int, went_back: bool) -> None:
    row = {"uuid": "r", "name": "r", "parent_provider_uuid": None, "generation": generation}
    answers = [FakeAnswer(200, {"resource_providers": [row]})]
    answers += [
        FakeAnswer(200, {"inventories": {"VCPU": {"total": total}}, "resource_provider_generation": generation}),
        *aspects()[1:],
    ]
    stood = Provider(name="r", inventories={"VCPU": Inventory(total=8)}, traits=frozenset({"T"}))
    one = client(*answers)

    tree = one.observe("r", ObservedTree((ObservedProvider(uuid="r", generation=5, provider=stood),)), whole=True)

    assert one.went_back is went_back
    assert [seen.provider.inventories["VCPU"].total for seen in tree] == [total]
    one.begin()
    assert one.went_back is False


def test_an_earlier_date_alone_is_no_earlier_state() -> None:
    """The clock of one of several API servers may be behind: everything is read again, and is as it was."""
    row = {"uuid": "r", "name": "r", "parent_provider_uuid": None, "generation": 5}
    stood = Provider(name="r", inventories={"VCPU": Inventory(total=8)}, traits=frozenset({"T"}))
    since = ObservedTree((ObservedProvider(uuid="r", generation=5, provider=stood),), LATE)
    listed = FakeAnswer(200, {"resource_providers": [row]}, {"Last-Modified": EARLY})
    one = client(
        listed,
        FakeAnswer(200, {"inventories": {"VCPU": {"total": 8}}, "resource_provider_generation": 5}),
        *aspects()[1:],
    )

    tree = one.observe("r", since)

    assert one.went_back is False
    assert tree.providers == since.providers
