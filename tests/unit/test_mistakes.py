"""Mistakes that are known only beside the host: each is told by a verb; those of one file are in ``test_config.py``."""

from collections.abc import Callable
from pathlib import Path

import pytest

from beds.agents import run_agent, run_here
from beds.golden import HOSTS

HOST = HOSTS / "four-cells/archive"
LIBVIRT = "[libvirt]\nvirt_type = qemu\n"
PROVIDER = "meta:\n  schema_version: '1.0'\nproviders:\n- identification:\n    uuid: $COMPUTE_NODE\n  "


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        pytest.param(
            '[pci]\nreport_in_placement = true\ndevice_spec = {"address": "0000:81:00.0"}\n',
            1,
            'to offer only its VFs, give that rule "product_id": "10ed"',
            id="a card and its VFs",
        ),
        pytest.param(
            "[libvirt]\nimages_type = rbd\n",
            1,
            "was recorded with the disks of guests in a file system, and [libvirt] images_type says the Ceph pool rbd",
            id="a Ceph pool and a recorded file system",
        ),
        pytest.param(
            "[libvirt]\nimages_type = lvm\nimages_volume_group = nova\n",
            1,
            "images_type says the volume group nova here",
            id="a volume group and a recorded file system",
        ),
        pytest.param(
            "[workarounds]\nreserve_disk_resource_for_image_cache = true\n",
            1,
            "was recorded without nova's image cache",
            id="an image cache that was not recorded",
        ),
        pytest.param(
            "[devices]\nenabled_mdev_types = nvidia-999\n",
            0,
            "has nvidia-999, which no card of this host can make",
            id="type of no card",
        ),
        pytest.param(
            "[compute]\nprovider_config_location = FOLDER\n",
            0,
            "providers[0] has inventorys, which is not read: is inventories meant?",
            id="misspelt key in a provider file",
        ),
    ],
)
def test_a_mistake_is_told_beside_the_numbers_or_instead(text: str, code: int, told: str, tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text(LIBVIRT + text.removeprefix("[libvirt]\n").replace("FOLDER", str(tmp_path)))
    (tmp_path / "a.yaml").write_text(f"{PROVIDER}inventorys:\n    additional:\n    - CUSTOM_X:\n        total: 2\n")

    done = run_here("discover", "--host", HOST, "--config-file", config)

    assert (done.code, told in done.err) == (code, True), done.err
    assert done.err.count("\n") <= 3


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda path: None, "there is no such file: name one with --config-file"),
        (lambda path: path.mkdir(), "it is a folder: name a file, or the folder with --config-dir"),
        (lambda path: path.write_bytes(b"\x80\x9f"), "it is no text: is it the right file?"),
    ],
    ids=["no file", "a folder", "no text"],
)
def test_what_is_no_configuration_file_is_told_in_plain_words(
    made: Callable[[Path], object], told: str, tmp_path: Path
) -> None:
    made(path := tmp_path / "agent.conf")

    done = run_here("discover", "--host", HOST, "--config-file", path)

    assert (done.code, done.out) == (1, "")
    assert done.err.strip() == f"configuration {path}: {told}"


def test_of_several_configuration_files_the_missing_one_is_named(tmp_path: Path) -> None:
    (there := tmp_path / "nova.conf").touch()

    done = run_here("discover", "--host", HOST, "--config-file", there, "--config-file", tmp_path / "lost.conf")

    assert done.err.startswith(f"configuration {tmp_path / 'lost.conf'}: there is no such file")


def test_a_shortened_option_is_none() -> None:
    done = run_agent("discover", "--hos", HOST)

    assert done.code == 2
    assert "is --host meant?" in done.err
