"""Options whose value libvirt refuses: each is told with its line and the values there are, and promises nothing."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.settings.read import load_settings
from beds.golden import HOSTS
from drivers.base import Driver, Survey
from drivers.errors import DiscoveryError, PolicyError
from drivers.facts import GuestArch
from drivers.host.archive import HostArchive
from drivers.libvirt.capabilities import (
    Capabilities,
    check_virt_type,
    known_models,
    offers,
    parse_capabilities,
    refusals,
)
from drivers.libvirt.driver import LibvirtDriver
from drivers.libvirt.recorded import RecordedConnection
from drivers.libvirt.shape import idle
from drivers.policy import GuestPolicy, Policy
from fakes import PC

CPU = "<cpu><model>m</model>{}</cpu>"
FEATURES = "".join(f"<feature name='{name}'/>" for name in ("avx2", "avx512f", "avx512bw", "pni"))
BEST = "".join(f"<feature name='{name}'/>" for name in ("avx2", "sha-ni", "pni"))  # of EPYC; QEMU emulates no sha-ni
OFFERS = "libvirt/domcapabilities"
Seen = tuple[Driver, Survey, Policy]
Write = Callable[..., Path]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A host whose emulator cannot run Haswell and Skylake-Server whole, and can run Penryn."""
    copy = tmp_path / "archive"
    shutil.copytree(HOSTS / "four-cells/archive", copy)
    for name in ("Skylake-Server", "Penryn"):
        (copy / f"libvirt/models/x86_64-{name}.xml").write_text(CPU.format(FEATURES))
    return copy


def look(archive: Path, config: Path) -> Seen:
    settings = load_settings([config])
    connection = RecordedConnection(HostArchive(archive))
    driver = LibvirtDriver(connection, settings.policy, settings.hypervisor.disk)
    return driver, driver.survey(driver.name()), settings.policy


def traits(seen: Seen) -> set[str]:
    driver, survey, policy = seen
    found = driver.shape(survey, policy, None)[0].root.traits
    return {name.removeprefix("HW_CPU_X86_") for name in found if name.startswith("HW_CPU_X86_")}


def told(seen: Seen) -> str:
    _, survey, policy = seen
    return "\n".join(one for one in idle(survey.facts, policy) if "[libvirt]" in one)


def with_kvm(archive: Path) -> None:
    """The same host as if its emulator used KVM."""
    for path in (archive / OFFERS).iterdir():
        path.rename(path.with_name(path.name.replace("-qemu", "-kvm")))
    listed = archive / "host.json"
    listed.write_text(listed.read_text().replace("-qemu.xml", "-kvm.xml"))


def test_sse3_is_pni_in_libvirt(archive: Path, write_config: Write) -> None:
    assert {"SSE3", "SSSE3"} <= traits(look(archive, write_config(libvirt={"virt_type": "qemu"})))


def test_a_model_that_this_host_cannot_run_gives_no_traits(archive: Path, write_config: Write) -> None:
    with_kvm(archive)
    seen = look(archive, config := write_config(libvirt={"cpu_mode": "custom", "cpu_models": "skylake-server"}))

    assert traits(seen) == set()
    assert told(seen).startswith(f"{config}:3: [libvirt] cpu_models: this host cannot run skylake-server, so no guest")
    assert "there are 486, athlon, Conroe" in told(seen)


def test_an_option_is_refused_by_what_libvirt_lists_of_its_architecture_and_by_nothing_else() -> None:
    guests = (
        GuestArch("x86_64", (("kvm", "q"),), ("q35",), frozenset({"q35"})),
        GuestArch("aarch64", (("qemu", "q"),), (), frozenset({"virt-7", "virt-8"})),
        GuestArch("riscv64", (("qemu", "q"),), ()),
    )
    host = Capabilities("x86_64", None, frozenset(), (), guests, "")
    models = (*((f"m{number}", "yes") for number in range(13)), ("Haswell", "no"))
    mine = replace(PC, cpu_modes=frozenset({"custom"}), cpu_models=models)
    other = replace(PC, arch="aarch64", cpu_modes=frozenset({"host-model"}), cpu_models=(("max", "yes"),))
    machines = dict.fromkeys(("x86_64", "aarch64", "riscv64"), "vax")
    policy = GuestPolicy(cpu_mode="host-model", cpu_models=("haswell", "Penryn"), machine_types=machines)

    check_virt_type(policy, host)
    with pytest.raises(PolicyError, match="virt_type is kvm, and libvirt offers qemu for aarch64"):
        check_virt_type(policy, replace(host, arch="aarch64"))
    assert known_models(policy, "x86_64", ["Penryn"], [mine, other]) == ("Haswell", "Penryn")
    assert known_models(policy, "x86_64", [], []) == policy.cpu_models
    with pytest.raises(PolicyError, match=r"no CPU model Penryn for x86_64: there are Haswell, m0, .* and 2 more \("):
        known_models(policy, "x86_64", [], [mine, other])
    arm, pc, mode, model = refusals(policy, host, [mine, PC, other])
    there = [one.rpartition(": there are ")[2] for one in (arm, pc, mode, model)]
    assert there[:3] == ["virt-7, virt-8 (virsh capabilities)", "q35 (virsh capabilities)", "custom"]
    assert there[3].endswith(" and 1 more (virsh domcapabilities)")
    assert refusals(policy, host, []) == (arm, pc)


