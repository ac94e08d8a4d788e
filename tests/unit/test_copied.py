"""What stands on a provider and is an operator's or another service's never becomes something that we reported."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.sync.outcome import Status
from beds.one_host import FORCE, OneHost, begun
from drivers.facts import DiskSpace, DiskUnread, HostFacts, PciFunction
from drivers.policy import DevicePolicy, DeviceRule, MdevRule, Policy, RuleNetwork
from drivers.rules import parse_rule
from hardware import card, gpu, host, parent, rules
from reportclient.payload import encode_inventories
from reportclient.tree import Inventory, ObservedTree

GPU, NIC = "pci_0000_84_00_0", "0000:81:00.0"
TYPE = MdevRule(type="a", addresses=frozenset({"0000:84:00.0"}), resource_class="CUSTOM_A")
OTHER = MdevRule(type="b", addresses=frozenset({"0000:85:00.0"}), resource_class="CUSTOM_B")
SPEAKING = host(gpu(), gpu("0000:85:00.0"), parents=(parent(gpu(), a=4), parent(gpu("0000:85:00.0"), b=4)))
SILENT = host(gpu(driver=None), gpu("0000:85:00.0"), parents=(parent(gpu("0000:85:00.0"), b=4),))
BOTH = DevicePolicy(mdevs=(TYPE, OTHER))
KIND = "vendor/kind"
BY_FILE = DeviceRule(number=1, product_id="1515", class_attribute=KIND)
VFS = DeviceRule(number=1, product_id="1515", resource_class="CUSTOM_VF")
Start = Callable[[HostFacts, DevicePolicy], OneHost]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host of these facts, and makes its first pass."""
    return partial(begun, tmp_path)


def nic(*kinds: str) -> tuple[PciFunction, ...]:
    """A card with two VFs, which show what they are; without ``kinds`` they show nothing."""
    pf, *vfs = card(NIC, 2, net_devices=())
    if not kinds:
        return (pf, *vfs)
    return (pf, *(replace(vf, attributes=((KIND, kind),)) for vf, kind in zip(vfs, kinds, strict=True)))


def own(one: OneHost, suffix: str) -> frozenset[str]:
    """The traits of a provider that are neither standard nor this agent's marks."""
    found = {name for name in one.traits(suffix) if name.startswith(("CUSTOM_", "OWNER_"))}
    return frozenset(found - one.marks(suffix) - {"CUSTOM_OWNER_COMPUTE_NODE_AGENT"})


def with_rule(one: OneHost, *found: DeviceRule) -> Policy:
    return replace(one.policy, devices=rules(*found))


def test_an_operators_trait_on_a_gpu_outlives_the_loss_of_its_driver(start: Start) -> None:
    one = start(SPEAKING, BOTH)
    one.put_trait(GPU, "CUSTOM_RACK_7")

    one.sync(facts=SILENT)
    one.sync()
    assert (one.stock(GPU), own(one, GPU)) == ({"CUSTOM_A": (4, 4)}, frozenset({"CUSTOM_RACK_7"}))
    one.sync(facts=SPEAKING)

    assert (one.stock(GPU), own(one, GPU)) == ({"CUSTOM_A": (4, 0)}, frozenset({"CUSTOM_RACK_7"}))


def test_a_gpu_that_another_service_took_is_not_touched_when_its_driver_goes(start: Start) -> None:
    one = start(SPEAKING, BOTH)
    one.put_trait(GPU, "OWNER_CYBORG")
    one.sync(policy=replace(one.policy, devices=DevicePolicy(mdevs=(OTHER,))))
    taken = one.tree().by_name[f"host_{GPU}"]

    for facts in (SILENT, SILENT, SPEAKING):
        one.sync(FORCE, facts=facts)

        assert one.tree().by_name[f"host_{GPU}"] == taken


def test_a_gpu_with_another_services_mark_and_a_type_of_ours_is_not_touched_when_its_driver_goes(start: Start) -> None:
    one = start(SPEAKING, BOTH)
    one.put_trait(GPU, "OWNER_CYBORG")
    taken = one.tree().by_name[f"host_{GPU}"]

    one.sync(FORCE, facts=SILENT)

    assert one.tree().by_name[f"host_{GPU}"] == taken


