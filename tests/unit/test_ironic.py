"""Nodes as Ironic lists them, and the providers that they become: the rules, collisions, and any text at all."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keystoneauth1 import exceptions

from drivers.errors import DiscoveryError
from drivers.ironic.client import BUSY, PAGE, REQUEST_TRIES, IronicClient
from drivers.ironic.shape import (
    GAVE,
    MARKS,
    WAS_CRITICAL,
    Misfit,
    Node,
    given_marks,
    given_traits,
    node_classes,
    on_offer,
    parse_class,
    parse_node,
    shape_share,
    single_classes,
)
from fakes import FakeAnswer
from reportclient.names import is_name
from reportclient.tree import Inventory, Provider

Texts = dict[str, str]  # resource classes by uuid
UUID = "5d2520ea-5bb1-55fe-a423-bcd67dee903f"
NODE = Node(
    uuid=UUID,
    resource_class="gold",
    traits=frozenset({"HW_CPU_X86_VMX", "CUSTOM_RACK_1"}),
    maintenance=False,
    power_state="power off",
    provision_state="available",
    instance_uuid=None,
)


def record(**fields: Any) -> dict[str, Any]:
    return {
        "uuid": UUID,
        "resource_class": "gold",
        "traits": [],
        "maintenance": False,
        "power_state": "power off",
        "provision_state": "available",
        "instance_uuid": None,
    } | fields


def uuid_of(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012}"


def test_a_node_is_one_unit_of_its_class_with_its_traits_and_our_marks() -> None:
    provider = shape_share([NODE]).providers[UUID]

    assert (provider.name, provider.parent, provider.traits) == (
        UUID,
        None,
        NODE.traits | MARKS | given_marks(NODE.traits),
    )
    ((name, stock),) = provider.inventories.items()
    assert (name, stock.total, stock.reserved, stock.min_unit, stock.max_unit, stock.step_size) == (
        "CUSTOM_GOLD",
        *(1, 0, 1, 1, 1),
    )


@pytest.mark.parametrize("count", [0, 1, 27, 28, 50])
def test_a_provider_shows_which_traits_its_node_gave(count: int) -> None:
    traits = frozenset(f"CUSTOM_{number}" for number in range(count))
    marks = given_marks(traits)

    assert given_traits(traits | MARKS | marks | {"CUSTOM_BY_HAND"}) == traits | marks
    assert len(marks) == (count + 26) // 27
    assert shape_share([replace(NODE, traits=traits)]).providers[UUID].traits == traits | MARKS | marks
    assert all(is_name(name) and name.startswith(GAVE) for name in marks)


def test_a_class_is_on_offer_in_a_nodes_form_or_where_none_has_it_as_a_single_one() -> None:
    form, single = Inventory(total=1, max_unit=1), Inventory(total=1)

    def stands(**stocks: Inventory) -> Provider:
        return Provider(name=UUID, inventories={"CUSTOM_ONE": single, "CUSTOM_TWO": Inventory(total=2), **stocks})

    both = stands(CUSTOM_GOLD=form, VCPU=form)
    assert single_classes(both) == {"CUSTOM_GOLD", "CUSTOM_ONE"}
    assert node_classes(both) == on_offer(both) == {"CUSTOM_GOLD"}
    assert on_offer(stands(CUSTOM_GOLD=replace(form, reserved=1))) == frozenset()
    assert on_offer(stands(CUSTOM_RED=replace(single, reserved=1))) == {"CUSTOM_ONE"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"power_state": "power on"}, ""),
        ({"provision_state": None}, ""),
        ({"maintenance": True}, "in maintenance"),
        ({"power_state": None}, "power state unknown"),
        ({"power_state": "error"}, "power state error"),
        ({"provision_state": "cleaning"}, "provision state cleaning"),
        ({"health": "Critical"}, "health Critical"),
        ({"health": "Warning"}, ""),
        (
            {"provision_state": "active", "instance_uuid": uuid_of(1)},
            f"provision state active, instance {uuid_of(1)}",
        ),
    ],
)
def test_a_node_that_cannot_be_deployed_or_is_in_use_is_reserved(change: dict[str, Any], why: str) -> None:
    share = shape_share([replace(NODE, **change)])

    (stock,) = share.providers[UUID].inventories.values()
    assert (stock.reserved, share.reserved) == (len(share.reserved), {UUID: why} if why else {})


@pytest.mark.parametrize(
    ("health", "stands", "why"),
    [
        ("Critical", False, "health Critical"),
        (None, True, "health unknown, and Critical before"),
        (None, False, ""),
        ("Warning", True, ""),
    ],
)
def test_a_critical_node_stays_reserved_until_another_health_is_known(
    health: str | None, *, stands: bool, why: str
) -> None:
    share = shape_share([replace(NODE, health=health)], critical={UUID} if stands else ())

    assert share.reserved.get(UUID, "") == why
    assert (WAS_CRITICAL in share.providers[UUID].traits) == bool(why)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"resource_class": None}, "no resource class"),
        ({"resource_class": ""}, "no resource class"),
        ({"resource_class": "---"}, "cannot become a class of placement"),
        ({"resource_class": 300 * "x"}, f"'{80 * 'x'}' cannot become a class of placement"),
        ({"traits": frozenset(f"CUSTOM_{number}" for number in range(51))}, "51 traits"),
        ({"traits": frozenset({300 * "x", "y"})}, f"'{80 * 'x'}'"),
    ],
)
def test_a_node_that_cannot_be_reported_says_why_and_the_others_go_on(change: dict[str, Any], why: str) -> None:
    share = shape_share([replace(NODE, **change), replace(NODE, uuid=uuid_of(1))])

    assert set(share.providers) == {uuid_of(1)}
    assert why in share.misfits[UUID].why


def first_of(text: str, reported: Texts, listed: Texts, standing: set[str], every: Texts) -> str:
    """
    Return, of a resource class and those that collide with it, the one that counts most.

    ``every`` are those of other agents too, if any of theirs collides; then it does not count who was reported.
    """
    was = {uuid: one for uuid, one in reported.items() if listed.get(uuid, one) == one and one != "silver"}

    def weight(one: str, known: Texts) -> tuple[int, int, int, str]:
        counted = [*was.values()] if every == listed else []
        stand = [what for uuid, what in known.items() if uuid in standing]
        return -counted.count(one), -stand.count(one), -[*every.values()].count(one), one

    rivals = {*every.values(), *was.values()} - {text}
    return min([weight(text, listed), *(weight(one, every) for one in rivals)])[-1]


def test_of_resource_classes_that_collide_the_one_stays_that_counts_most() -> None:
    """First as reported, then by nodes that stand, then by nodes; other agents' nodes count against ours."""
    draw = random.Random(1)

    def drawn(names: tuple[str, ...], most: int) -> Texts:
        return {uuid_of(draw.randrange(9)): draw.choice(names) for _ in range(draw.randrange(most))}

    misfit = replace(NODE, uuid=uuid_of(9), resource_class="go-ld", traits=frozenset({"x"}))
    for _ in range(300):
        listed, reported = drawn(("go.ld", "go-ld", "go_ld"), 6), drawn(("go.ld", "go-ld", "silver"), 5)
        others = drawn(("go.ld", "go-ld", "silver"), 6) if draw.random() < 0.5 else {}
        elsewhere = {**others, **listed, misfit.uuid: "go-ld"} if others else {}
        standing = set(drawn(("x",), 5))
        nodes = [*(replace(NODE, uuid=uuid, resource_class=text) for uuid, text in listed.items()), misfit]

        share = shape_share(nodes, reported=reported, standing=standing, elsewhere=elsewhere)

        every = listed | {uuid: text for uuid, text in others.items() if uuid not in listed and text != "silver"}
        first = {uuid: first_of(text, reported, listed, standing, every) for uuid, text in listed.items()}
        stay = {uuid: text for uuid, text in listed.items() if first[uuid] == text}
        assert (share.spellings, set(share.providers)) == (stay, set(stay))
        assert {uuid: one.why.partition(" of other")[0] for uuid, one in share.misfits.items() if one.collides} == {
            uuid: f"its resource class {text!r} would become CUSTOM_GO_LD in placement, and so would the resource "
            f"class {first[uuid]!r}"
            for uuid, text in listed.items()
            if uuid not in stay
        }


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"traits": None}, "Expected `array`, got `null` - at `$.traits`"),
        ({"traits": [1]}, "Expected `str`, got `int` - at `$.traits[0]`"),
        ({"traits": "x"}, "Expected `array`, got `str` - at `$.traits`"),
        ({"maintenance": "x"}, "Expected `bool`, got `str` - at `$.maintenance`"),
        ({"maintenance": 1}, "Expected `bool`, got `int` - at `$.maintenance`"),
        ({"resource_class": ["x"]}, "Expected `str | null`, got `array` - at `$.resource_class`"),
        ({"uuid": "no uuid"}, "not in its documented form"),
    ],
)
def test_a_record_in_another_form_is_no_node(fields: dict[str, Any], why: str) -> None:
    found = parse_node(record(**fields))

    assert isinstance(found, Misfit)
    assert why in found.why


