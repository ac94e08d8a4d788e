"""The audit where nova can be asked: the installed command and the service, real placement, a stand-in for nova."""

import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from beds.agents import Result, run_agent
from beds.by_hand import ByHand
from beds.guests import METADATA
from beds.nova import HOST, SECRET, FakeNova, failing, serving_nova
from beds.placement import PlacementServer
from beds.service import made_up, noauth, serving
from beds.trees import add_consumer, identity
from beds.upgrades import Upgrade, recorded_host

pytestmark = pytest.mark.live

ROOT = "four-cells"
SMALL = {"VCPU": 1, "MEMORY_MB": 512}
LARGE = {"VCPU": 2, "MEMORY_MB": 1024}
OTHERS = {"other-host": {"parent": None, "inventories": {"VCPU": {"total": 8}, "MEMORY_MB": {"total": 8192}}}}
POLICY = """\
heal: [orphaned, missing, wrong-amount, leaked-migration, doubled, guest-lost]
grace_s: 0
again_s: 0
move_s: 0
untyped: true
limit: 10
"""
OWNED = {"metadata": METADATA.format(memory_mib=512, vcpus=1, user="user", project="project")}  # as each of nova's
Lab = Callable[..., Upgrade]


@pytest.fixture
def nova() -> Iterator[tuple[FakeNova, str]]:
    """A nova that knows this host, and its URL."""
    fake = FakeNova(hypervisors={identity(ROOT): HOST})
    with serving_nova(fake) as url:
        yield fake, url


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path, nova: tuple[FakeNova, str]) -> Lab:
    """Makes a host that is up to date, with guests and consumers as nova makes them: without a type."""

    def make(guests: Mapping[str, Mapping[str, Any]], *, login: bool = True, **consumers: Any) -> Upgrade:
        (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
        return recorded_host(
            placement_server.url,
            tmp_path,
            guests=guests,
            providers=OTHERS,
            consumers={name: {"type": None, "allocations": one} for name, one in consumers.items()},
            agent={"audit_grace": 0},
            nova={"auth_type": "none", "endpoint_override": nova[1]} if login else {},
        )

    return make


def told(done: Result) -> set[tuple[str, str | None, bool]]:
    return {(one["kind"], one["consumer"], one["safe"]) for one in done.json["findings"]}


def heal(one: Upgrade, folder: Path) -> Result:
    """Two audits, as nothing is healed at the first look."""
    one.run("audit")
    return one.run("audit", "--heal", "--policy", folder / "policy.yaml")


def held(one: Upgrade) -> dict[str, Any]:
    return {name: record["allocations"] for name, record in one.stands()["consumers"].items()}


def test_a_guest_that_only_libvirt_lost_keeps_its_allocations(
    lab: Lab, nova: tuple[FakeNova, str], tmp_path: Path
) -> None:
    one = lab({}, lost={ROOT: SMALL}, gone={ROOT: SMALL})
    nova[0].add_server(identity("lost"))

    first = one.run("audit")
    done = heal(one, tmp_path)

    assert (first.code, told(first)) == (
        3,
        {("guest-lost", identity("lost"), False), ("orphaned", identity("gone"), True)},
    )
    assert (done.code, held(one)) == (3, {"lost": {ROOT: SMALL}, "gone": {}})
    assert told(one.run("audit")) == {("guest-lost", identity("lost"), False)}


@pytest.mark.parametrize("login", [True, False])
def test_a_resize_on_this_host_that_awaits_its_confirmation_is_left_alone(
    login: bool, lab: Lab, nova: tuple[FakeNova, str], tmp_path: Path
) -> None:
    guest = {"vcpus": 2, "memory_mib": 1024}
    one = lab({"guest": guest}, login=login, guest={ROOT: LARGE}, resize={ROOT: SMALL})
    nova[0].add_server(identity("guest"), status="VERIFY_RESIZE")
    nova[0].add_migration(identity("resize"), of=identity("guest"), status="finished")
    one.placement.add_traits(identity(ROOT), "OWNER_NOVA")  # as nova-compute does at each of its updates
    before = one.stands()

    first, done = one.run("audit"), heal(one, tmp_path)

    assert told(first) == (set() if login else {("orphaned", identity("resize"), False)})
    assert login or all("[nova] auth_type" in each["seen"] for each in first.json["findings"])
    assert (done.code, one.stands()) == (0 if login else 3, before)
    assert bool(nova[0].asked) == login


@pytest.mark.parametrize(
    ("status", "part", "why"),
    [(500, "/", "status 500"), (403, "os-migrations", "with 403")],
)
def test_nothing_is_healed_that_rests_on_a_nova_that_does_not_answer(
    status: int, part: str, why: str, lab: Lab, nova: tuple[FakeNova, str], tmp_path: Path
) -> None:
    one = lab({}, one={ROOT: SMALL}, two={ROOT: SMALL, "other-host": SMALL})
    nova[0].fault = failing(status, part)
    before = one.stands()

    done = heal(one, tmp_path)

    assert (done.code, one.stands()) == (3, before)
    assert {safe for _, _, safe in told(done)} == {False}
    assert why in done.json["nova"]
    assert done.err.count("no finding that needs nova's answer is repaired") == 1
    nova[0].fault = lambda _request: None
    heal(one, tmp_path)
    assert held(one) == {"one": {}, "two": {"other-host": SMALL}}


def test_a_nova_whose_api_is_down_is_told_once(lab: Lab, nova: tuple[FakeNova, str], tmp_path: Path) -> None:
    one = lab({}, login=False, one={ROOT: SMALL})
    more = tmp_path / "nova.conf"
    more.write_text("[nova]\nauth_type = none\nendpoint_override = http://127.0.0.1:9/v2.1\nconnect_retries = 0\n")
    before = one.stands()

    done = one.run("audit", "--config-file", more)

    assert (done.code, one.stands()) == (3, before)
    assert told(done) == {("orphaned", identity("one"), False)}
    assert done.err.count("right in [nova]?") == 1


def test_a_sound_host_costs_nova_no_request(lab: Lab, nova: tuple[FakeNova, str]) -> None:
    one = lab({"guest": OWNED}, guest={ROOT: SMALL})

    done = [one.run("audit"), one.run("audit", "--light")]

    assert [each.code for each in done] == [0, 0]
    assert nova[0].asked == []


def test_listings_of_several_pages_are_read_whole(lab: Lab, nova: tuple[FakeNova, str]) -> None:
    one = lab({}, lost={ROOT: SMALL}, resize={ROOT: SMALL}, gone={ROOT: SMALL})
    nova[0].max_limit = 2
    for number in range(5):
        nova[0].add_server(identity(f"server-{number}"))
        nova[0].add_migration(identity(f"migration-{number}"), of=identity("server-0"), status="done")
    nova[0].add_server(identity("lost"))
    nova[0].add_migration(identity("resize"), of=identity("lost"), status="finished")

    done = one.run("audit")

    assert told(done) == {("guest-lost", identity("lost"), False), ("orphaned", identity("gone"), True)}
    single = [each for each in nova[0].asked if identity("gone") in each]
    assert len(single) == 3
    assert not any(identity("lost") in each for each in nova[0].asked if "marker" not in each)


def test_an_audit_that_asked_nova_is_replayed_without_it_and_holds_no_secret(
    lab: Lab, nova: tuple[FakeNova, str], tmp_path: Path
) -> None:
    one = lab({}, lost={ROOT: SMALL}, gone={ROOT: SMALL})
    nova[0].add_server(identity("lost"))
    case = tmp_path / "case.tar.gz"
    first = one.run("audit", "--save", case)
    count = len(nova[0].asked)
    assert count > 0
    nova[0].fault = failing(500)

    again = run_agent("plan", "--replay", case, "--format", "json")

    assert (again.code, again.out, again.err) == (first.code, first.out, first.err)
    assert len(nova[0].asked) == count
    with tarfile.open(case) as tar:
        texts = {one.name: tar.extractfile(one).read().decode() for one in tar if one.isfile()}  # type: ignore[union-attr]
    assert "os-migrations" in texts["case/nova.jsonl"]
    assert not any(SECRET in text for text in texts.values())


def test_the_service_heals_what_nova_does_not_know_and_tells_once_that_nova_is_away(
    placement_server: PlacementServer, nova: tuple[FakeNova, str], tmp_path: Path
) -> None:
    fake, url = nova
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    agent = {"audit_grace": 0, "full_audit_interval": 1, "heal_policy": tmp_path / "policy.yaml"}
    groups = made_up(tmp_path, noauth(placement_server.url), **agent)
    groups["nova"] = {"auth_type": "none", "endpoint_override": url}
    placement = ByHand(placement_server.url)
    with serving(tmp_path / "service", groups, state=tmp_path / "state") as service:
        service.wait(service.is_ready)
        (root,) = placement.providers().values()
        service.wait_for_passes(2)
        assert fake.asked == []
        fake.hypervisors = {root["uuid"]: HOST}
        fake.add_server(identity("lost"))
        fake.fault = failing(500)
        for name in ("lost", "gone"):
            add_consumer(placement, name, {"type": None, "allocations": {root["name"]: SMALL}})
        service.wait(lambda: "no finding that needs nova's answer is repaired" in service.lines())
        service.wait_for_passes(3)
        assert all(_has(placement, name) for name in ("lost", "gone"))
        assert service.lines().count("no finding that needs nova's answer is repaired") == 1

        fake.fault = lambda _request: None
        service.wait(lambda: not _has(placement, "gone"))
        service.wait_for_passes(2)

        assert _has(placement, "lost")
        assert "finding kind=guest-lost" in service.lines()


def _has(placement: ByHand, name: str) -> bool:
    return bool(placement.send("GET", f"/allocations/{identity(name)}")["allocations"])
