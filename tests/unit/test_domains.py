"""libvirt's domains into facts: whose a guest is, its CPUs and memory, its encryption, and what is refused."""

from dataclasses import replace

import pytest

from drivers.errors import MalformedFact
from drivers.facts import Guest, GuestDevices, GuestMemory, Tenant
from drivers.host.archive import Document
from drivers.libvirt.domains import NOVA, parse_guest
from drivers.libvirt.prune import prune_domain

FLAVOR = "<n:flavor><n:disk>20</n:disk><n:ephemeral>5</n:ephemeral><n:swap>1025</n:swap></n:flavor>"
OWNER = "<n:owner><n:user uuid='u'>bob</n:user><n:project uuid='p'>shop</n:project></n:owner>"
IMAGE, VOLUME = "<n:root type='image' uuid='i'/>", "<n:root type='volume'/>"


def guest_of(text: str) -> Guest:
    """The guest of a domain, which is the same when the domain is read from a case or a host archive."""
    document = Document(f"<domain>{text}</domain>", "guest.xml")
    guest = parse_guest(document, "u", "running")
    assert parse_guest(Document(prune_domain(document), "guest.xml"), "u", "running") == guest
    return guest


def test_a_guest_is_called_as_novas_user_calls_it_else_as_libvirt_does() -> None:
    def name(text: str) -> str:
        return parse_guest(Document(f"<domain>{text}</domain>", "guest.xml"), "u", "running").name

    novas = "<metadata><n:instance xmlns:n='{}'><n:name> {} </n:name></n:instance></metadata>"
    assert name(f"<name>instance-7</name>{novas.format(NOVA[0], 'web 1')}") == "web 1"
    assert name(f"<name>instance-7</name>{novas.format(NOVA[1], 'web 2')}") == "web 2"
    assert name(f"<name>instance-7</name>{novas.format(NOVA[0], '')}") == "instance-7"
    assert name("<name>instance-7</name>") == "instance-7"
    assert name("") == ""


def tenant_of(text: str, version: str = NOVA[0]) -> Tenant | None:
    return guest_of(f"<metadata><n:instance xmlns:n='{version}'>{text}</n:instance></metadata>").tenant


@pytest.mark.parametrize("version", NOVA)
def test_nova_tells_whose_a_guest_is_in_either_of_its_forms(version: str) -> None:
    assert tenant_of(OWNER + FLAVOR + IMAGE, version) == Tenant("p", "u", 27, None)
    shown = FLAVOR.replace("</n:flavor>", "<n:extraSpecs/></n:flavor>")
    assert tenant_of(OWNER + shown + IMAGE, version) == Tenant("p", "u", 27)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(FLAVOR, id="no owner"),
        pytest.param("<n:owner><n:user uuid='u'/></n:owner>", id="no project"),
        pytest.param("<n:owner><n:project uuid='p'/></n:owner>", id="no user"),
        pytest.param("<n:owner><n:user uuid='u'/><n:project/></n:owner>", id="a project without a uuid"),
    ],
)
def test_what_is_not_in_novas_form_tells_no_owner(text: str) -> None:
    assert tenant_of(text) is None


@pytest.mark.parametrize(
    ("text", "disk_gb"),
    [
        pytest.param(FLAVOR + IMAGE, 27, id="its root disk, ephemeral and swap, which is rounded up"),
        pytest.param(FLAVOR, None, id="an old nova that does not tell what it boots from"),
        pytest.param(FLAVOR.replace("20", "0"), 7, id="an old nova, and a flavor without a root disk"),
        pytest.param(FLAVOR + VOLUME, 7, id="a volume is not on this host"),
        pytest.param("", None, id="no flavor"),
        pytest.param("<n:flavor><n:disk>20</n:disk></n:flavor>", None, id="half a flavor"),
        pytest.param(FLAVOR.replace("20", "much"), None, id="a size in words"),
    ],
)
def test_a_guests_disk_is_told_by_its_flavor(text: str, disk_gb: int | None) -> None:
    tenant = tenant_of(OWNER + text)

    assert tenant is not None
    assert tenant.disk_gb == disk_gb


def test_a_flavor_names_the_classes_of_its_resources() -> None:
    specs = (
        ("resources:VGPU", "1"),
        ("resources1:VGPU", "1"),
        ("resources_GPU1:CUSTOM_GPU", "3"),
        ("resources:CUSTOM_ODD", "many"),
        ("resources1:CUSTOM_ODD", "1"),
        ("resources:CUSTOM_LONG", "9" * 5000),
        ("resources:CUSTOM_NONE", ""),
        ("trait:CUSTOM_FAST", "required"),
    )
    told = "".join(f"<n:extraSpec name='{name}'>{amount}</n:extraSpec>" for name, amount in specs)

    tenant = tenant_of(f"{OWNER}<n:flavor><n:extraSpecs>{told}</n:extraSpecs></n:flavor>")

    assert tenant is not None
    assert tenant.overridden == {
        "VGPU": 2,
        "CUSTOM_GPU": 3,
        **dict.fromkeys(("CUSTOM_ODD", "CUSTOM_LONG", "CUSTOM_NONE")),
    }