def test_a_record_that_lacks_a_field_is_no_node() -> None:
    for name in record():
        lacking = {key: value for key, value in record().items() if key != name}
        found = parse_node(lacking)
        assert isinstance(found, Misfit)
        assert found.why == f"Ironic's record of it lacks the field {name}"
    assert set(shape_share(map(parse_node, [{}, record(), {}])).misfits) == {"record 1", "record 3"}


@pytest.mark.parametrize(
    ("record", "found"),
    [(record(), (UUID, "gold")), (record(resource_class=None), (UUID, "")), ({"uuid": UUID}, None), ([], None)],
)
def test_of_a_node_elsewhere_the_resource_class_counts(record: Any, found: tuple[str, str] | None) -> None:
    assert parse_class(record) == found


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=90),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)
texts = st.none() | st.text(max_size=80) | st.sampled_from(("gold", "Gold", "go.ld", "go-ld", "error", "available"))
records = st.fixed_dictionaries(
    {},
    optional={
        "uuid": st.integers(0, 5).map(uuid_of) | anything,
        "resource_class": texts | anything,
        "traits": st.lists(st.text(max_size=20) | st.sampled_from(("CUSTOM_A", "HW_GPU")), max_size=60) | anything,
        "maintenance": st.booleans() | anything,
        "power_state": texts | anything,
        "provision_state": texts | anything,
        "instance_uuid": texts | anything,
    },
)