def test_a_card_that_another_service_took_is_not_touched_while_its_vfs_show_nothing(start: Start) -> None:
    one = start(host(*nic("7", "7")), rules(BY_FILE))
    one.put_trait(NIC, "OWNER_CYBORG")
    taken = one.tree().by_name[f"host_{NIC}"]

    one.sync(FORCE, facts=host(*nic()))

    assert one.tree().by_name[f"host_{NIC}"] == taken


def test_an_operators_trait_on_a_card_outlives_the_silence_of_its_vfs(start: Start) -> None:
    one = start(host(*nic("7", "7")), rules(replace(BY_FILE, traits=frozenset({"CUSTOM_GOLD"}))))
    one.put_trait(NIC, "CUSTOM_RACK_7")

    one.sync(facts=host(*nic()))
    assert own(one, NIC) == {"CUSTOM_RACK_7", "CUSTOM_GOLD"}
    one.sync(policy=with_rule(one, BY_FILE))
    assert own(one, NIC) == {"CUSTOM_RACK_7", "CUSTOM_GOLD"}, "it stays as it is until the VFs are back"
    one.sync(facts=host(*nic("7", "7")))

    assert own(one, NIC) == {"CUSTOM_RACK_7"}


def test_the_type_of_a_gpu_without_a_driver_can_be_withdrawn(start: Start) -> None:
    one = start(SPEAKING, BOTH)
    one.sync(facts=SILENT)

    one.sync(policy=replace(one.policy, devices=DevicePolicy(mdevs=(OTHER,))))

    assert one.stock(GPU) == {}
    assert one.stock("pci_0000_85_00_0") == {"CUSTOM_B": (4, 0)}


@pytest.mark.parametrize(
    ("suffix", "devices", "speaking", "silent"),
    [
        pytest.param(GPU, BOTH, SPEAKING, SILENT, id="gpu without driver"),
        pytest.param(NIC, rules(BY_FILE), host(*nic("7", "7")), host(*nic()), id="silent VFs"),
    ],
)
def test_what_files_add_to_a_device_stays_theirs_while_the_device_tells_nothing(
    start: Start, suffix: str, devices: DevicePolicy, speaking: HostFacts, silent: HostFacts
) -> None:
    one = start(speaking, devices)
    one.write_provider_config(suffix, "CUSTOM_TOKEN", 4, traits=("CUSTOM_FAST", "CUSTOM_OWNER_TEAM_A"), reserved=1)
    one.sync()
    before: ObservedTree = one.tree()

    assert one.sync(facts=silent).status is Status.CHANGED
    (device,) = one.stock(suffix).keys() - {"CUSTOM_TOKEN"}
    total = one.stock(suffix)[device][0]
    assert one.stock(suffix) == {device: (total, total), "CUSTOM_TOKEN": (4, 1)}
    assert one.sync().status is Status.UNCHANGED
    one.sync(facts=speaking)
    assert one.tree().by_name[f"host_{suffix}"].provider == before.by_name[f"host_{suffix}"].provider

    one.sync(facts=silent)
    one.write_provider_config("elsewhere", "CUSTOM_OTHER", 4)
    one.sync(FORCE)

    assert f"host_{suffix}" not in one.tree().by_name, "a person takes it away by --force"


def test_a_file_does_not_put_a_device_without_driver_on_offer(start: Start) -> None:
    one = start(SPEAKING, BOTH)
    one.sync(facts=SILENT)

    one.write_provider_config(GPU, "CUSTOM_A", 4)

    with pytest.raises(ConfigError, match="CUSTOM_A of host_pci_0000_84_00_0 is reported by the driver"):
        one.sync()


def test_an_owners_mark_that_a_rule_no_longer_gives_is_ours_while_the_vfs_show_nothing(start: Start) -> None:
    one = start(host(*nic("7", "7")), rules(replace(BY_FILE, traits=frozenset({"CUSTOM_OWNER_TEAM_A"}))))

    one.sync(facts=host(*nic()), policy=with_rule(one, BY_FILE))

    assert (one.stock(NIC), own(one, NIC)) == ({"CUSTOM_VENDOR_7": (2, 2)}, frozenset())


