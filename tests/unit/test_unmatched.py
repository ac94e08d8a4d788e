"""Entries of provider.yaml that match no provider of this host."""

from pathlib import Path

import pytest

from agent.command.check import check_pass
from agent.errors import ConfigError
from agent.sync.decide.additions import Addition
from agent.sync.decide.wanted import ignored, lost_entries, resembling, unmatched
from agent.sync.outcome import Status
from beds.one_host import FORCE, OneHost
from drivers.policy import DevicePolicy, Policy
from hardware import card, host
from reportclient.ownership import Names
from reportclient.renaming import child_uuid
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

NIC = "0000:81:00.0"
CLASS = "CUSTOM_LICENSE"


@pytest.fixture
def one(tmp_path: Path) -> OneHost:
    """A host with a card, to which a file of the operator's added a class and a trait."""
    found = OneHost(tmp_path, host(*card(NIC)), Policy(layout="devices", devices=DevicePolicy(discover_all=True)))
    found.write_provider_config(NIC, CLASS, 8, traits=("CUSTOM_FAST",))
    assert found.sync().status is Status.CHANGED
    assert found.stock(NIC)[CLASS] == (8, 0)
    return found


@pytest.mark.parametrize("suffix", ["0000:81:00.1", "0000-81-00.0", "elsewhere"])
def test_a_name_that_matches_nothing_anywhere_withdraws_nothing(one: OneHost, suffix: str) -> None:
    one.write_provider_config(suffix, CLASS, 8, traits=("CUSTOM_FAST",))
    before = one.tree()

    with pytest.raises(
        ConfigError, match=rf"own.yaml: .* host_{suffix}\. .* so CUSTOM_FAST, .* write name host_{NIC} in"
    ):
        one.sync()

    assert one.tree().by_name == before.by_name
    one.write_provider_config(NIC, CLASS, 8, traits=("CUSTOM_FAST",))
    assert one.sync().status is Status.UNCHANGED


def test_a_trait_alone_is_not_withdrawn_by_a_wrong_name_either(one: OneHost) -> None:
    one.write_provider_config("elsewhere", "CUSTOM_OTHER", 8, traits=("CUSTOM_FAST",))

    with pytest.raises(ConfigError, match=f"CUSTOM_FAST would be removed from host_{NIC}"):
        one.sync()


def test_an_entry_of_another_host_in_placement_does_not_hold_a_withdrawal_up(one: OneHost) -> None:
    one.send("POST", "/resource_providers", {"name": "host_elsewhere"})
    one.write_provider_config("elsewhere", CLASS, 8, traits=("CUSTOM_FAST",))

    assert one.sync().status is Status.CHANGED
    assert CLASS not in one.stock(NIC)


def test_an_entry_of_another_host_by_uuid_does_not_hold_a_withdrawal_up(one: OneHost) -> None:
    made = one.send("POST", "/resource_providers", {"name": "another"})
    path = one.settings.operator_files.folder / "own.yaml"
    path.write_text(path.read_text().replace(f'"name": "host_{NIC}"', f'"uuid": "{made["uuid"]}"'))

    assert one.sync().status is Status.CHANGED
    assert CLASS not in one.stock(NIC)


def test_a_uuid_that_is_nowhere_withdraws_nothing(one: OneHost) -> None:
    path = one.settings.operator_files.folder / "own.yaml"
    path.write_text(path.read_text().replace(f'"name": "host_{NIC}"', '"uuid": "00000000-0000-0000-0000-00000000000f"'))

    with pytest.raises(ConfigError, match="no provider 00000000-0000-0000-0000-00000000000f"):
        one.sync()


def test_an_empty_folder_withdraws_nothing_unless_a_person_says_so(one: OneHost) -> None:
    (one.settings.operator_files.folder / "own.yaml").unlink()
    before = one.tree()

    for _ in range(4):
        with pytest.raises(ConfigError, match=r"provider_config has no \*.yaml file, so all .* or run sync --force"):
            one.sync()

    assert one.tree().by_name == before.by_name
    assert one.sync(FORCE).status is Status.CHANGED
    assert CLASS not in one.stock(NIC)
    assert one.sync().status is Status.UNCHANGED