@given(st.lists(records | anything, max_size=8))
def test_no_listing_loses_a_node_or_gives_a_name_that_placement_refuses(told: list[Any]) -> None:
    nodes = [parse_node(one) for one in told]
    share = shape_share(nodes)

    told_of = share.providers.keys() | share.misfits.keys()
    assert {node.uuid for node in nodes if node.uuid} <= told_of
    assert sum(name.startswith("record ") for name in told_of) == sum(not node.uuid for node in nodes)
    assert all(misfit.why for misfit in share.misfits.values())
    for provider in share.providers.values():
        assert all(map(is_name, (*provider.inventories, *provider.traits)))
        assert len(provider.inventories) == 1


class Ironic:
    """Ironic that gives the answers of a script in turn: a status, a page of nodes, or an exception."""

    def __init__(self, *answers: Any) -> None:
        self.answers: Iterator[Any] = iter(answers)
        self.asked: list[str] = []

    def request(self, url: str, method: str, **kwargs: Any) -> FakeAnswer:
        self.asked.append(url)
        self.retries = kwargs["status_code_retries"], kwargs["retriable_status_codes"]
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return FakeAnswer(answer, {}, {}, '{"faultstring": "oops"}')
        return FakeAnswer(200, answer)


def page(*numbers: int, marker: int | None = None) -> dict[str, Any]:
    nodes = [record(uuid=uuid_of(number)) for number in numbers]
    following = f"http://elsewhere/v1/nodes?limit=1000&fields=uuid&marker={uuid_of(marker)}" if marker else None
    return {"nodes": nodes, "next": following} if following else {"nodes": nodes}


def driver(*answers: Any) -> tuple[IronicClient, Ironic]:
    ironic = Ironic(*answers)
    return IronicClient(ironic, "Ironic", shard=None, conductor_group=None), ironic


def test_pages_are_followed_by_their_marker_at_the_address_that_we_know() -> None:
    one, ironic = driver(page(1, 2, marker=2), page(3))

    assert [node.uuid for node in one.survey()] == [uuid_of(1), uuid_of(2), uuid_of(3)]
    assert ironic.asked[0].startswith("/v1/nodes?fields=uuid%2Cresource_class")
    assert f"limit={PAGE}" in ironic.asked[0]
    assert ironic.asked[1] == f"{ironic.asked[0]}&marker={uuid_of(2)}"


def test_a_page_that_leads_to_itself_ends_the_listing() -> None:
    one, _ = driver(*[page(1, marker=1)] * 3)

    with pytest.raises(DiscoveryError, match="again and again"):
        one.survey()


def test_a_listing_without_an_end_is_given_up() -> None:
    one, ironic = driver(*(page(number, marker=number) for number in range(1, 10_002)))

    with pytest.raises(DiscoveryError, match="without an end, over 10000 pages"):
        one.survey()
    assert len(ironic.asked) == 10_000


def test_a_listing_begins_again_when_the_node_of_its_marker_is_deleted() -> None:
    one, ironic = driver(page(1, 2, marker=2), 404, page(1, marker=1), page(3))

    assert [node.uuid for node in one.survey()] == [uuid_of(1), uuid_of(3)]
    assert len(ironic.asked) == 4