def test_beside_a_model_that_runs_one_that_does_not_adds_nothing(archive: Path, write_config: Write) -> None:
    with_kvm(archive)
    penryn = archive / "libvirt/models/x86_64-Penryn.xml"
    penryn.write_text(CPU.format("<feature name='pni'/>"))

    seen = look(archive, write_config(libvirt={"cpu_mode": "custom", "cpu_models": "Penryn,Skylake-Server"}))

    assert traits(seen) == {"SSE3"}


@pytest.mark.parametrize(("recorded", "expected"), [(True, {"AVX2", "SSE3"}), (False, set())])
def test_without_kvm_a_model_gives_what_qemu_emulates(
    archive: Path, write_config: Write, recorded: bool, expected: set[str]
) -> None:
    if recorded:
        (archive / "libvirt/models/x86_64-EPYC.xml").write_text(CPU.format(BEST))
    seen = look(
        archive,
        write_config(libvirt={"virt_type": "qemu", "cpu_mode": "custom", "cpu_models": "Skylake-Server"}),
    )

    assert traits(seen) == expected
    assert "QEMU emulates only a part of Skylake-Server" in told(seen)


def test_a_model_that_libvirt_does_not_know_is_named_with_its_line(archive: Path, write_config: Write) -> None:
    config = write_config(libvirt={"virt_type": "qemu", "cpu_mode": "custom", "cpu_models": "Pentium-IX"})

    with pytest.raises(PolicyError) as refused:
        look(archive, config)

    assert f"{config}:4: [libvirt] cpu_models: libvirt has no CPU model Pentium-IX for x86_64" in str(refused.value)
    assert "there are 486, athlon" in str(refused.value)


def test_a_machine_type_that_qemu_lacks_is_named_with_its_line(archive: Path, write_config: Write) -> None:
    config = write_config(libvirt={"virt_type": "qemu", "hw_machine_type": "x86_64=vax"})

    seen = look(archive, config)

    assert told(seen).startswith(f"{config}:3: [libvirt] hw_machine_type: QEMU here has no machine type vax for x86_64")
    assert told(seen).endswith(" there are pc, q35 (virsh capabilities)")


@pytest.mark.parametrize("asked", ["vax", "pc"])
def test_libvirt_is_not_asked_for_a_machine_type_that_qemu_lacks(archive: Path, asked: str) -> None:
    """``pc``, nova's own default, is missing in an emulator that is built without it."""
    capabilities = parse_capabilities(HostArchive(archive).read("libvirt/capabilities.xml"))
    guests = tuple(replace(guest, machines=guest.machines - {"vax", "pc"}) for guest in capabilities.guests)

    found = offers(guests, "qemu", {"x86_64": asked})

    assert [one.machine for one in found] == ["q35"]


def test_a_cpu_mode_that_libvirt_does_not_offer_is_named_with_its_line(archive: Path, write_config: Write) -> None:
    config = write_config(libvirt={"virt_type": "qemu", "cpu_mode": "host-passthrough"})

    assert told(look(archive, config)) == (
        f"{config}:3: [libvirt] cpu_mode: libvirt offers no host-passthrough for qemu guests of x86_64 on this host, "
        f"so no guest can start: there are custom, host-model"
    )


def test_a_libvirt_older_than_those_that_are_supported_is_refused(archive: Path, write_config: Write) -> None:
    version = archive / "libvirt/version.json"
    version.write_text(version.read_text().replace("9000000", "8010000"))

    with pytest.raises(DiscoveryError, match=r"is older than 9\.0, .*: upgrade it"):
        look(archive, write_config(libvirt={"virt_type": "qemu"}))


def test_a_virt_type_that_this_host_lacks_is_named_with_its_line(archive: Path, write_config: Write) -> None:
    config = write_config(libvirt={"virt_type": "kvm"})
    capabilities = archive / "libvirt/capabilities.xml"
    capabilities.write_text(capabilities.read_text().replace("<domain type='kvm'/>", ""))

    with pytest.raises(PolicyError) as refused:
        look(archive, config)

    assert str(refused.value).startswith(f"{config}:2: [libvirt] virt_type is kvm, and libvirt offers qemu")


def test_what_libvirt_offers_is_not_told(archive: Path, write_config: Write) -> None:
    penryn = {"virt_type": "qemu", "cpu_mode": "custom", "cpu_models": "penryn", "hw_machine_type": "x86_64=q35"}

    seen = look(archive, write_config(libvirt=penryn))

    assert told(seen) == ""
    assert {"AVX2", "SSE3"} <= traits(seen)
