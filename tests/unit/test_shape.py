"""Facts and policy into the tree that a host should have."""

from dataclasses import replace

import pytest

from drivers.errors import MalformedFact, PolicyError
from drivers.facts import Cpu, CpuMap, DiskSpace, DomainCapabilities, HostFacts, HostModel, NumaCell, Versions
from drivers.libvirt.shape import EMITTED, shape
from drivers.libvirt.traits import CPU_FEATURES, DISK_BUSES, VIDEO_MODELS, emitted_traits, root_traits
from drivers.policy import OF_CELLS, CpuPolicy, DiskPolicy, GuestPolicy, Layout, Policy, Ratio, Ratios
from drivers.reasons import Reason
from fakes import FACTS, GIB, PC, offering
from reportclient.names import CPUS, standard_traits
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider


def inventories(policy: Policy, facts: HostFacts = FACTS, observed: ObservedTree | None = None) -> dict[str, Inventory]:
    return dict(shape(facts, policy, observed).tree.root.inventories)


def traits(policy: GuestPolicy = GuestPolicy(), **changes: object) -> frozenset[str]:
    return shape(replace(FACTS, **changes), Policy(guests=policy), None).tree.root.traits  # type: ignore[arg-type]


def test_without_any_wish_all_online_cpus_are_shared_and_a_little_memory_is_kept() -> None:
    assert inventories(Policy()) == {
        "VCPU": Inventory(total=4, max_unit=4, allocation_ratio=4.0),
        "MEMORY_MB": Inventory(total=2001, max_unit=2001, reserved=512),  # MiB floored once, not per cell
        "DISK_GB": Inventory(total=100, max_unit=100),
    }


@pytest.mark.parametrize("layout", ["devices", "flat"])
def test_the_memory_of_guests_is_what_files_give_where_it_is_in_files(layout: Layout) -> None:
    policy = Policy(layout=layout, file_backed_mib=1_048_576, reserved_memory_mib=0, ratios=Ratios(ram=Ratio(1.0, 1.0)))

    assert inventories(policy)["MEMORY_MB"] == Inventory(total=1_048_576, max_unit=1_048_576)


@pytest.mark.parametrize("layout", OF_CELLS)
def test_memory_in_files_is_in_no_cell(layout: Layout) -> None:
    with pytest.raises(PolicyError, match="files are in no NUMA cell"):
        inventories(Policy(layout=layout, file_backed_mib=4096))


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        pytest.param(CpuPolicy(shared=frozenset({0, 1})), {"VCPU": 2}, id="shared only"),
        pytest.param(CpuPolicy(dedicated=frozenset({2, 3})), {"PCPU": 2}, id="dedicated only: no VCPU at all"),
        pytest.param(
            CpuPolicy(shared=frozenset({0}), dedicated=frozenset({1, 2, 3})), {"VCPU": 1, "PCPU": 3}, id="both"
        ),
    ],
)
def test_cpu_sets(cpus: CpuPolicy, expected: dict[str, int]) -> None:
    found = inventories(Policy(cpus=cpus))

    assert {name: stock.total for name, stock in found.items() if name.endswith("CPU")} == expected


