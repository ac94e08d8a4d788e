"""libvirt's XML into facts, and what is refused as none."""

import pytest

from drivers.errors import MalformedFact
from drivers.facts import DomainCapabilities, GuestArch, HostModel, MemoryPages, NumaCell, OfferedEncryption
from drivers.host.archive import Document
from drivers.libvirt.capabilities import (
    Capabilities,
    Offer,
    offers,
    parse_capabilities,
    parse_cpu_features,
    parse_domain_capabilities,
)

HOST = """<capabilities>
 <host><uuid>4c4c</uuid>
  <cpu><arch>x86_64</arch><model>Penryn</model><vendor>Intel</vendor><feature name='avx'/></cpu>
  <topology><cells>
   <cell id='4'><memory unit='MiB'>2</memory><cpus/></cell>
   <cell id='0'><memory unit='KiB'>1024</memory>
    <cpus><cpu id='1' socket_id='0' core_id='1' siblings='0-1'/><cpu id='0' socket_id='0' core_id='0' siblings='0-1'/>
     <cpu id='2'/></cpus></cell>
   <cell id='1'><cpus/></cell>
  </cells></topology></host>
 <guest><arch name='x86_64'><emulator>/usr/bin/qemu</emulator><machine canonical='pc-7.2'>pc</machine>
   <machine>pc-7.2</machine><domain type='qemu'/><domain type='kvm'><emulator>/usr/bin/kvm</emulator></domain></arch>
 </guest></capabilities>"""


def document(text: str) -> Document:
    return Document(text, "capabilities.xml")


def test_cells_keep_their_ids_gaps_and_cells_without_cpus_or_memory() -> None:
    cells = parse_capabilities(document(HOST)).cells

    assert cells == (
        NumaCell(0, 1024, frozenset({0, 1, 2}), has_siblings=True),
        NumaCell(1, 0, frozenset()),
        NumaCell(4, 2048, frozenset()),
    )


def test_a_host_has_a_uuid_and_a_cpu_which_libvirt_can_expand_if_its_model_is_named() -> None:
    found = parse_capabilities(document(HOST))
    less = parse_capabilities(document("<capabilities><host><cpu><arch>aarch64</arch></cpu></host></capabilities>"))

    assert (found.arch, found.vendor, found.uuid) == ("x86_64", "Intel", "4c4c")
    assert found.features == {"avx"}
    assert str(found.cpu).startswith("<cpu><arch>")
    assert less == Capabilities("aarch64", None, frozenset(), (), (), "")


def test_pages_are_told_by_size_smallest_first_in_whatever_unit() -> None:
    pages = "<pages size='1' unit='GiB'>3</pages><pages unit='KiB' size='4'>900</pages><pages size='2048'>7</pages>"

    first, *_ = parse_capabilities(document(HOST.replace("1024</memory>", f"1024</memory>{pages}"))).cells

    assert first.pages == (MemoryPages(4, 900), MemoryPages(2048, 7), MemoryPages(1024**2, 3))


def test_each_guest_architecture_has_its_emulators() -> None:
    (guest,) = parse_capabilities(document(HOST)).guests

    assert guest == GuestArch("x86_64", (("qemu", "/usr/bin/qemu"), ("kvm", "/usr/bin/kvm")), ("pc",), guest.machines)
    assert "pc" in guest.machines


def test_offers_are_the_current_machines_and_the_default_of_what_runs_the_virt_type() -> None:
    guests = (
        GuestArch("x86_64", (("qemu", "q"), ("kvm", "k")), ("pc", "q35")),
        GuestArch("aarch64", (("qemu", "a"),), ()),
        GuestArch("riscv64", (("qemu", "r"),), ("virt",)),
    )

    half = GuestArch("i686", (("kvm", "k32"),), ("pc",))

    assert offers((half, *guests), "kvm", {}) == offers(guests, "kvm", {})  # the 32-bit half tells nothing new
    alone = GuestArch("x86_64", (("qemu", "q"),), ())
    assert offers((half, alone), "kvm", {}) == (Offer("k32", "i686", "pc"),)
    assert offers(guests, "kvm", {}) == (Offer("k", "x86_64", "pc"), Offer("k", "x86_64", "q35"))
    assert [(one.arch, one.machine) for one in offers(guests[1:], "qemu", {})] == [
        ("aarch64", "virt"),
        ("riscv64", None),
        ("riscv64", "virt"),
    ]
    assert offers(guests[1:2], "qemu", {"aarch64": "sbsa"})[0].machine == "sbsa"


