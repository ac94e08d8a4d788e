"""Twenty typical mistakes: each is told with where it is and what is meant, where it would make a number wrong."""

from pathlib import Path

import pytest

from beds.agents import run_agent
from beds.golden import HOSTS

pytestmark = pytest.mark.live

HOST = HOSTS / "four-cells/archive"
LIBVIRT = "[libvirt]\nvirt_type = qemu\n"
RULE = "[pci]\nreport_in_placement = true\ndevice_spec = "
CARDS = "[devices]\nenabled_mdev_types = "


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        pytest.param(
            f"{CARDS}nvidia-222\n[mdev_nvidia-222]\ndevice_addresses = 0000:07:00.0\n",
            0,
            "device_addresses has 0000:07:00.0, which is no card of this host that can make nvidia-222",
            id="addresses that name no card",
        ),
        pytest.param(
            RULE + '{"address": "0000:81:00.0", "product_id": "10ed", "resouce_class": "CUSTOM_X"}\n',
            0,
            "rule 1 has resouce_class, which is not read: is resource_class meant?",
            id="misspelt key of a rule",
        ),
        pytest.param(
            RULE + '{"vendor": "8086", "address": "0000:01:00.0", "product_id": "10fb"}\n',
            0,
            "rule 1 has vendor, which is not read: is vendor_id meant?",
            id="a key that nobody reads",
        ),
        pytest.param(
            RULE + '{"vendor": "8086"}\n',
            1,
            "rule 1 has vendor, which is not read: is vendor_id meant?",
            id="a key that nobody reads, in a rule that matches too much",
        ),
        pytest.param(
            "[libvirt]\nhw_machine_type = x8664=q35\n",
            0,
            ":3: [libvirt] hw_machine_type has x8664=q35, and libvirt knows no architecture x8664: is x86_64 meant?",
            id="misspelt architecture",
        ),
        pytest.param("[placment]\nauth_type = none\n", 0, "is [placement] meant?", id="misspelt group"),
        pytest.param(
            f"{CARDS}nvidia-222\n[mdev_nvidia-232]\nmax_instances = 2\n",
            0,
            "enabled_mdev_types lacks nvidia-232: is [mdev_nvidia-222] meant?",
            id="group of a type that is not enabled",
        ),
        pytest.param("[compute]\nlayout = nume\n", 1, "but found 'nume': is numa meant?", id="misspelt value"),
        pytest.param("[pic]\ndiscover = all\n", 0, "is [pci] meant?", id="short misspelt group"),
        pytest.param("[compute-node-agent]\nrole = sole\n", 0, "is [agent] meant?", id="group of the agent's name"),
        pytest.param("[compute]\nLayout = numa\n", 0, "Layout is not read: is layout meant?", id="capital letter"),
        pytest.param("[compute]\nlayuot = numa\n", 0, "layuot is not read: is layout meant?", id="swapped letters"),
        pytest.param("[libvirt]\nimage_type = rbd\n", 0, "is images_type meant?", id="a letter less"),
        pytest.param("[agent]\nlayout = numa\n", 1, "is [compute] layout meant?", id="option in another group"),
        pytest.param("[agent]\nrole = besides\n", 1, "but found 'besides': is beside meant?", id="misspelt role"),
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
        pytest.param("[compute]\ncpu_shared_set = 0-3,x\n", 1, "'x' is neither a CPU id nor a range", id="CPU set"),
        pytest.param(
            "[compute]\ncpu_dedicated_set = 900-901\n",
            1,
            "names CPU 900-901, but only 0-31 are online on this host",
            id="CPUs that are not here",
        ),
        pytest.param("[DEFAULT]\nreserved_host_memory_mb = 4G\n", 1, "it must be a whole number, got '4G'", id="unit"),
        pytest.param(RULE + '{"address": 0000:81:00.0}\n', 1, "device_spec rule 1 is not JSON", id="no JSON"),
        pytest.param(
            RULE + '{"address": "0000:81:00.0"}\n',
            1,
            'to offer only its VFs, give that rule "product_id": "10ed"',
            id="a card and its VFs",
        ),
        pytest.param(
            f"{CARDS}nvidia-999\n", 0, "has nvidia-999, which no card of this host can make", id="type of no card"
        ),
    ],
)
def test_a_mistake_in_the_configuration(text: str, code: int, told: str, tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text(LIBVIRT + text.removeprefix("[libvirt]\n"))

    done = run_agent("discover", "--host", HOST, "--config-file", config)

    assert (done.code, told in done.err) == (code, True), done.err
    assert done.err.count("\n") <= 3


HEAD = "meta:\n  schema_version: '1.0'\nproviders:\n- identification:\n    uuid: $COMPUTE_NODE\n"


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        pytest.param(
            f"{HEAD}  inventorys:\n    additional:\n    - CUSTOM_X:\n        total: 2\n",
            0,
            "providers[0] has inventorys, which is not read: is inventories meant?",
            id="misspelt key",
        ),
        pytest.param(
            f"{HEAD}  inventories:\n    additional:\n      CUSTOM_X:\n        total: 2\n",
            1,
            "providers[0].inventories.additional: {'CUSTOM_X': {'total': 2}} is not of type 'array'",
            id="a group instead of a list",
        ),
        pytest.param(
            f"{HEAD}  inventories:\n    additional:\n    - CUSTOM_X:\n        total: two\n",
            1,
            "CUSTOM_X.total: 'two' is not of type 'integer'",
            id="text instead of a number",
        ),
    ],
)
def test_a_mistake_in_a_provider_file(text: str, code: int, told: str, tmp_path: Path) -> None:
    config = tmp_path / "agent.conf"
    config.write_text(f"{LIBVIRT}[compute]\nprovider_config_location = {tmp_path}\n")
    (tmp_path / "a.yaml").write_text(text)

    done = run_agent("discover", "--host", HOST, "--config-file", config)

    assert (done.code, told in done.err) == (code, True), done.err


def test_a_heal_policy_in_vain(tmp_path: Path) -> None:
    config, policy = tmp_path / "agent.conf", tmp_path / "heal.yaml"
    config.write_text(LIBVIRT)
    policy.write_text("heal: [over-capacity]\n")
    base = ("--host", HOST, "--embedded-dir", tmp_path / "placement", "--config-file", config)
    assert run_agent("sync", *base).code == 0

    done = run_agent("audit", *base, "--heal", "--policy", policy)

    assert "no audit repairs over-capacity: take it out of heal" in done.err, done.out + done.err
