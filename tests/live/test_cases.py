"""What nova reports for a host and a configuration, we report too: the cases, through the installed command."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from beds.agents import Result, run_agent, run_here
from beds.by_hand import ByHand
from beds.cases import set_by_hand, write_archive, write_config, write_pmem, write_sev
from beds.guests import GuestSpec, add_guests
from beds.placement import PlacementServer
from beds.trees import add_consumer, identity, lay_down
from reportclient.ownership import MARKER, OWNER_NOVA
from reportclient.reserve import HELD as HELD_MARK
from reportclient.reserve import LEFT

pytestmark = pytest.mark.live

# What differs from nova by design, and why.
HARDWARE_LOSS = (
    "more than 30 % of a class gone with hardware that is gone too is taken for a fault until three passes in a row "
    "saw it, or a person says --force; nova reports it at once"
)
HELD = (
    "what guests hold of a device that is gone stays as in nova's tree, but all reserved: what one lets go of, nova "
    "offers to others until its next update; CUSTOM_DEVICE_HELD says that this is no operator's reservation"
)
CASES = sorted((Path(__file__).parents[1] / "cases").glob("*.json"))
SEV = {  # what a host of nova's own tests has, as their names and its fake libvirt say; the cases have results only
    "traits__LibvirtReportSevTraitsTests__test_sev_trait_change_1": ("Y N N", "N N N"),
    "traits__LibvirtReportSevTraitsTests__test_sev_trait_change_4": ("Y Y N", "N N N"),
    "traits__LibvirtReportSevTraitsTests__test_sev_trait_off_on_3": ("Y Y N", "Y Y Y"),
    "traits__TestSEV__test_sev_snp_detected_after_restart": ("Y Y N", "Y Y N"),
}


def read_case(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


def reported(path: Path) -> bool:
    """Whether the case is one of a report; else nova refused."""
    steps = read_case(path)["steps"]
    return bool(steps) and not any(step.get("raises") for step in steps)


def reshapes(path: Path) -> bool:
    """Whether the case is one of guests that move: ``test_a_reshape_of_novas`` goes by it."""
    return bool(read_case(path)["kind"] == "reshape")


def heals(path: Path) -> bool:
    """Whether the case is one of allocations that are put right: ``test_healed_cases.py`` goes by it."""
    return bool(read_case(path)["kind"] == "pciheal")


def by_provider(tree: dict[str, Any]) -> dict[str, Any]:
    """Providers with parent, stock, and a child's traits, without what differs by design."""
    return {
        name: (
            provider["parent"],
            provider["inventories"],
            sorted(set(provider["traits"]) - {MARKER, OWNER_NOVA}) if provider["parent"] else None,
        )
        for name, provider in tree["providers"].items()
    }


def sync(*options: object) -> Result:
    """As many passes as a host that became smaller needs (see ``HARDWARE_LOSS``)."""
    for _ in range(3):
        synced = run_agent("sync", *options, "--format", "json")
        if synced.code != 4 or not any("of 3 times in a row" in note for note in synced.json["notes"]):
            break
    return synced


def reserve_held(after: dict[str, Any], notes: list[str]) -> None:
    """Nova's tree with what our pass said to keep for guests only (see ``HELD``) reserved."""
    for note in notes:
        if found := re.match(r"(\S+) keeps (\d+) (\S+), which guests hold", note):
            name, amount, resource_class = found.groups()
            after["providers"][name]["inventories"][resource_class]["reserved"] = int(amount)
            after["providers"][name]["traits"] += [HELD_MARK, f"{LEFT}{amount}_{resource_class}"]


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CASES if reported(path)])
def test_the_first_step_is_what_discover_shows(path: Path, tmp_path: Path) -> None:
    step = read_case(path)["steps"][0]
    archive = write_archive(step["host"], step["host_name"], tmp_path / "host")
    if path.stem in SEV:
        write_sev(archive, SEV[path.stem][0])
    conf = step["conf"]
    if read_case(path)["kind"] == "vpmem":
        conf["libvirt"] |= write_pmem(archive)
    config = write_config(conf, tmp_path / "nova.conf")

    result = run_here("discover", "--host", archive, "--config-file", config, "--format", "json")

    assert result.code == 0, result.err
    assert by_provider(result.json) == by_provider(step["after"])


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem)
        for path in CASES
        if reported(path) and not reshapes(path) and not heals(path) and len(read_case(path)["steps"]) > 1
    ],
)
def test_every_step_is_what_sync_leaves_in_placement(
    path: Path, placement_server: PlacementServer, tmp_path: Path
) -> None:
    """What guests were given and operators wrote meanwhile is written by hand, then comes our pass."""
    case = read_case(path)
    host: dict[str, Any] = {}
    conf: dict[str, Any] = {}
    for number, step in enumerate(case["steps"]):
        host = host if step["host"] == "same" else step["host"]
        conf = conf if step["conf"] == "same" else step["conf"]
        archive = write_archive(host, step["host_name"], tmp_path / "host")
        if path.stem in SEV:
            write_sev(archive, SEV[path.stem][number])
        if case["kind"] == "vpmem":
            conf["libvirt"] |= write_pmem(archive)
        reports = {
            "placement": {"auth_type": "none", "endpoint": placement_server.url},
            "agent": {"state_directory": str(tmp_path / "state")},
        }
        config = write_config(conf | reports, tmp_path / "nova.conf")
        options = ("--host", archive, "--config-file", config)
        if number:
            set_by_hand(placement_server.url, step["after"], traits=case["kind"] == "vgpu")

        synced = sync(*options)
        shown = run_agent("show", *options, "--format", "json")

        assert (synced.code, shown.code) == (0, 0), synced.out + synced.err + shown.err
        reserve_held(step["after"], synced.json["notes"])
        assert by_provider(shown.json) == by_provider(step["after"]), (
            f"step {step['n']}; by design: {HELD}; {HARDWARE_LOSS}"
        )
        assert len(shown.json["allocations"]) == len(step["after"]["allocations"])


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in CASES if reshapes(path)])
def test_a_reshape_of_novas_gives_the_same_tree_and_allocations(
    path: Path, placement_server: PlacementServer, tmp_path: Path
) -> None:
    """Nova's old tree is written by hand, with its guests; then comes our first pass, which may reshape."""
    steps = read_case(path)["steps"]
    number = next(index for index, step in enumerate(steps) if index and step["startup"])
    step = steps[number]
    conf = next(one["conf"] for one in reversed(steps[: number + 1]) if one["conf"] != "same")
    before = steps[number - 1]["after"]
    host = with_parents(steps[0]["host"])
    archive = write_archive(host, step["host_name"], tmp_path / "host")
    if "Sev" in path.stem:
        write_sev(archive, "Y N N")
    mdevs: dict[str, list[str]] = {}
    for one in step["assigned_mdevs"]:
        mdevs.setdefault(str(uuid5(NAMESPACE_DNS, one["consumer"])), []).append(one["mdev"])
    add_guests(archive, {consumer: GuestSpec(mdevs=tuple(held)) for consumer, held in mdevs.items()})
    (archive / "compute_id").write_text(identity(step["host_name"]), encoding="utf-8")
    placement = ByHand(placement_server.url)
    lay_down(placement, {name: one | {"traits": one["traits"] or []} for name, one in before["providers"].items()})
    for name, slots in before["allocations"].items():
        add_consumer(placement, name, {"allocations": slots})
    reports = {
        "placement": {"auth_type": "none", "endpoint": placement_server.url},
        "agent": {"state_directory": str(tmp_path / "state"), "allow_reshape": "true"},
    }
    options = ("--host", archive, "--config-file", write_config(conf | reports, tmp_path / "nova.conf"))

    synced = run_agent("sync", *options, "--format", "json")
    shown = run_agent("show", *options, "--format", "json")

    assert synced.code == 0, synced.out + synced.err
    assert by_provider(shown.json) == by_provider(step["after"])
    assert shown.json["allocations"] == {
        str(uuid5(NAMESPACE_DNS, name)): slots for name, slots in step["after"]["allocations"].items()
    }