def test_a_listing_during_which_nodes_are_deleted_each_time_is_an_error() -> None:
    one, ironic = driver(*[page(1, marker=1), 404] * REQUEST_TRIES)

    with pytest.raises(DiscoveryError, match="nodes went away while they were listed, 5 times"):
        one.survey()
    assert len(ironic.asked) == 2 * REQUEST_TRIES


@pytest.mark.parametrize(
    ("shard", "lists_all", "where"), [(None, True, "Ironic"), ("s1", False, "Ironic, shard 's1'")], ids=["all", "shard"]
)
def test_an_agent_sees_all_nodes_unless_something_narrows_the_listing(
    shard: str | None, lists_all: bool, where: str
) -> None:
    one = IronicClient(Ironic(), "Ironic", shard=shard, conductor_group=None)

    assert (one.lists_all, one.name, one.where) == (lists_all, where, "Ironic")


@pytest.mark.parametrize("asked", [True, False])
def test_the_health_of_nodes_is_asked_for_only_where_it_counts(asked: bool) -> None:
    ironic = Ironic({"nodes": [record(**{"health": "Critical"} if asked else {})]})
    one = IronicClient(ironic, "Ironic", shard="s1", conductor_group=None, health=asked)

    (node,) = one.survey()

    assert isinstance(node, Node)
    assert (node.health, "Chealth" in ironic.asked[0]) == ("Critical" if asked else None, asked)


def test_a_health_that_was_asked_for_and_is_not_told_is_no_health_that_is_unknown() -> None:
    one = IronicClient(Ironic({"nodes": [record()]}), "Ironic", shard=None, conductor_group=None, health=True)

    (node,) = one.survey()

    assert isinstance(node, Misfit)
    assert node.why == "Ironic's record of it lacks the field health"


def test_an_ironic_without_health_is_told_with_the_option_that_asks_for_it() -> None:
    one = IronicClient(Ironic(406), "Ironic", shard="s1", conductor_group=None, health=True)

    with pytest.raises(DiscoveryError, match=r"1\.109 is needed: .* remove \[agent\] reserve_critical_nodes"):
        one.survey()


@pytest.mark.parametrize(("answers", "there"), [((404, {}), True), (({},), True), ((404, 404), False)])
def test_a_node_is_looked_for_in_lower_and_in_upper_case(answers: tuple[Any, ...], there: bool) -> None:
    one, ironic = driver(*answers)

    assert one.is_there("0abc") is there
    assert [url.partition("?")[0] for url in ironic.asked] == ["/v1/nodes/0abc", "/v1/nodes/0ABC"][: len(answers)]


def test_a_busy_ironic_is_asked_again() -> None:
    one, ironic = driver(page(1))

    one.survey()

    assert ironic.retries == (REQUEST_TRIES - 1, BUSY)
    assert {409, 429, 500, 503, 504} <= set(BUSY)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (500, r"with 500: .* \(5 tries\): see Ironic's log"),
        (401, "with 401: check the user and its roles"),
        (406, "1.37 is needed: upgrade Ironic"),
        (400, "with 400, .*does the endpoint lead to Ironic"),
        (300, "with 300, .*does the endpoint lead to Ironic"),
        ({"nodes": 5}, "answered with no listing of nodes: nodes is no list"),
        ({}, "answered with no listing of nodes: 'nodes'"),
        (OSError("gone"), "that .ironic. names cannot be read"),
    ],
)
def test_a_listing_that_is_not_whole_is_an_error(answer: Any, message: str) -> None:
    one, _ = driver(page(1, marker=1), answer)

    with pytest.raises(DiscoveryError, match=message):
        one.survey()


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        pytest.param(exceptions.ConnectFailure("x"), "right in .ironic.", id="nobody there"),
        pytest.param(exceptions.ConnectTimeout("http://k/v3/auth/tokens"), "Keystone gives no token", id="no Keystone"),
        pytest.param(exceptions.UnknownConnectionError("x", OSError()), "the request failed", id="anything else"),
    ],
)
def test_a_request_to_ironic_that_gets_no_answer_ends_with_advice(error: Exception, advice: str) -> None:
    one, _ = driver(error)

    with pytest.raises(DiscoveryError, match=f"^Ironic: .*{advice}"):
        one.survey()


def test_a_node_that_is_listed_twice_is_reported_once() -> None:
    one, _ = driver(page(1, 2, marker=2), page(2, 3))

    assert [node.uuid for node in one.survey()] == [uuid_of(1), uuid_of(2), uuid_of(3)]