@pytest.mark.parametrize(
    ("attributes", "name", "machine"),
    [
        pytest.param("id='7'", "<name>instance-1</name>", (7, "instance-1"), id="runs"),
        pytest.param("", "<name>instance-1</name>", None, id="is shut off"),
        pytest.param("id='-1'", "<name>instance-1</name>", None, id="is shut off, as older libvirts say it"),
        pytest.param("id='7'", "<name/>", None, id="has no name"),
    ],
)
def test_a_running_domain_has_an_id_and_a_name(attributes: str, name: str, machine: tuple[int, str] | None) -> None:
    document = Document(f"<domain {attributes}>{name}</domain>", "guest.xml")

    assert parse_guest(document, "u", "running").machine == machine


@pytest.mark.parametrize(
    ("text", "encryption"),
    [
        pytest.param("", None, id="none"),
        pytest.param("<launchSecurity type='s390-pv'/>", None, id="another architecture's"),
        pytest.param("<launchSecurity type='sev-snp'/>", "amd_sev_snp", id="SEV-SNP"),
        pytest.param("<launchSecurity type='tdx'><policy>0x10000001</policy></launchSecurity>", "intel_tdx", id="TDX"),
        pytest.param("<launchSecurity type='sev'><policy>0x0003</policy></launchSecurity>", "amd_sev", id="SEV"),
        pytest.param("<launchSecurity type='sev'><policy>0x0007</policy></launchSecurity>", "amd_sev_es", id="SEV-ES"),
        pytest.param("<launchSecurity type='sev'/>", "amd_sev", id="no policy is told"),
    ],
)
def test_the_policy_of_a_guests_encryption_tells_its_kind(text: str, encryption: str | None) -> None:
    assert guest_of(text).devices.encryption == encryption


CELLS = "<cpu><numa><cell id='0' memory='1' unit='GiB'/><cell id='1' memory='1' unit='GiB'/></numa></cpu>"
PAGE = "<page size='2' unit='MiB'{of}/>"


@pytest.mark.parametrize(
    ("pages", "huge"),
    [
        pytest.param("", [(False, None)] * 2, id="small ones"),
        pytest.param("<hugepages/>", [(True, None)] * 2, id="of the host's default size"),
        pytest.param(f"<hugepages>{PAGE.format(of='')}</hugepages>", [(True, 2048)] * 2, id="of one size"),
        pytest.param(
            "<hugepages>" + PAGE.format(of=" nodeset='1'") + "</hugepages>",
            [(False, None), (True, 2048)],
            id="for one cell",
        ),
        pytest.param(
            "<hugepages><page size='1' unit='G' nodeset='0'/>" + PAGE.format(of="") + "</hugepages>",
            [(True, 1024**2), (True, 2048)],
            id="a cell's own before the others'",
        ),
    ],
)
def test_pages_are_those_of_each_of_a_guests_cells(pages: str, huge: list[tuple[bool, int | None]]) -> None:
    memory = guest_of(f"<memory>2097152</memory><memoryBacking>{pages}</memoryBacking>{CELLS}").memory

    assert [(one.mib, one.huge, one.page_kib) for one in memory] == [(1024, *each) for each in huge]


def test_memory_may_be_in_any_unit_of_libvirts() -> None:
    amounts = {"b": 1 << 30, "bytes": 1 << 30, "KiB": 1 << 20, "k": 1 << 20, "MiB": 1024, "M": 1024, "GiB": 1, "G": 1}

    for unit, amount in amounts.items():
        assert guest_of(f"<memory unit='{unit}'>{amount}</memory>").memory == (GuestMemory(1024),)


@pytest.mark.parametrize(
    ("mode", "cells"),
    [("strict", frozenset({1})), ("restrictive", frozenset({1})), ("preferred", frozenset())],
)
def test_memory_is_bound_where_the_kernel_has_no_choice(mode: str, cells: frozenset[int]) -> None:
    whole, half = ("memory", "memnode cellid='1'")
    tune = "<memory unit='MiB'>64</memory><numatune><{} mode='{}' nodeset='1'/></numatune>"

    assert guest_of(tune.format(whole, mode)).memory == (GuestMemory(64, cells),)
    assert [one.cells for one in guest_of(tune.format(half, mode) + CELLS).memory] == [frozenset(), cells]


