"""A host that is called otherwise keeps its tree, wherever the renaming was cut off."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from agent.errors import ConfigError
from agent.sync.decide.view import Wishes
from agent.sync.outcome import Status
from beds.one_host import FORCE, Cut, OneHost
from drivers.policy import OF_CELLS, DevicePolicy, DeviceRule, Layout, MdevRule, Policy
from hardware import card, gpu, host, parent, plain
from reportclient.errors import TreeMismatch
from reportclient.ownership import MARKER
from reportclient.renaming import as_called, child_uuid, former_name
from reportclient.tree import ObservedProvider, ObservedTree, Provider

NIC, ONCE, GPU, OTHER = "0000:81:00.0", "0000:05:00.0", "pci_0000_84_00_0", "pci_0000_85_00_0"
RENAME = Wishes(rename_from="host", force=True)
Start = Callable[..., OneHost]


def facts(vfs: int = 4) -> object:
    gpus = gpu(), gpu("0000:85:00.0")
    return host(*card(NIC, vfs), plain(ONCE), *gpus, parents=(parent(gpus[0], a=4), parent(gpus[1], a=4)))


DEVICES = DevicePolicy(
    report=True,
    discover_all=True,
    rules=(DeviceRule(number=1, product_id="1533", resource_class="CUSTOM_NIC", one_time_use=True),),
    mdevs=(MdevRule(type="a"),),
)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a host on whose tree all is set by hand that can be forgotten."""

    def begin(layout: Layout, folder: str = "one") -> OneHost:
        path = tmp_path / folder
        path.mkdir()
        one = OneHost(path, facts(), Policy(layout=layout, devices=DEVICES))  # type: ignore[arg-type]
        one.sync()
        one.set_by_hand(NIC, "SRIOV_NET_VF", reserved=1)
        one.set_by_hand(GPU, "VGPU", reserved=2)
        if layout in OF_CELLS:
            one.set_by_hand("NUMA0", "VCPU", allocation_ratio=7.0)
        one.claim({ONCE: {"CUSTOM_NIC": 1}})
        one.sync()
        one.claim({NIC: {"SRIOV_NET_VF": 3}, GPU: {"VGPU": 1}})  # the one-time device was used by a guest that is gone
        one.sync(FORCE, facts=facts(vfs=2))
        one.make_as_nova(OTHER, "VGPU")
        one.set_by_hand(OTHER, "VGPU", reserved=1)
        one.claim({OTHER: {"VGPU": 2}}, consumer="6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d43")  # as a guest has it
        return one

    return begin


def renamed(one: OneHost) -> None:
    one.facts = replace(one.facts, hostname="new")


def stands(tree: ObservedTree) -> dict[str, object]:
    """All that stands, but for generations."""
    return {seen.uuid: seen.provider for seen in tree}


def count(one: OneHost) -> int:
    one.sender.writes = 0
    renamed(one)
    assert one.sync(RENAME).status is Status.CHANGED
    return one.sender.writes


@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
def test_a_renaming_that_is_cut_off_at_any_request_is_finished_by_the_same_command(
    start: Start, layout: Layout
) -> None:
    undisturbed = start(layout)
    expected_names = {seen.name.replace("host", "new", 1): seen.uuid for seen in undisturbed.tree()}
    number = count(undisturbed)
    expected = stands(undisturbed.tree())
    assert {seen.name: seen.uuid for seen in undisturbed.tree()} == expected_names
    assert undisturbed.stock(ONCE) == {"CUSTOM_NIC": (1, 1)}
    assert undisturbed.sync().status is Status.UNCHANGED

    for at in range(number):
        one = start(layout, f"cut-{at}")
        renamed(one)
        with suppress(Cut), one.ending_after(at):
            one.sync(RENAME)

        assert one.sync(RENAME).status in (Status.CHANGED, Status.UNCHANGED), at
        assert stands(one.tree()) == expected, at


def test_a_renaming_that_was_cut_off_is_named_by_a_pass_without_the_word(start: Start) -> None:
    """The root's name is the last to change: until then the pass says what to run."""
    one = start("devices")
    renamed(one)
    with suppress(Cut), one.ending_after(2):
        one.sync(RENAME)

    with pytest.raises(TreeMismatch, match="sync --rename-from host"):
        one.sync()


@pytest.mark.parametrize("wishes", [RENAME, FORCE])
@pytest.mark.parametrize("layout", ["devices", "cells", "numa"])
def test_a_tree_whose_root_was_renamed_first_is_finished_too(start: Start, layout: Layout, wishes: Wishes) -> None:
    """As version 0.1.0 left it when it was cut off; the uuids of our children tell what the host was called."""
    undisturbed = start(layout)
    count(undisturbed)
    one = start(layout, "other")
    root = one.tree().root
    assert root is not None
    one.send("PUT", f"/resource_providers/{root.uuid}", {"name": "new"})
    renamed(one)

    assert one.sync(wishes).status is Status.CHANGED
    assert stands(one.tree()) == stands(undisturbed.tree())


