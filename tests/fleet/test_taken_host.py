"""A host that was taken over beside a sound one: its texts are texts on each page, and it fails nobody but itself."""

from pathlib import Path
from typing import Any

import pytest

from beds.inventory import KINDS, Fleet, FleetHost
from beds.taken_host import STOLEN, Page, audit, checks, plan, write_command

pytestmark = pytest.mark.live

AMOUNTS = {"text": "<b>8</b>", "null": None, "list": [8], "fraction": 1.5, "endless": 10**4000}


def a_fleet(folder: Path, **taken: dict[str, Any]) -> Fleet:
    """Hosts that were taken over, with their answers by verb, and a sound one; no placement is asked."""
    answers = {**taken, "sound": {"reshape": plan(), "check": checks(), "audit": audit()}}
    hosts = [FleetHost(name, KINDS[0], folder / name, "") for name in answers]
    own = {name: {"fleet_command": write_command(folder / name, **one)} for name, one in answers.items()}
    return Fleet(hosts, folder, {"fleet_pictures": True}, own)


def test_a_host_that_was_taken_over_puts_no_script_into_any_page(tmp_path: Path) -> None:
    fleet = a_fleet(tmp_path, taken={"reshape": plan(STOLEN), "check": checks(STOLEN), "audit": audit(STOLEN)})

    for playbook in ("plan", "audit"):
        done = fleet.play(playbook)
        assert done.code == 0, done.out

    assert fleet.read("summary.json")["outcomes"] == {"convert": ["sound", "taken"]}
    for name in ("index.html", "hosts/taken.html", "hosts/sound.html", "audit.html"):
        page = Page((fleet.change / name).read_text(encoding="utf-8"))
        assert "img" not in page.tags, name
        assert len(page.inline) == (2 if name == "index.html" else 1), name
        assert not [one for one in page.attributes if one.startswith("on")], name
        assert page.policy.startswith("default-src 'none'; ")
        assert "unsafe" not in page.policy, name
        assert all(one in page.policy for one in page.hashes), name
        assert ("stolen()" in page.shown) == ("sound" not in name), name
        assert not set("\x1b\u202e") & set(page.text), name


def test_hosts_whose_answers_have_another_form_fail_alone(tmp_path: Path) -> None:
    plans = {name: plan() for name in AMOUNTS}
    for name, amount in AMOUNTS.items():
        plans[name]["capacity"]["VCPU"]["after"] = {"total": amount, "capacity": 8, "used": 2}
    odd = {"check": checks(), "audit": {"findings": [{"kind": "misplaced"}]}}
    fleet = a_fleet(tmp_path, **{name: {"reshape": one, **odd} for name, one in plans.items()})

    for playbook in ("plan", "audit"):
        fleet.play(playbook)

    summary = fleet.read("summary.json")
    assert summary["outcomes"] == {"convert": ["sound"], "failed": sorted(AMOUNTS)}
    assert all("capacity" in one["notes"][0] for one in summary["records"] if one["outcome"] == "failed")
    assert summary["capacity"]["VCPU"]["before"]["total"] == 8
    assert fleet.states("audit.json") == {**dict.fromkeys(AMOUNTS, "failed"), "sound": "audited"}
    assert "any seen" in (fleet.change / "audit.html").read_text(encoding="utf-8")