def test_a_file_without_providers_withdraws_everything(one: OneHost) -> None:
    (one.settings.operator_files.folder / "own.yaml").write_text("meta: {schema_version: '1.0'}\n")

    assert one.sync().status is Status.CHANGED
    assert (CLASS in one.stock(NIC), "CUSTOM_FAST" in one.traits(NIC)) == (False, False)


def test_a_card_that_is_gone_is_no_wrong_name(one: OneHost) -> None:
    assert one.sync(facts=host()).status is not Status.FAILED


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("hots", 1, id="two letters in the wrong order"),
        pytest.param("hosts", 1, id="nearly this host's"),
        pytest.param("host_0000:81:00.1", 1, id="of this host"),
        pytest.param("elsewhere", 0, id="another host's"),
        pytest.param("host1", 0, id="another host's that placement has"),
    ],
)
def test_the_check_names_entries_that_are_nearly_a_provider_of_this_host(one: OneHost, name: str, count: int) -> None:
    one.send("POST", "/resource_providers", {"name": "host1"})
    one.write_provider_config(NIC, CLASS, 8, traits=("CUSTOM_FAST",))
    path = one.settings.operator_files.folder / "own.yaml"
    (one.settings.operator_files.folder / "b.yaml").write_text(path.read_text().replace(f"host_{NIC}", name))
    node = one.node

    _, *found = check_pass(node, node.survey())

    assert len(found) == count
    assert all(f"called {name}: is host" in check.detail and not check.ok for check in found)


def test_the_check_asks_once_whether_placement_has_a_name_like_this_hosts(one: OneHost) -> None:
    one.send("POST", "/resource_providers", {"name": "host1"})
    folder, asked = one.settings.operator_files.folder, []
    for name in ("elsewhere", "host1"):
        (folder / "b.yaml").write_text((folder / "own.yaml").read_text().replace(f"host_{NIC}", name))
        before = one.sender.reads
        tuple(check_pass(one.node, one.node.survey()))
        asked.append(one.sender.reads - before)

    assert asked[1] == asked[0] + 1


ROOT_UUID = "00000000-0000-0000-0000-000000000001"
DESIRED = ProviderTree((Provider(name="host"), Provider(name="host_card", parent="host")))


def entry(provider: str, *classes: str) -> Addition:
    stock = {name: Inventory(total=1) for name in classes}
    return Addition(provider=provider, source=Path("a.yaml"), inventories=stock, traits=frozenset())


def test_an_entry_matches_by_any_name_that_a_provider_has_or_is_to_have() -> None:
    standing = ObservedTree((ObservedProvider(uuid="of-old", generation=1, provider=Provider(name="old")),))
    child = child_uuid(ROOT_UUID, "host", "host_card")
    matching = ("$COMPUTE_NODE", ROOT_UUID, "host", "host_card", child, "old", "of-old")

    found = unmatched(map(entry, (*matching, "elsewhere")), ROOT_UUID, DESIRED, standing)

    assert [one.provider for one in found] == ["elsewhere"]


def test_an_entry_that_begins_like_this_host_is_an_error_in_typing_whatever_follows() -> None:
    far, other = entry("host_is_where_this_name_begins_and_no_more"), entry("another")

    for told in (ignored((far,), DESIRED), resembling((far, other), DESIRED, lambda _: False)):
        assert [one.partition(":")[2].split(": ")[0] for one in told] == [
            f" no provider of this host is called {far.provider}"
        ]


def test_a_name_that_matches_nothing_is_told_at_each_pass(one: OneHost) -> None:
    text = (one.settings.operator_files.folder / "own.yaml").read_text()
    other = one.settings.operator_files.folder / "z.yaml"
    other.write_text(text.replace(f"host_{NIC}", "elsewhere"))

    assert [note for note in one.sync().notes if "elsewhere" in note] == [
        f"entries of provider.yaml match no provider of this host, and are ignored: elsewhere ({other}): correct "
        f"their names, unless they are other hosts'"
    ]


def test_what_the_files_never_gave_is_not_lost_with_an_entry() -> None:
    stock = {name: Inventory(total=1) for name in ("CUSTOM_OF_FILE", "CUSTOM_OF_OTHERS")}
    stands = ObservedTree(
        (ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=stock)),)
    )
    before = {"host": Names(frozenset({"CUSTOM_OF_FILE"}))}

    found = lost_entries((entry("x", "CUSTOM_OF_OTHERS"), entry("y", "CUSTOM_OF_FILE")), before, stands, ())

    assert found.keys() == {"y"}
