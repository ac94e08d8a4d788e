"""
Four pictures in a browser: wide and narrow, light and dark, and printed; by hand, with ``make picture-test``.

axe-core looks for what people with other eyes cannot use. Screens and prints stay in ``build/pictures``.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Request, sync_playwright

from beds import placement
from beds.agents import run_agent
from beds.by_hand import ByHand
from beds.guests import GuestSpec, add_guests
from beds.placement import PlacementServer
from beds.synthetic import bed
from beds.synthetic.hosts import WIDE
from beds.trees import add_consumer, identity
from beds.upgrades import UPGRADES, Story, Upgrade, write_config

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build/pictures"
MOST_BYTES = 300_000
GUESTS = 64
SCREENS: Any = ((1400, "light"), (1400, "dark"), (800, "light"), (800, "dark"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "make picture-test installs it"
    with sync_playwright() as player:
        started = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def lab(placement_server: PlacementServer, tmp_path: Path) -> Upgrade:
    data = Story(UPGRADES / "05-devices-to-numa").data
    rows = {"allocations": {"four-cells": {"VCPU": 1, "MEMORY_MB": 512}}}
    before = {**data["before"], "consumers": {**data["before"]["consumers"], "sixth": rows}}
    guests = {**data["guests"], "sixth": {"memory_mib": 512}}
    return Upgrade({**data, "before": before, "guests": guests}, placement_server.url, tmp_path)


def look_at(browser: Browser, picture: Path) -> None:
    """Open it in both widths and both schemes, and print it."""
    assert picture.stat().st_size < MOST_BYTES
    print(f"\n{picture.name}: {picture.stat().st_size / 1000:.0f} kB", end="")
    for width, scheme in SCREENS:
        context = browser.new_context(viewport={"width": width, "height": 1100}, color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        asked = requests_of(page)
        page.goto(picture.as_uri())
        page.screenshot(path=OUT / f"{picture.stem}.{width}.{scheme}.png", full_page=True)
        assert asked == [picture.as_uri()]
        found = Axe().run(page).response["violations"]
        assert found == [], [(one["id"], one["nodes"][0]["html"][:200]) for one in found]
        context.close()
    page = browser.new_page()
    page.goto(picture.as_uri())
    page.pdf(path=OUT / f"{picture.stem}.pdf", prefer_css_page_size=True, print_background=True)
    page.close()
    told = subprocess.run(["pdfinfo", OUT / f"{picture.stem}.pdf"], capture_output=True, text=True, check=True).stdout
    print(f", {re.findall(r'Pages: +(.+)', told)[0]} pages of {re.findall(r'Page size: +(.+)', told)[0]}")


def requests_of(page: Page) -> list[str]:
    """What a page asks for from now on."""
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    return asked


@contextmanager
def drawing(name: str) -> Iterator[Path]:
    OUT.mkdir(parents=True, exist_ok=True)
    picture = OUT / f"{name}.html"
    picture.unlink(missing_ok=True)
    began = time.monotonic()
    yield picture
    print(f"\n{name}: {time.monotonic() - began:.1f} s for the command with its picture", end="")


def test_six_guests_of_four_cells_go_to_their_cells(lab: Upgrade, browser: Browser) -> None:
    with drawing("four-cells") as picture:
        assert lab.run("reshape", "--picture", picture).code == 3

    look_at(browser, picture)


def test_a_refusal_comes_first_and_in_red(lab: Upgrade, browser: Browser) -> None:
    with drawing("refusal") as picture:
        assert lab.run("plan", "--picture", picture).code == 3

    assert "Refused: nothing would be written" in picture.read_text(encoding="utf-8")
    look_at(browser, picture)


def test_an_audit_with_five_findings(lab: Upgrade, browser: Browser) -> None:
    assert lab.run("reshape", "--apply").code == 0
    spoil(lab)

    with drawing("audit") as picture:
        told = lab.run("audit", "--picture", picture)

    assert told.code == 3, told.err
    assert len(told.json["findings"]) >= 5, [one["kind"] for one in told.json["findings"]]
    look_at(browser, picture)


def spoil(lab: Upgrade) -> None:
    """Rows of three guests are gone, and two strangers have rows."""
    held = lab.run("show").json["allocations"]
    for consumer in sorted(held)[:3]:
        lab.placement.send("DELETE", f"/allocations/{consumer}")
    some = next(name for name, one in lab.run("show").json["providers"].items() if "VCPU" in one["inventories"])
    for number in range(2):
        add_consumer(lab.placement, f"stranger-{number}", {"allocations": {some: {"VCPU": 1}}})


@pytest.fixture
def wide(placement_template: Path, tmp_path: Path) -> Iterator[tuple[object, ...]]:
    """The recorded wide host with guests, reported in the layout devices and configured for numa."""
    archive = tmp_path / "host"
    plain = write_config({"libvirt": {"virt_type": "qemu"}}, tmp_path / "plain.conf")
    with bed.serving(tmp_path / "bed", WIDE) as host:
        assert host.run("record", archive, "--config-file", plain).code == 0
    add_guests(archive, {identity(f"wide-{n}"): GuestSpec(vcpus=1, memory_mib=256) for n in range(GUESTS)})
    about = json.loads((archive / "host.json").read_text(encoding="utf-8"))
    about.pop("files")
    (archive / "host.json").write_text(json.dumps(about), encoding="utf-8")
    (archive / "compute_id").write_text(identity("wide") + "\n", encoding="utf-8")
    with placement.serving(tmp_path / "placement", placement_template) as server:
        base: dict[str, dict[str, Any]] = {
            "libvirt": {"virt_type": "qemu"},
            "pci": {"discover": "all"},
            "devices": {"enabled_mdev_types": "nvidia-222"},
            "placement": {"auth_type": "none", "endpoint": server.url},
            "agent": {"state_directory": str(tmp_path / "state")},
        }
        before = write_config({**base, "compute": {"layout": "devices"}}, tmp_path / "before.conf")
        after = write_config({**base, "compute": {"layout": "numa"}}, tmp_path / "after.conf")
        assert run_agent("sync", "--host", archive, "--config-file", before).code == 0
        yield archive, after, server


def test_sixty_four_guests_of_a_wide_host(wide: tuple[Any, ...], browser: Browser) -> None:
    archive, config, server = wide
    for number in range(GUESTS):
        rows = {"wide": {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}}
        add_consumer(ByHand(server.url), f"wide-{number}", {"allocations": rows})

    with drawing("wide") as picture:
        done = run_agent("reshape", "--host", archive, "--config-file", config, "--picture", picture)

    assert done.code == 3, done.err
    look_at(browser, picture)