def test_pinned_cpus_are_never_overcommitted() -> None:
    policy = Policy(cpus=CpuPolicy(dedicated=frozenset({1})), ratios=Ratios(cpu=Ratio(4.0, 16.0)))

    assert inventories(policy)["PCPU"] == Inventory(total=1, max_unit=1)


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        pytest.param(
            CpuPolicy(shared=frozenset({3, 7})),
            r"cpu_shared_set names CPU 7, but only 0-3 are online on this host",
            id="shared",
        ),
        pytest.param(CpuPolicy(dedicated=frozenset({8, 9})), "cpu_dedicated_set names CPU 8-9", id="dedicated"),
        pytest.param(
            CpuPolicy(shared=frozenset({9}), shared_option="[DEFAULT] vcpu_pin_set"), "vcpu_pin_set names", id="pin set"
        ),
    ],
)
def test_a_cpu_in_a_set_that_this_host_lacks_is_refused_by_name(cpus: CpuPolicy, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        inventories(Policy(cpus=cpus))


@pytest.mark.parametrize("cpus", [CpuPolicy(shared=frozenset({2, 3})), CpuPolicy(dedicated=frozenset({2, 3}))])
def test_of_a_set_the_cpus_that_are_online_count_on_a_host_that_stands(
    cpus: CpuPolicy,
) -> None:
    one_off, all_off = (replace(FACTS, cpu_map=CpuMap(4, frozenset(online))) for online in ({0, 1, 2}, {0, 1}))

    with pytest.raises(PolicyError, match="_set names CPU 3, off on this host"):  # it is new: a slip of the pen
        inventories(Policy(cpus=cpus), one_off)
    stands = ObservedTree((ObservedProvider(uuid="r", generation=1, provider=Provider(name="host")),))
    found = inventories(Policy(cpus=cpus), one_off, stands)
    assert [stock.total for name, stock in found.items() if name in CPUS] == [1]
    assert not CPUS & inventories(Policy(cpus=cpus), all_off, stands).keys()


def test_power_management_accounts_for_dedicated_cpus_that_are_off() -> None:
    facts = replace(FACTS, cpu_map=CpuMap(4, frozenset({0, 1})))
    dedicated = frozenset({2, 3})

    assert inventories(Policy(cpus=CpuPolicy(dedicated=dedicated, power_management=True)), facts)["PCPU"].total == 2
    with pytest.raises(PolicyError, match="CPU 2-3"):
        inventories(Policy(cpus=CpuPolicy(dedicated=dedicated)), facts)


def test_reserved_disk_is_rounded_up_to_whole_gib() -> None:
    assert inventories(Policy(disk=DiskPolicy(reserved_mib=2049)))["DISK_GB"].reserved == 3


@pytest.mark.parametrize(
    ("disk", "place", "more"),
    [
        (DiskSpace(10 * GIB, 0, image_cache_bytes=0), "the file system of the instances", ""),
        (DiskSpace(10 * GIB, 0, volume_group="vg0"), "the volume group vg0", ""),
        (DiskSpace(10 * GIB, 0, 5), "the file system of the instances", ", and 5 bytes for nova's image cache"),
    ],
)
def test_the_reason_of_disk_gb_names_the_place_of_the_disks_and_the_image_cache(
    disk: DiskSpace, place: str, more: str
) -> None:
    stock, reason = shape(replace(FACTS, disk=disk), Policy(), None).providers[0].inventories["DISK_GB"]

    kept, ratio = (
        "0 MiB kept for the host by [DEFAULT] reserved_host_disk_mb",
        "the default of [DEFAULT] initial_disk_allocation_ratio",
    )
    assert reason == Reason(f"{place} has {10 * GIB} bytes", f"{kept}{more}; ratio by {ratio}")
    assert stock.reserved == bool(more)


def test_a_class_of_which_there_is_nothing_is_left_out() -> None:
    assert "DISK_GB" not in inventories(Policy(), replace(FACTS, disk=DiskSpace(GIB - 1, 0)))


def test_more_reserved_than_there_is_is_refused() -> None:
    with pytest.raises(PolicyError, match="9999 MEMORY_MB are to be reserved for the host, and it has 2001"):
        inventories(Policy(reserved_memory_mib=9999))


@pytest.mark.parametrize(
    ("ratio", "standing", "expected", "source"),
    [
        pytest.param(
            Ratio(4.0), None, 4.0, "by the default of [DEFAULT] initial_cpu_allocation_ratio", id="new: the default"
        ),
        pytest.param(
            Ratio(6.0, is_initial_set=True), None, 6.0, "by [DEFAULT] initial_cpu_allocation_ratio", id="new: initial"
        ),
        pytest.param(
            Ratio(4.0),
            2.5,
            2.5,
            "as in placement, by hand or an earlier option",
            id="standing: kept",
        ),
        pytest.param(Ratio(4.0), 4.0, 4.0, "as in placement", id="standing: as at first"),
        pytest.param(Ratio(4.0, 8.0), 2.5, 8.0, "by [DEFAULT] cpu_allocation_ratio", id="configured: wins"),
    ],
)
def test_ratios_are_configured_else_placements_else_initial(
    ratio: Ratio, standing: float | None, expected: float, source: str
) -> None:
    stands = {"VCPU": Inventory(total=4, allocation_ratio=standing)} if standing else {}
    seen = ObservedProvider(uuid="r", generation=1, provider=Provider(name="host", inventories=stands))

    root = shape(FACTS, Policy(ratios=Ratios(cpu=ratio)), ObservedTree((seen,))).providers[0]
    stock, reason = root.inventories["VCPU"]
    assert stock.allocation_ratio == expected
    assert reason.rule.endswith(f"; ratio {source}")


def test_traits_come_from_cpu_emulators_and_versions() -> None:
    found = traits()

    assert {"HW_ARCH_X86_64", "COMPUTE_ARCH_X86_64", "HW_CPU_X86_AVX", "HW_CPU_X86_SVM", "HW_CPU_X86_AMD_SVM"} <= found
    assert {"COMPUTE_STORAGE_BUS_VIRTIO", "COMPUTE_GRAPHICS_MODEL_VGA", "COMPUTE_NODE", MARKER} <= found
    assert not {"HW_CPU_HYPERTHREADING", "COMPUTE_STORAGE_BUS_SATA", "COMPUTE_NET_VIF_MODEL_IGB"} & found
    assert not {"COMPUTE_GRAPHICS_MODEL_QXL", "COMPUTE_NET_VIF_MODEL_LAN9118"} & found


def test_siblings_mean_hyperthreading() -> None:
    cell = NumaCell(0, 4096, frozenset({0, 1}), has_siblings=True)

    assert "HW_CPU_HYPERTHREADING" in traits(cells=(cell, *FACTS.cells))


@pytest.mark.parametrize(
    ("versions", "trait", "there"),
    [
        (Versions(9_003_000, 8_000_000), "COMPUTE_NET_VIF_MODEL_IGB", True),
        (Versions(9_003_000, 7_999_999), "COMPUTE_NET_VIF_MODEL_IGB", False),
        (Versions(9_002_999, 8_000_000), "COMPUTE_NET_VIF_MODEL_IGB", False),
        (Versions(10_004_000, 8_002_000), "COMPUTE_SOUND_MODEL_VIRTIO", True),
        (Versions(10_003_999, 8_002_000), "COMPUTE_SOUND_MODEL_VIRTIO", False),
        (Versions(10_004_000, 8_001_999), "COMPUTE_SOUND_MODEL_VIRTIO", False),
        (Versions(9_000_000, 6_002_000), "COMPUTE_STORAGE_VIRTIO_FS", True),
        (Versions(9_000_000, 6_001_000), "COMPUTE_STORAGE_VIRTIO_FS", False),
    ],
)
def test_what_libvirt_does_not_list_follows_from_versions(versions: Versions, trait: str, there: bool) -> None:
    assert (trait in traits(hypervisor=offering(PC, versions=versions))) is there


@pytest.mark.parametrize(
    ("policy", "names"),
    [
        pytest.param(GuestPolicy(cpu_flags={"avx": False, "aes": True}), {"AESNI", "SVM", "AMD_SVM"}, id="flags"),
        pytest.param(GuestPolicy(cpu_mode="none", cpu_flags={"aes": True}), {"AVX"}, id="no flags, and svm not by KVM"),
        pytest.param(GuestPolicy(cpu_mode="none", virt_type="qemu"), {"AVX", "SVM", "AMD_SVM"}, id="but by QEMU"),
    ],
)
def test_features_of_the_cpu_follow_the_mode_and_its_flags(policy: GuestPolicy, names: set[str]) -> None:
    assert {name for name in traits(policy) if name.startswith("HW_CPU_")} == {f"HW_CPU_X86_{name}" for name in names}


NO_AVX, NO_AES = (frozenset({"mpx", one}) for one in ("avx", "aes"))


@pytest.mark.parametrize(
    ("lacks", "policy", "names"),
    [
        pytest.param((NO_AVX, NO_AVX), GuestPolicy(), {"SVM", "AMD_SVM"}, id="on no machine type"),
        pytest.param((NO_AVX,), GuestPolicy(cpu_mode="host-model"), {"SVM", "AMD_SVM"}, id="by the mode's name"),
        pytest.param((NO_AVX, NO_AES), GuestPolicy(), {"AVX", "SVM", "AMD_SVM"}, id="on one machine type"),
        pytest.param((NO_AVX, None), GuestPolicy(), {"AVX", "SVM", "AMD_SVM"}, id="one of them is not told"),
        pytest.param((NO_AVX,), GuestPolicy(cpu_flags={"avx": True}), {"AVX", "SVM", "AMD_SVM"}, id="a flag adds it"),
        pytest.param((NO_AVX,), GuestPolicy(virt_type="qemu"), {"AVX", "SVM", "AMD_SVM"}, id="without KVM"),
        pytest.param((NO_AVX,), GuestPolicy(cpu_mode="custom"), {"AVX", "SVM", "AMD_SVM"}, id="another model"),
        pytest.param((NO_AVX,), GuestPolicy(cpu_mode="host-passthrough"), {"AVX", "SVM", "AMD_SVM"}, id="no model"),
    ],
)
def test_features_that_guests_with_the_hosts_model_get_on_no_machine_type_give_no_trait(
    lacks: tuple[frozenset[str] | None, ...], policy: GuestPolicy, names: set[str]
) -> None:
    models = (None if one is None else HostModel("EPYC", frozenset(), one) for one in lacks)
    arm = replace(PC, arch="aarch64", host_model=None)
    found = traits(policy, hypervisor=offering(arm, *(replace(PC, host_model=one) for one in models)))

    assert {name for name in found if name.startswith("HW_CPU_")} == {f"HW_CPU_X86_{name}" for name in names}


def test_excluded_image_types_are_not_promised() -> None:
    found = traits(GuestPolicy(excluded_image_types=frozenset({"qcow2"})))

    assert "COMPUTE_IMAGE_TYPE_RAW" in found
    assert "COMPUTE_IMAGE_TYPE_QCOW2" not in found


@pytest.mark.parametrize(
    ("policy", "versions", "expected"),
    [
        pytest.param(False, frozenset({"2.0"}), set(), id="switched off"),
        pytest.param(True, frozenset({"2.0"}), {"TIS", "2_0", "SECRET_SECURITY_USER"}, id="as libvirt says"),
    ],
)
def test_tpm(policy: bool, versions: frozenset[str], expected: set[str]) -> None:
    capabilities = replace(PC, tpm_models=frozenset({"tpm-tis"}), tpm_versions=versions)
    found = traits(GuestPolicy(tpm=policy, tpm_secret_security=("user",)), hypervisor=offering(capabilities))

    prefix = "COMPUTE_SECURITY_TPM_"
    assert {name.removeprefix(prefix) for name in found if name.startswith(prefix)} == expected


def test_secure_boot_counts_on_the_hosts_own_architecture_only() -> None:
    trait = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"

    assert trait in traits(hypervisor=offering(PC, replace(PC, secure_boot=True)))
    assert trait not in traits(hypervisor=offering(PC, replace(PC, arch="aarch64", secure_boot=True)))


def test_an_arm_host_has_its_own_models() -> None:
    arm = offering(replace(PC, arch="aarch64"))
    found = traits(GuestPolicy(virt_type="qemu"), cpu=Cpu("aarch64"), hypervisor=arm)

    assert {"HW_ARCH_AARCH64", "COMPUTE_VIOMMU_MODEL_SMMUV3", "COMPUTE_NET_VIF_MODEL_LAN9118"} <= found
    assert "COMPUTE_VIOMMU_MODEL_INTEL" not in found


def test_a_trait_of_the_cpu_says_where_its_feature_comes_from() -> None:
    found = root_traits(FACTS, GuestPolicy(cpu_flags={"aes": True, "mmx": False}))

    mode = "[libvirt] cpu_mode is unset, so host-model"
    assert found["HW_CPU_X86_AESNI"] == Reason("a guest's CPU has aes by cpu_model_extra_flags", mode)
    assert found["HW_CPU_X86_AVX"] == Reason("a guest's CPU has avx, as libvirt expands it", mode)


@pytest.mark.parametrize(
    ("vendor", "features", "names"),
    [
        ("", {"vaes"}, set()),
        ("", {"vaes", "avx512f"}, {"AVX512VAES", "AVX512F"}),
        ("AMD", {"pcid", "svm"}, {"SVM", "AMD_SVM"}),
        ("Intel", {"pcid", "svm"}, {"SVM", "INTEL_PCID"}),
    ],
)
def test_a_feature_gives_no_trait_of_another_vendor_nor_of_avx512_without_that(
    vendor: str, features: set[str], names: set[str]
) -> None:
    found = traits(cpu=Cpu("x86_64", frozenset(features), vendor))

    assert {name for name in found if name.startswith("HW_CPU_")} == {f"HW_CPU_X86_{name}" for name in names}


def test_each_trait_that_may_be_taken_back_is_one_that_some_host_has_and_no_host_has_another() -> None:
    prefixes = ("HW_ARCH_", "COMPUTE_ARCH_")
    archs = {name.removeprefix(prefix).lower() for prefix in prefixes for name in standard_traits(prefix)}
    models = (DISK_BUSES | {"xen"}, VIDEO_MODELS | {"unheard-of"}, True)
    tpm = frozenset({"tpm-tis", "tpm-crb"}), frozenset({"1.2", "2.0", "default"})
    offers = [DomainCapabilities(arch, *models, *tpm) for arch in sorted(archs | {"unheard-of"})]
    everything = offering(*offers, versions=Versions(11_000_000, 10_000_000))
    cells = (NumaCell(0, 4096, frozenset({0, 1}), has_siblings=True),)
    hosts = [
        replace(FACTS, cpu=Cpu(arch, frozenset(CPU_FEATURES)), hypervisor=everything, cells=cells) for arch in archs
    ]

    found = {name for facts in hosts for name in root_traits(facts, GuestPolicy(virt_type="qemu", tpm=True))}

    assert found == emitted_traits()
    assert found < EMITTED.traits


def test_a_host_without_any_online_cpu_is_not_believed() -> None:
    with pytest.raises(MalformedFact, match="no online CPU"):
        inventories(Policy(), replace(FACTS, cpu_map=CpuMap(4, frozenset())))