def test_a_rules_trait_on_a_held_device_goes_once_the_device_is_back_without_it(start: Start) -> None:
    one = start(host(*nic()), rules(replace(VFS, traits=frozenset({"CUSTOM_GOLD"}))))
    one.claim({NIC: {"CUSTOM_VF": 1}})

    one.sync(FORCE, facts=host())
    one.sync()
    assert own(one, NIC) == {"CUSTOM_GOLD"}
    one.sync(facts=host(*nic()), policy=with_rule(one, VFS))

    assert (one.stock(NIC), own(one, NIC)) == ({"CUSTOM_VF": (2, 0)}, frozenset())


def test_a_held_device_with_an_owners_mark_of_our_rule_stays_ours(start: Start) -> None:
    one = start(host(*nic()), rules(replace(VFS, traits=frozenset({"CUSTOM_OWNER_TEAM_A"}))))
    one.claim({NIC: {"CUSTOM_VF": 1}})
    one.sync(policy=with_rule(one))
    assert one.sync().notes, "it is still known to be held"

    one.claim({})
    one.sync()

    assert f"host_{NIC}" not in one.tree().by_name


def test_a_files_trait_on_a_held_device_goes_once_the_file_is_withdrawn_and_the_device_back(start: Start) -> None:
    one = start(host(*nic()), rules(VFS))
    one.write_provider_config(NIC, "CUSTOM_TOKEN", 4, traits=("CUSTOM_FAST",))
    one.sync()
    one.claim({NIC: {"CUSTOM_VF": 1}})
    one.sync(policy=with_rule(one))

    one.write_provider_config("elsewhere", "CUSTOM_OTHER", 4)
    one.sync()
    one.sync()
    one.sync(policy=with_rule(one, VFS))

    assert (one.stock(NIC), own(one, NIC)) == ({"CUSTOM_VF": (2, 0)}, frozenset())


def test_a_rules_trait_on_a_card_that_another_service_had_goes_once_the_card_is_back(start: Start) -> None:
    one = start(host(*nic()), rules(replace(VFS, traits=frozenset({"CUSTOM_GOLD"}))))
    one.put_trait(NIC, "OWNER_CYBORG")
    one.sync(policy=with_rule(one))
    one.sync()

    one.put_trait(NIC, "OWNER_CYBORG", away=True)
    one.sync(policy=with_rule(one, VFS))

    assert own(one, NIC) == frozenset()


@pytest.mark.parametrize("name", ["CUSTOM_PHYSNET_BLUE", "CUSTOM_MEMORY_PAGE_SIZE_MINE"])
def test_a_network_that_a_person_puts_on_a_card_stays_and_one_that_a_rule_gave_goes_with_it(
    start: Start, name: str
) -> None:
    """Of names that look like ours only those that are ours go."""
    one = start(host(*nic()), rules(replace(VFS, network=RuleNetwork(name="red"))))
    one.put_trait(NIC, name)

    assert one.sync().status is Status.UNCHANGED
    one.sync(policy=with_rule(one, VFS))
    one.forget()
    one.sync()

    assert own(one, NIC) == {name}


def test_a_restored_disk_of_before_a_class_was_renamed_offers_no_device_under_both_names(tmp_path: Path) -> None:
    """State and configuration are of an earlier moment than placement."""
    first, second = (rules(replace(VFS, resource_class=f"CUSTOM_{name}")) for name in "AB")
    one = OneHost(tmp_path, host(*card(NIC, 8)), Policy(layout="flat", devices=first))
    one.sync()
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    one.sync(FORCE, policy=replace(one.policy, devices=second))
    for path, content in kept.items():
        path.write_bytes(content)

    for wishes in (FORCE, replace(FORCE, take_over=True), FORCE):
        refused = one.sync(wishes, policy=replace(one.policy, devices=first))
        assert (refused.status, one.stock().get("CUSTOM_A"), one.stock()["CUSTOM_B"]) == (Status.UNSAFE, None, (8, 0))
        assert "has CUSTOM_B, which this agent does not know" in refused.notes[0]
    assert one.sync(policy=replace(one.policy, devices=second)).status is Status.UNCHANGED
    assert one.sync(FORCE, policy=replace(one.policy, devices=first)).status is Status.CHANGED
    assert (one.stock()["CUSTOM_A"], one.stock().get("CUSTOM_B")) == ((8, 0), None)