def test_vfs_come_to_guests_in_other_ways_than_as_host_devices() -> None:
    guest = guest_of(
        "<devices><interface type='direct'><source dev='ens1v0' mode='passthrough'/></interface>"
        "<interface type='direct'><source dev='ens2' mode='bridge'/></interface><interface type='direct'/>"
        "<interface type='direct'><source dev='ens3'/></interface>"
        "<interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/></interface>"
        "<disk type='nvme'><source type='pci' namespace='1'>"
        "<address domain='0x0000' bus='0x41' slot='0x00' function='0x0'/></source></disk></devices>"
    )

    assert guest.devices.netdevs == {"ens1v0"}
    assert guest.devices.shared == {"ens2", "ens3"}
    assert guest.devices.vdpa == {"/dev/vhost-vdpa-0"}
    assert set(map(str, guest.devices.pci)) == {"0000:41:00.0"}


def test_a_guest_has_what_its_document_says_and_what_libvirt_says_of_it_at_this_moment() -> None:
    assert guest_of("") == guest_of("<vcpu/>") == Guest(uuid="u", state="running")
    guest = parse_guest(Document("<domain/>", "guest.xml"), "u", "paused", migrating=True)
    assert guest == Guest(uuid="u", state="paused", migrating=True)


PIN = "<vcpupin vcpu='{0}' cpuset='0-65535,^{0}'/>"


def test_the_emulator_and_each_vcpu_run_where_they_are_pinned() -> None:
    guest = guest_of(
        "<vcpu cpuset='4-5'>2</vcpu><cputune><vcpupin vcpu='0' cpuset='0-3,^2'/><emulatorpin cpuset='7'/></cputune>"
    )

    assert guest.vcpus == (frozenset({0, 1, 3}), frozenset({4, 5}))
    assert guest.emulator_cpus == {7}


UNREAD = Guest(uuid="u", state="running", devices=GuestDevices(pmem=frozenset({"/dev/dax0.0"})))
DAX0 = "<memory model='nvdimm'><source><path>/dev/dax0.0</path></source></memory>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("<vcpu>65536</vcpu>", "of guest.xml has 65536 vCPUs, more than any guest can have", id="vCPUs"),
        pytest.param(
            f"<vcpu>65535</vcpu><cputune>{''.join(PIN.format(n) for n in range(2000))}</cputune>",
            "<vcpu> or <cputune> of guest.xml pins vCPUs to more than 524288 CPUs in all",
            id="pins",
        ),
        pytest.param(
            "<vcpu cpuset='a-b'>2</vcpu>", "<vcpu> or <cputune> of guest.xml 'a-b' is neither", id="a set in words"
        ),
        pytest.param(
            "<vcpu>2</vcpu><cputune><emulatorpin/></cputune>",
            "<vcpu> or <cputune> of guest.xml has a <emulatorpin> without the attribute cpuset",
            id="an emulator without CPUs",
        ),
        pytest.param(
            f"<vcpu>2</vcpu><memory unit='{'u' * 21}'>1</memory>",
            f"or <cpu> of guest.xml has memory in the unit '{'u' * 20}', which",
            id="an unknown unit",
        ),
        pytest.param(
            f"<vcpu>{'1' * 21}</vcpu>", f"has '{'1' * 21}' where a whole number belongs", id="too many digits"
        ),
        pytest.param(f"<vcpu>{'x' * 41}</vcpu>", f"has '{'x' * 40}' where a whole number belongs", id="no number"),
        pytest.param("<vcpu current=''>1</vcpu>", "has '' where a whole number belongs", id="an amount of nothing"),
        pytest.param(
            f"<vcpu>2</vcpu><launchSecurity type='sev'><policy>{'p' * 41}</policy></launchSecurity>",
            f"guest.xml has a launchSecurity policy '{'p' * 40}', which is not a number",
            id="a policy in words",
        ),
    ],
)
def test_of_a_guest_that_is_not_understood_its_devices_alone_are_known_and_the_place_that_is_odd(
    text: str, message: str
) -> None:
    guest = guest_of(f"{text}<devices>{DAX0}</devices>")

    assert replace(guest, unread="") == UNREAD
    assert message in guest.unread


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(f"<vcpu>{'=' * ((1 << 18) - 3)}</vcpu>", "more than 262144 tags and attributes", id="attributes"),
        pytest.param(
            "<devices><interface type='hostdev'><source/></interface></devices>", "has no <source/address>", id="device"
        ),
    ],
)
def test_a_guest_whose_devices_are_not_known_is_an_error_that_names_its_document(text: str, message: str) -> None:
    with pytest.raises(MalformedFact, match=message) as caught:
        guest_of(text)

    assert str(caught.value).startswith("guest.xml")


@pytest.mark.parametrize(
    "source", ["<address type='usb' bus='1' device='2'/>", "<vendor id='0x1'/><product id='0x2'/>"]
)
def test_an_interface_may_be_a_device_of_usb_which_placement_does_not_know(source: str) -> None:
    guest = guest_of(f"<devices><interface type='hostdev'><source>{source}</source></interface></devices>")

    assert guest.devices == GuestDevices()