def test_domain_capabilities_tell_cpus_buses_models_firmware_tpm_and_encryption() -> None:
    text = """<domainCapabilities><arch>x86_64</arch>
      <os><loader><enum name='secure'><value>no</value><value>yes</value></enum></loader></os>
      <cpu><mode name='host-passthrough' supported='yes'/><mode name='maximum' supported='no'/>
      <mode name='host-model' supported='yes'><model>EPYC</model><feature policy='require' name='x2apic'/>
      <feature policy='disable' name='svm'/></mode>
      <mode name='custom' supported='yes'><model usable='no'>Opteron</model><model>486</model></mode></cpu>
      <devices><disk><enum name='bus'><value>virtio</value><value>sata</value></enum></disk>
      <video><enum name='modelType'><value>vga</value></enum></video>
      <tpm><enum name='model'><value>tpm-crb</value></enum>
      <enum name='backendVersion'><value>2.0</value></enum></tpm></devices>
      <features><gic supported='no'/><tdx supported='yes'/>
      <sev supported='yes'><maxGuests>100</maxGuests><maxESGuests>15</maxESGuests></sev>
      <launchSecurity supported='yes'><enum name='sectype'><value>sev</value></enum></launchSecurity></features>
      </domainCapabilities>"""

    assert parse_domain_capabilities(document(text)) == DomainCapabilities(
        arch="x86_64",
        cpu_modes=frozenset({"host-passthrough", "host-model", "custom"}),
        disk_buses=frozenset({"virtio", "sata"}),
        video_models=frozenset({"vga"}),
        secure_boot=True,
        tpm_models=frozenset({"tpm-crb"}),
        tpm_versions=frozenset({"2.0"}),
        encryption=OfferedEncryption(sev_guests=100, sev_es_guests=15, tdx=True, launch_security=frozenset({"sev"})),
        cpu_models=(("Opteron", "no"), ("486", "unknown")),
        host_model=HostModel("EPYC", frozenset({"x2apic"}), frozenset({"svm"})),
    )
    less = parse_domain_capabilities(
        document(text.replace("EPYC", "").replace("tdx supported='yes'", "tdx supported='no'"))
    )
    assert (less.host_model, less.encryption.tdx) == (None, False)
    none = parse_domain_capabilities(document("<domainCapabilities><arch>x86_64</arch></domainCapabilities>"))
    assert (none.host_model, none.encryption) == (None, OfferedEncryption())


def test_a_feature_that_the_model_has_and_the_host_lacks_is_none() -> None:
    """As libvirt 11 answers for an AMD without nested virtualization; libvirt 9 leaves such a feature out."""
    has, lacks = "<feature name='aes' policy='require'/><feature name='b'/>", "<feature name='svm' policy='disable'/>"

    assert parse_cpu_features(document(f"<cpu><model>EPYC</model>{has}{lacks}</cpu>")) == {"aes", "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("<capabilities><host>", "not well-formed", id="cut off"),
        pytest.param("", "not well-formed", id="empty"),
        pytest.param("<html/>", "begins with <html>", id="another document"),
        pytest.param("<!DOCTYPE x [<!ENTITY a 'b'>]><capabilities>&a;</capabilities>", "document type", id="entities"),
        pytest.param("<capabilities/>", "has no <host/cpu>", id="nothing in it"),
        pytest.param(HOST.replace("1024", "0").replace("unit='MiB'>2", ">0"), "lists no memory", id="no memory"),
        pytest.param(HOST.replace("x86_64</arch><model", "</arch><model"), "empty <host/cpu/arch>", id="no arch"),
        pytest.param(HOST.replace("cell id='4'", "cell"), "a <cell> without the attribute id", id="cell without id"),
        pytest.param(HOST.replace("id='4'", "id='1'"), "lists a cell twice", id="a cell twice"),
        pytest.param(
            HOST.replace("<model>", "<a>" * 5000 + "</a>" * 5000 + "<model>"), "nested too deeply", id="deep nesting"
        ),
        pytest.param(HOST.replace("1024", "many"), "'many' where a whole number", id="memory in words"),
        pytest.param(HOST.replace("unit='MiB'", "unit='parsec'"), "parsec", id="unit of something else"),
        pytest.param(HOST.replace("siblings='0-1'", "siblings='x'"), "'x' is neither", id="siblings in words"),
    ],
)
def test_malformed_capabilities_are_an_error_that_names_their_source(text: str, message: str) -> None:
    with pytest.raises(MalformedFact, match=message) as caught:
        parse_capabilities(document(text))

    assert str(caught.value).startswith("capabilities.xml")