def with_parents(host: dict[str, Any]) -> dict[str, Any]:
    """A host with the cards that its mediated devices are of, which the case does not list; each can make one type."""
    cards = [
        {
            "address": "{}:{}:{}.{}".format(*mdev["parent"].split("_")[1:]),
            "libvirt_name": mdev["parent"],
            "vendor_id": "10de",
            "product_id": "0fff",
            "dev_type": "type-PCI",
            "numa_node": -1,
            "driver": "nvidia",
            "mdev_types": {mdev["type"]: {"name": "", "deviceAPI": "vfio-pci", "available_instances": 0}},
        }
        for mdev in host["mdevs"]
    ]
    return host | {"pci_devices": host["pci_devices"] + cards}


def test_a_shared_set_that_names_offline_cpus_is_refused_and_nothing_is_reported(tmp_path: Path) -> None:
    """Case cpu_shared_offline: nova logs an error and reports no provider at all."""
    spec = read_case(next(path for path in CASES if path.stem == "cpu_shared_offline"))["observed_from"]["spec"]
    sample = read_case(next(path for path in CASES if path.stem == "cpu_both_sets"))["steps"][0]
    host = sample["host"] | {"online_cpus": spec["online_cpus"]}
    archive = write_archive(host, "compute1", tmp_path / "host")
    config = write_config(spec["conf"], tmp_path / "nova.conf")

    assert "cpu_shared_set names CPU 6-7" in refusal(archive, config, tmp_path)


def test_a_pf_together_with_its_vfs_is_refused(tmp_path: Path) -> None:
    """Case test_dependent_device_config_is_rejected: nova raises, and leaves a root without stock."""
    path = next(path for path in CASES if "dependent_device_config" in path.stem)
    step = read_case(path)["steps"][0]
    archive = write_archive(step["host"], "compute1", tmp_path / "host")
    config = write_config(step["conf"], tmp_path / "nova.conf")

    assert "offers both 0000:81:00.0 and its VF 0000:81:00.1" in refusal(archive, config, tmp_path)


def test_live_migratable_is_refused_where_libvirt_is_too_old(tmp_path: Path) -> None:
    """Case pci_live_migratable: nova does not start."""
    spec = read_case(next(path for path in CASES if path.stem == "pci_live_migratable"))["observed_from"]["spec"]
    host = read_case(next(path for path in CASES if path.stem == "pci_pf_only"))["steps"][0]["host"]
    archive = write_archive(host, "compute1", tmp_path / "host")
    config = write_config(spec["conf"], tmp_path / "nova.conf")

    assert "live_migratable, which needs libvirt 10.0.0 and QEMU 8.2.2" in refusal(archive, config, tmp_path)


def refusal(archive: Path, config: Path, folder: Path) -> str:
    """The one line of a refused pass that left placement empty."""
    options = ("--host", archive, "--config-file", config, "--embedded-dir", folder / "placement")
    refused = run_agent("sync", *options)
    shown = run_agent("show", *options, "--format", "json")

    assert refused.code == 1
    assert len(refused.err.splitlines()) == 1
    assert shown.json["providers"] == {}
    return refused.err
