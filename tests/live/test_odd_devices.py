"""A device that is odd, on a recorded host: what its passes, its audits and ``check`` say, and what placement has."""

import shutil
from pathlib import Path

import pytest

from beds.agents import Result, run_agent

pytestmark = pytest.mark.live

HOST = Path(__file__).parents[1] / "hosts/neutron-port"
VF, CARD, ODD = "pci_0000_81_10_0", "lost_0000:81:00.0", "lost_0000:81:10.0"


def test_a_vf_that_goes_from_libvirts_list_alone_stays_reserved_until_it_is_back(tmp_path: Path) -> None:
    archive = shutil.copytree(HOST / "archive", tmp_path / "archive")
    device = archive / f"libvirt/nodedevs/{VF}.xml"
    whole = device.read_text()
    (archive / "host.json").write_text(
        '{"format": 1, "hostname": "lost"}'  # without the list of files, as one of them goes
    )

    def agent(*verb: object) -> Result:
        options = ("--host", archive, "--config-file", HOST / "agent.conf", "--embedded-dir", tmp_path / "placement")
        return run_agent(*verb, *options, "--format", "json")

    def stock() -> dict[str, int]:
        found: dict[str, int] = agent("show").json["providers"][CARD]["inventories"]["SRIOV_NET_VF"]
        return {name: found[name] for name in ("total", "reserved")}

    assert agent("sync").code == 0
    assert stock() == {"total": 4, "reserved": 1}  # a port of Neutron has one

    for text in (None, whole.replace("<bus>129</bus>", "<bus>x</bus>")):
        device.unlink() if text is None else device.write_text(text)
        synced = agent("sync")
        assert synced.code == 0
        assert "0000:81:10.0 is undecided, as " in synced.err + synced.out
        assert stock() == {"total": 4, "reserved": 2}
    early, checked = agent("audit"), agent("check")
    (tmp_path / "at-once.conf").write_text("[agent]\naudit_grace = 0\n")
    audited = agent("audit", "--config-file", tmp_path / "at-once.conf")
    device.write_text(whole)

    assert "odd-device" not in {one["kind"] for one in early.json["findings"]}
    assert [one["provider"] for one in audited.json["findings"] if one["kind"] == "odd-device"] == [ODD]
    assert (audited.code, "0000:81:10.0 is undecided" in checked.out) == (3, True)
    assert agent("sync").code == 0
    assert stock() == {"total": 4, "reserved": 1}