def test_a_state_of_before_a_card_was_offered_offers_it_under_no_second_name(tmp_path: Path) -> None:
    first, second = (rules(replace(VFS, resource_class=f"CUSTOM_{name}")) for name in "AB")
    one = OneHost(tmp_path, host(*card(NIC, 8)), Policy(layout="flat"))
    one.sync()
    kept = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    one.sync(policy=replace(one.policy, devices=first))
    for path, content in kept.items():
        path.write_bytes(content)

    refused = one.sync(FORCE, policy=replace(one.policy, devices=second))

    assert (refused.status, one.stock()["CUSTOM_A"], one.stock().get("CUSTOM_B")) == (Status.UNSAFE, (8, 0), None)
    one.sync(policy=replace(one.policy, devices=first))
    assert one.sync(FORCE, policy=replace(one.policy, devices=second)).status is Status.CHANGED
    assert (one.stock().get("CUSTOM_A"), one.stock()["CUSTOM_B"]) == (None, (8, 0))


def test_a_class_there_and_back_soon_after_a_boot_is_not_on_offer_twice_if_the_state_is_lost(tmp_path: Path) -> None:
    first, second = (rules(replace(VFS, resource_class=f"CUSTOM_{name}")) for name in "AB")
    one = OneHost(tmp_path, host(*card(NIC, 8)), Policy(layout="flat", devices=first))
    one.uptime_s = 120.0
    one.sync()
    one.sync(policy=replace(one.policy, devices=second))
    assert (one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == ((8, 8), (8, 0))
    for path in tmp_path.glob("*.json"):
        path.unlink()

    refused = one.sync(policy=replace(one.policy, devices=first))

    assert (refused.status, one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == (Status.UNSAFE, (8, 8), (8, 0))
    one.sync(policy=replace(one.policy, devices=second))
    one.sync(policy=replace(one.policy, devices=first))
    assert (one.stock()["CUSTOM_A"], one.stock()["CUSTOM_B"]) == ((8, 0), (8, 8))


def test_a_card_that_joins_anothers_class_is_not_on_offer_twice_if_the_state_is_lost(tmp_path: Path) -> None:
    own = parse_rule({"address": "0000:85:00.0", "product_id": "1515", "resource_class": "CUSTOM_B"}, 1)
    apart, alike = rules(own, VFS), rules(VFS)
    cards = host(*card(NIC, 8), *card("0000:85:00.0", 8))
    one = OneHost(tmp_path, cards, Policy(layout="flat", devices=apart))
    one.sync()
    for path in tmp_path.glob("*.json"):
        path.unlink()

    refused = one.sync(FORCE, policy=replace(one.policy, devices=alike))

    assert (refused.status, one.stock()["CUSTOM_VF"], one.stock()["CUSTOM_B"]) == (Status.UNSAFE, (8, 0), (8, 0))
    one.sync(policy=replace(one.policy, devices=apart))
    assert one.sync(FORCE, policy=replace(one.policy, devices=alike)).status is Status.CHANGED
    assert (one.stock()["CUSTOM_VF"], one.stock().get("CUSTOM_B")) == ((16, 0), None)


def test_an_inventory_that_somebody_replaced_as_a_whole_is_written_again(tmp_path: Path) -> None:
    """``openstack resource provider inventory set`` without ``--amend``."""
    one = OneHost(tmp_path, host(*card(NIC, 8)), Policy(layout="flat", devices=rules(VFS)))
    one.sync()
    before, root = one.stock(), one.tree().providers[0]
    body = encode_inventories({"CUSTOM_LICENCE": Inventory(total=3)}, root.generation)
    one.send("PUT", "/resource_classes/CUSTOM_LICENCE")
    one.send("PUT", f"/resource_providers/{root.uuid}/inventories", body)

    for _ in range(4):
        one.sync()

    assert one.stock() == {**before, "CUSTOM_LICENCE": (3, 0)}


@pytest.mark.parametrize(("ratio", "later"), [(2.0, 2.0), (16.0, 4.0)])
def test_a_ratio_that_a_second_writer_raised_does_not_count_and_a_lower_one_stays(
    start: Start, ratio: float, later: float
) -> None:
    one = start(SPEAKING, BOTH)
    assert (one.sync().status, one.ratios("VCPU")) == (Status.UNCHANGED, {"host": 4.0})

    one.set_by_hand("", "VCPU", allocation_ratio=ratio, total=3, max_unit=3)  # the total is a sign of another writer
    one.sync()

    assert (one.stock()["VCPU"], one.ratios("VCPU")) == ((4, 0), {"host": later})


def test_a_limit_of_devices_that_a_hand_lowered_stays_by_an_older_memory(start: Start) -> None:
    one = start(host(*nic()), rules(VFS))
    one.sync()
    one.set_by_hand(NIC, "CUSTOM_VF", allocation_ratio=0.5, max_unit=1, total=3)  # the total is another writer's
    one.sync()

    stock = one.tree().by_name[f"host_{NIC}"].provider.inventories["CUSTOM_VF"]
    assert (stock.total, stock.max_unit, stock.allocation_ratio) == (2, 1, 0.5)


@pytest.mark.parametrize("total", [1, 3])
def test_a_limit_that_is_only_a_second_writers_total_does_not_stay(start: Start, total: int) -> None:
    one = start(host(*nic()), rules(VFS))
    one.sync()
    one.set_by_hand(NIC, "CUSTOM_VF", total=total, max_unit=total)
    one.sync()

    stock = one.tree().by_name[f"host_{NIC}"].provider.inventories["CUSTOM_VF"]
    assert (stock.total, stock.max_unit, stock.allocation_ratio) == (2, 2, 1.0)


def test_a_ratio_that_a_hand_lowered_stays_by_a_memory_of_before_its_class(start: Start) -> None:
    one = start(SPEAKING, BOTH)
    shared, memory = one.policy, next(one.folder.rglob("a4f1c3f0*.json"))
    one.sync(FORCE, policy=replace(shared, cpus=replace(shared.cpus, dedicated=frozenset({0, 1, 2, 3}))))
    older = memory.read_text(encoding="utf-8")
    one.sync(FORCE, policy=shared)
    one.set_by_hand("", "VCPU", allocation_ratio=1.0)
    memory.write_text(older, encoding="utf-8")

    one.set_by_hand("", "MEMORY_MB", total=1900, max_unit=1900)  # a sign of another writer
    one.sync()

    assert (one.stock()["MEMORY_MB"], one.ratios("VCPU")) == ((2001, 512), {"host": 1.0})


def test_a_total_that_no_look_shows_is_not_raised_by_an_older_memory(start: Start) -> None:
    one = start(replace(host(), disk=DiskSpace(1000 << 30, 0)), DevicePolicy())
    one.sync()
    memory = next(one.folder.rglob("a4f1c3f0*.json"))
    older = memory.read_text(encoding="utf-8")
    one.sync(FORCE, facts=replace(host(), disk=DiskSpace(100 << 30, 0)))
    memory.write_text(older, encoding="utf-8")

    one.set_by_hand("", "VCPU", total=3, max_unit=3)  # a sign of another writer
    one.sync(facts=replace(host(), disk=DiskUnread("the pool does not answer")))

    assert (one.stock()["VCPU"], one.stock()["DISK_GB"]) == ((4, 0), (100, 0))
    assert one.tree().by_name["host"].provider.inventories["DISK_GB"].max_unit == 100


@pytest.mark.parametrize(("then", "now"), [(0, 100), (100, 0), (100, 50)])
def test_what_no_look_shows_of_a_class_stays_as_it_is_whatever_an_older_memory_has(
    start: Start, then: int, now: int
) -> None:
    """GiB of the disk: whether there is any, and how much of it is reserved."""
    one = start(replace(host(), disk=DiskSpace(then << 30, 0)), DevicePolicy())
    one.sync()
    memory = next(one.folder.rglob("a4f1c3f0*.json"))
    older = memory.read_text(encoding="utf-8")
    reserved = replace(one.policy.disk, reserved_mib=(now // 4) << 10)
    one.sync(FORCE, facts=replace(host(), disk=DiskSpace(now << 30, 0)), policy=replace(one.policy, disk=reserved))
    before = one.stock()
    memory.write_text(older, encoding="utf-8")

    one.set_by_hand("", "VCPU", total=3, max_unit=3)  # a sign of another writer
    outcome = one.sync(facts=replace(host(), disk=DiskUnread("the pool does not answer")))

    assert (outcome.status, one.stock()) == (Status.CHANGED, before)