def test_nothing_is_reshaped_for_a_name(start: Start) -> None:
    one = start("numa")
    renamed(one)
    plan = one.foresee(RENAME).plan

    assert not plan.moves
    names = [step.name for step in plan.operations if type(step).__name__ == "Rename"]
    assert names[-1] == "new"
    assert all(isinstance(seen, ObservedProvider) and seen.provider for seen in one.tree())
    assert MARKER in one.tree().providers[0].provider.traits


@pytest.mark.parametrize("is_lost", [False, True], ids=["known", "state lost"])
@pytest.mark.parametrize("suffix", ["", f"_{NIC}"], ids=["root", "child"])
def test_a_file_with_the_former_name_is_named_before_anything_is_withdrawn(
    tmp_path: Path, suffix: str, *, is_lost: bool
) -> None:
    one = OneHost(tmp_path, facts(), Policy(layout="devices", devices=DEVICES))  # type: ignore[arg-type]
    write_entry(one, f"host{suffix}")
    one.sync()
    if is_lost:
        one.forget()
    renamed = replace(one.facts, hostname="renamed")

    with pytest.raises(ConfigError, match=rf"own.yaml: .* no provider host{suffix}\. .* write name renamed{suffix} in"):
        one.sync(RENAME, facts=renamed)

    assert f"host{suffix}" in one.tree().by_name
    write_entry(one, f"renamed{suffix}")
    assert one.sync(RENAME).status is Status.CHANGED
    assert one.stock(suffix.removeprefix("_"))["CUSTOM_TOKEN"] == (4, 0)


def write_entry(one: OneHost, name: str) -> None:
    """A file that adds a class to the provider of this name."""
    folder = one.settings.operator_files.folder
    folder.mkdir(exist_ok=True)
    (folder / "own.yaml").write_text(
        f"{{meta: {{schema_version: '1.0'}}, providers: [{{identification: {{name: '{name}'}}, "
        f"inventories: {{additional: [{{CUSTOM_TOKEN: {{total: 4}}}}]}}}}]}}"
    )


def below(*children: tuple[str, str, frozenset[str]]) -> ObservedTree:
    """A host that is called ``new`` with children of these names, uuids and traits."""
    root = ObservedProvider(uuid=str(UUID(int=1)), generation=1, provider=Provider(name="new"))
    return ObservedTree(
        (
            root,
            *(
                ObservedProvider(uuid=uuid, generation=1, provider=Provider(name=name, parent="new", traits=traits))
                for name, uuid, traits in children
            ),
        )
    )


MARKED, FOREIGN = frozenset({MARKER}), str(UUID(int=2))


def test_a_child_that_we_made_tells_what_its_host_was_called() -> None:
    ours = child_uuid(str(UUID(int=1)), "old", "old_0000:81:00.0")

    assert former_name(below(("old_0000:81:00.0", ours, MARKED))) == "old"
    assert former_name(below(("old_0000:81:00.0", ours, frozenset()))) == "old"  # its marking was cut off
    assert former_name(below(("new_0000:81:00.0", ours, MARKED))) is None


def test_a_child_of_ours_that_nova_made_is_called_after_its_device() -> None:
    taken = below(("old_0000:81:00.0", FOREIGN, MARKED))

    assert former_name(taken, ["_0000:05:00.0", "_0000:81:00.0"]) == "old"


def test_a_child_of_ours_after_which_no_device_here_is_called_is_no_host_of_ours() -> None:
    taken = below(("old_0000:81:00.0", FOREIGN, MARKED))

    with pytest.raises(TreeMismatch, match=r"old_0000:81:00\.0 .* does not begin with new_: if the host was renamed"):
        former_name(taken, ["_0000:05:00.0"])


def test_a_child_of_others_does_not_tell_what_a_host_was_called() -> None:
    assert former_name(below(("old:switch", FOREIGN, frozenset({"OWNER_CYBORG"})))) is None


def test_a_child_does_not_get_the_name_that_another_providers_child_has() -> None:
    ours = child_uuid(str(UUID(int=1)), "new", "new_0000:81:00.0")
    foreign = ("old_0000:81:00.0", FOREIGN, frozenset({"OWNER_CYBORG"}))
    both = below(("new_0000:81:00.0", ours, MARKED), foreign, ("new_x", "x", MARKED), ("new_y", "y", frozenset()))

    names = {seen.uuid: seen.name for seen in as_called(both, "old", "new")}

    assert (names[ours], names[FOREIGN]) == ("new_0000:81:00.0", "old_0000:81:00.0")
    assert (names["x"], names["y"]) == ("old_x", "new_y")
