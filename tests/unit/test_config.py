"""Options into settings; what cannot be meant is named with its file and line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from oslo_config import cfg

from agent.connect.adapters import open_service
from agent.errors import ConfigError
from agent.settings.read import _tell_reading, load_settings
from agent.settings.slips import slips_of_the_pen
from agent.settings.values import Values
from drivers.policy import (
    FOUND,
    WITHOUT_CPUS,
    CpuPolicy,
    InstancesFolder,
    MdevRule,
    Policy,
    Ratio,
    ReservedCells,
    ReservedPages,
)
from reportclient.errors import mask

Write = Callable[..., Path]


def problem(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings([path])
    assert "\n" not in caught.value.problems[0]
    return str(caught.value)


def test_without_a_file_everything_has_novas_default() -> None:
    settings = load_settings([])

    assert settings.policy == Policy()
    assert settings.policy.ratios.cpu == Ratio(4.0)
    assert (settings.hypervisor.driver, settings.hypervisor.libvirt_uri) == ("libvirt.LibvirtDriver", "qemu:///system")
    assert not settings.apis.placement_chosen


def test_novas_options_have_novas_meaning(write_config: Write) -> None:
    path = write_config(
        DEFAULT={
            "reserved_host_memory_mb": 1024,
            "reserved_host_disk_mb": 10,
            "ram_allocation_ratio": 1.5,
            "cpu_allocation_ratio": 0.0,
            "state_path": "/srv/nova",
            "instances_path": "$state_path/guests",
        },
        compute={"cpu_shared_set": "0-3,^1", "cpu_dedicated_set": "4-7", "image_type_exclude_list": "qcow2,raw"},
        libvirt={
            "virt_type": "qemu",
            "cpu_mode": "custom",
            "cpu_models": "Cascadelake-Server,Skylake-Client",
            "cpu_model_extra_flags": "+PCID,-avx,ssbd",
            "cpu_power_management": True,
            "hw_machine_type": "x86_64=q35",
            "connection_uri": "qemu+tcp://h/system",
        },
    )

    settings = load_settings([path])

    policy, guests = settings.policy, settings.policy.guests
    assert policy.cpus == CpuPolicy(
        shared=frozenset({0, 2, 3}), dedicated=frozenset({4, 5, 6, 7}), power_management=True
    )
    assert (policy.reserved_memory_mib, policy.disk.reserved_mib) == (1024, 10)
    assert (policy.ratios.ram, policy.ratios.cpu) == (Ratio(1.0, 1.5), Ratio(4.0))  # 0 is unset, as in nova
    assert guests.cpu_models == ("Cascadelake-Server", "Skylake-Client")
    assert guests.cpu_flags == {"pcid": True, "avx": False, "ssbd": True}
    assert guests.machine_types == {"x86_64": "q35"}
    assert guests.excluded_image_types == {"qcow2", "raw"}
    assert settings.hypervisor.disk == InstancesFolder(instances=Path("/srv/nova/guests"))
    assert settings.hypervisor.libvirt_uri == "qemu+tcp://h/system"


def test_the_older_name_of_the_cpu_model_serves_too(write_config: Write) -> None:
    settings = load_settings([write_config(libvirt={"cpu_mode": "custom", "cpu_model": "Penryn"})])

    assert settings.policy.guests.cpu_models == ("Penryn",)


def test_the_pin_set_of_old_clouds_is_the_shared_set_and_goes_with_reserved_cpus(write_config: Write) -> None:
    path = write_config(DEFAULT={"vcpu_pin_set": "0-3", "reserved_host_cpus": 1}, compute={"cpu_shared_set": "0"})

    cpus = load_settings([path]).policy.cpus

    assert (cpus.shared, cpus.reserved, cpus.shared_option) == (frozenset(range(4)), 1, "[DEFAULT] vcpu_pin_set")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        pytest.param(
            {"compute": {"cpu_shared_set": "0-3", "cpu_dedicated_set": "3-4"}}, "both name [3]", id="overlapping sets"
        ),
        pytest.param(
            {"DEFAULT": {"reserved_host_cpus": 1}, "compute": {"cpu_dedicated_set": "1"}},
            "reserved_host_cpus cannot be used together with",
            id="reserved beside sets",
        ),
        pytest.param(
            {"DEFAULT": {"vcpu_pin_set": "1"}, "compute": {"cpu_dedicated_set": "2"}},
            "vcpu_pin_set cannot be used together with",
            id="two generations of options",
        ),
        pytest.param({"compute": {"cpu_shared_set": "0-x"}}, "'0-x' is neither a CPU id nor", id="no set"),
        pytest.param({"compute": {"cpu_shared_set": "^1"}}, "names no CPU", id="empty set"),
        pytest.param(
            {"DEFAULT": {"reserved_host_memory_mb": "much"}}, "reserved_host_memory_mb is not valid", id="words"
        ),
        pytest.param({"DEFAULT": {"reserved_host_disk_mb": -1}}, "reserved_host_disk_mb is not valid", id="negative"),
        pytest.param(
            {"DEFAULT": {"cpu_allocation_ratio": -1}}, "cpu_allocation_ratio is not valid", id="negative ratio"
        ),
        pytest.param({"DEFAULT": {"initial_ram_allocation_ratio": 0}}, "must be above 0", id="initial ratio of zero"),
        pytest.param({"libvirt": {"cpu_mode": "custom"}}, "custom needs cpu_models", id="no models"),
        pytest.param({"libvirt": {"cpu_models": "Penryn"}}, "needs cpu_mode = custom", id="models without mode"),
        pytest.param({"libvirt": {"hw_machine_type": "q35"}}, "arch=machine", id="machine without arch"),
        pytest.param({"libvirt": {"images_type": "RBD"}}, "images_type is not valid", id="no such images_type"),
        pytest.param({"DEFAULT": {"ram_allocation_ratio": "nan"}}, "must be finite", id="no number"),
        pytest.param({"DEFAULT": {"ram_allocation_ratio": "inf"}}, "must be finite", id="without bound"),
        pytest.param({"agent": {"root_traits": "get_traits"}}, "get_traits, which is neither", id="no trait"),
        pytest.param(
            {"agent": {"root_traits": "CUSTOM_DEVICE_HELD"}}, "root_traits has CUSTOM_DEVICE_HELD, by", id="our mark"
        ),
        pytest.param({"libvirt": {"images_type": "ploop"}}, "images_type is not valid: Valid values are", id="ploop"),
        pytest.param(
            {"libvirt": {"images_type": "rbd"}, "DEFAULT": {"force_raw_images": False}},
            "force_raw_images must be true with",
            id="ceph with other images",
        ),
        pytest.param(
            {"libvirt": {"images_type": "lvm"}}, "images_type lvm needs images_volume_group", id="lvm without a group"
        ),
        pytest.param(
            {"libvirt": {"file_backed_memory": 4096}, "DEFAULT": {"reserved_host_memory_mb": 0}},
            "needs [DEFAULT] ram_allocation_ratio = 1.0",
            id="file memory with overcommit",
        ),
        pytest.param(
            {"libvirt": {"file_backed_memory": 4096}, "DEFAULT": {"ram_allocation_ratio": 1.0}},
            "needs [DEFAULT] reserved_host_memory_mb = 0",
            id="file memory with a reserve",
        ),
        pytest.param(
            {"libvirt": {"pmem_namespaces": "ns0"}}, "a label and names are needed", id="pmem without a label"
        ),
        pytest.param(
            {"libvirt": {"pmem_namespaces": "A:ns0|"}}, "a label and names are needed", id="pmem without names"
        ),
        pytest.param({"libvirt": {"pmem_namespaces": "A:n0,B:n0"}}, "names the namespace n0 twice", id="pmem twice"),
        pytest.param({"libvirt": {"virt_type": "lxc"}}, "Valid values are [kvm, qemu]", id="containers"),
        pytest.param(
            {"agent": {"root_traits": "COMPUTE_RESCUE_BVF"}}, "COMPUTE_RESCUE_BVF, which is nei", id="misspelt"
        ),
        pytest.param({"DEFAULT": {"compute_driver": "vmwareapi.VMwareVCDriver"}}, "compute_driver is not", id="driver"),
        pytest.param({"fake": {"seed": "x"}}, "seed is not valid: invalid literal for int()", id="seed in words"),
        pytest.param({"compute": {"layout": "nume"}}, "but found 'nume'", id="layout"),
        pytest.param({"agent": {"layout": "numa"}}, "is [compute] layout meant?", id="another group's option"),
        pytest.param({"DEFAULT": {"cpu_allocation_ratio": "x"}}, "ratio is not valid: could not convert", id="float"),
        pytest.param({"agent": {"state_dir": "/x"}}, "[agent] state_dir is no option of this agent", id="no option"),
        pytest.param(
            {"agent": {"intervall": 5}}, "intervall is no option of this agent: is interval meant?", id="nearly one"
        ),
        pytest.param({"pci": {"device_spec": "{"}}, "rule 1 is not JSON", id="no JSON"),
        pytest.param(
            {"pci": {"device_spec": '{"devname": "e"}', "report_in_placement": "true"}},
            "by devname",
            id="device by netdev name",
        ),
        pytest.param(
            {"pci": {"device_spec": '{"one_time_use": "true"}'}}, "needs report_in_placement", id="one-time, unreported"
        ),
        pytest.param(
            {"devices": {"enabled_mdev_types": "a"}, "mdev_a": {"max_instances": -3}},
            "[mdev_a] max_instances is not valid",
            id="fewer than none",
        ),
        pytest.param(
            {"devices": {"enabled_mdev_types": "a"}, "mdev_a": {"mdev_class": "vgpu"}},
            "neither VGPU nor CUSTOM_",
            id="class",
        ),
        pytest.param({"agent": {"reserved_cells": "all"}}, "'all': ids of cells such as 250-255, without", id="cells"),
        pytest.param({"DEFAULT": {"reserved_huge_pages": "node:0"}}, "node, size and count are needed", id="pages"),
        pytest.param({"agent": {"reserved_cell_memory": "cell:0"}}, "cell and mb are needed", id="a cell's memory"),
        pytest.param(
            {"agent": {"reserved_cell_memory": f"cell:0,mb:{'9' * 5000}"}}, "cell and mb are needed", id="digits"
        ),
        pytest.param(
            {"agent": {"reserved_cell_memory": "cell:0,mb:1\nreserved_cell_memory = cell:0,mb:2"}},
            "names cell 0 twice",
            id="a cell twice",
        ),
        pytest.param(
            {"agent": {"reserved_cell_memory": "cell:0,mb:513"}}, "keeps 513 MiB, and [DEFAULT] reserved", id="in all"
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(
    write_config: Write, groups: dict[str, dict[str, object]], message: str
) -> None:
    path = write_config(**groups)

    text = problem(path)

    assert message in text
    assert text.startswith(f"{path}:")


@pytest.mark.parametrize(
    ("value", "storage"), [("own", ""), ("sharing", FOUND), ("nfs", "nfs"), ("ceph_1_vms", "ceph_1_vms")]
)
def test_shared_storage_is_found_or_named(write_config: Write, value: str, storage: str) -> None:
    assert load_settings([write_config(agent={"shared_disk": value})]).policy.disk.shared == storage


def test_a_pool_is_reported_by_a_host_of_ceph_alone(write_config: Write) -> None:
    path = write_config(agent={"report_pool": "true"}, libvirt={"images_type": "rbd"})
    assert load_settings([path]).policy.disk.reports_pool
    assert "= true needs [libvirt] images_type = rbd" in problem(write_config(agent={"report_pool": "true"}))


def test_devices_are_configured_as_for_nova(write_config: Write) -> None:
    path = write_config(
        DEFAULT={"reserved_huge_pages": "node:0,size:2MB,count:64"},
        pci={
            "device_spec": '[{"vendor_id": "8086", "traits": "fast"}, {"address": "*:81:*.*"}]',
            "report_in_placement": 1,
        },
        devices={"enabled_mdev_types": "nvidia-35, nvidia-36"},
        **{
            "mdev_nvidia-36": {
                "device_addresses": "0000:84:00.0,mtty_mtty",
                "mdev_class": "CUSTOM_B",
                "max_instances": 4,
            }
        },
    )

    policy = load_settings([path]).policy

    assert policy.reserved_pages == (ReservedPages(0, 2048, 64),)
    assert [(rule.number, rule.traits) for rule in policy.devices.rules] == [
        (1, frozenset({"CUSTOM_FAST"})),
        (2, frozenset()),
    ]
    assert policy.devices.mdevs == (
        MdevRule(type="nvidia-35"),
        MdevRule(
            type="nvidia-36",
            addresses=frozenset({"0000:84:00.0", "mtty_mtty"}),
            max_instances=4,
            resource_class="CUSTOM_B",
        ),
    )


def test_novas_older_names_of_device_options_count(write_config: Write) -> None:
    path = write_config(
        DEFAULT={"pci_passthrough_whitelist": '{"vendor_id": "8086"}'},
        devices={"enabled_vgpu_types": "nvidia-35"},
        **{"vgpu_nvidia-35": {"device_addresses": "0000:84:00.0"}},
    )

    devices = load_settings([path]).policy.devices

    assert [rule.vendor_id for rule in devices.rules] == ["8086"]
    assert devices.mdevs == (MdevRule(type="nvidia-35", addresses=frozenset({"0000:84:00.0"})),)


def test_the_line_of_the_last_mention_is_given(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text(
        "[DEFAULT]\nreserved_host_memory_mb = 1\n\n[libvirt]\nreserved_host_memory_mb = 7\n"
        "[DEFAULT]\nreserved_host_memory_mb=2\nreserved_host_memory_mb = x\n"
    )

    assert problem(path).startswith(f"{path}:8: [DEFAULT] reserved_host_memory_mb")


def test_all_problems_are_told_at_once(write_config: Write) -> None:
    text = problem(write_config(DEFAULT={"reserved_host_cpus": "x"}, libvirt={"images_type": "ploop"}))

    assert len(text.splitlines()) == 2


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"reserved_host_cpus = 1\n[DEFAULT\n", id="no section header"),
        pytest.param(b"[DEFAULT]\nword\n", id="no value"),
        pytest.param(b"\xff\xfe", id="binary"),
        pytest.param(b"[DEFAULT]\nx = \xff\n", id="not UTF-8"),
    ],
)
def test_a_file_that_is_none_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(content)

    assert "a.conf" in problem(path)
    assert "nothing.conf" in problem(tmp_path / "nothing.conf")
    assert str(tmp_path) in problem(tmp_path)


def test_values_of_others_are_passed_over_even_where_they_refer_to_unknown_names(write_config: Write) -> None:
    path = write_config(DEFAULT={"log_dir": "$no_such_option"}, vnc={"server_listen": "$my_ip"}, neutron={"a": "b"})

    assert load_settings([path]).policy == Policy()


def test_a_value_may_refer_to_what_only_other_services_have_options_for(write_config: Write) -> None:
    path = write_config(
        DEFAULT={"my_ip": "10.0.0.1"},
        libvirt={"connection_uri": "qemu+tcp://$my_ip/system"},
        keystone_authtoken={"auth_url": "https://k:5000", "password": "$unrelated"},
        placement={"auth_url": "${keystone_authtoken.auth_url}", "password": "pa$$word"},
    )

    settings = load_settings([path])

    assert settings.hypervisor.libvirt_uri == "qemu+tcp://10.0.0.1/system"
    assert settings.apis.source.placement.auth_section is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        pytest.param(
            {"placement": {"password": "pa$word"}}, "[placement] password has a $ that refers", id="a dollar sign"
        ),
        pytest.param({"libvirt": {"connection_uri": "qemu://$my_ip/"}}, "refers to $my_ip, which no", id="a default"),
        pytest.param({"DEFAULT": {"state_path": "$instances_path"}}, "", id="a loop"),
    ],
)
def test_a_reference_to_what_no_file_gives_is_told(
    write_config: Write, groups: dict[str, dict[str, object]], message: str
) -> None:
    assert message in problem(write_config(**groups))


def test_later_files_win_and_folders_are_read(write_config: Write, tmp_path: Path) -> None:
    first = write_config("first.conf", DEFAULT={"reserved_host_memory_mb": 1, "reserved_host_disk_mb": 3})
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "later.conf").write_text("[DEFAULT]\nreserved_host_memory_mb = 2\n")

    policy = load_settings([first], [folder]).policy

    assert (policy.reserved_memory_mib, policy.disk.reserved_mib) == (2, 3)


def test_a_nova_conf_of_a_real_deployment_is_accepted_as_it_is() -> None:
    settings = load_settings([Path(__file__).parents[1] / "data" / "nova.conf"])

    assert settings.apis.placement_chosen
    assert settings.policy.cpus.dedicated == frozenset(range(4, 32)) | frozenset(range(36, 64))
    assert settings.policy.reserved_memory_mib == 16384
    assert settings.policy.guests.cpu_mode == "host-model"
    assert slips_of_the_pen(Values(settings.apis.source)) == ()


@pytest.mark.parametrize(
    ("login", "credential"),
    [
        pytest.param("auth_type = password\nusername = u\nauth_url = http://k/v3", "password", id="password"),
        pytest.param(
            "auth_type = v3applicationcredential\napplication_credential_id = i\nauth_url = http://k/v3",
            "application-credential-secret",
            id="application credential",
        ),
    ],
)
def test_a_secret_comes_from_systemd(
    login: str, credential: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, name = tmp_path / "agent.conf", credential.replace("-", "_")
    path.write_text(f"[placement]\n{login}\n", encoding="utf-8")
    (tmp_path / f"placement-{credential}").write_text("secret\n", encoding="utf-8")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    settings = load_settings([path])

    assert open_service(settings, "placement")
    assert settings.apis.source.placement[name] == "secret"


@pytest.mark.parametrize("secret", ["plain", "a$$b", "Tr0ub4$dor", "x$username", r"a\$b", "$", "${agent.interval}"])
def test_a_secret_from_systemd_means_itself(secret: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.conf"
    path.write_text("[placement]\nauth_type = password\nusername = u\nauth_url = http://k/v3\n", encoding="utf-8")
    (tmp_path / "placement-password").write_text(f"{secret}\n", encoding="utf-8")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    assert load_settings([path]).apis.source["placement"]["password"] == secret


def test_novas_login_is_optional_and_its_secret_may_come_from_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.conf"
    path.write_text("[DEFAULT]\nhost = a\n", encoding="utf-8")
    absent = load_settings([path])
    path.write_text("[nova]\nauth_type = password\nusername = u\nauth_url = http://k/v3\n", encoding="utf-8")
    (tmp_path / "nova-password").write_text("secret\n", encoding="utf-8")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    settings = load_settings([path])

    assert (absent.apis.nova_chosen, settings.apis.nova_chosen) == (False, True)
    assert open_service(settings, "nova")[1] == "nova at the endpoint in the catalog of Keystone at http://k/v3"
    with pytest.raises(ConfigError, match=r"no nova is configured: set \[nova\] auth_type"):
        open_service(absent, "nova")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param(r"pa\$word", "pa$word", id="backslash"),
        pytest.param("pa$$word", "pa$word", id="two"),
        pytest.param(r"$$\$x", "$$x", id="both"),
        pytest.param("pa$1", "pa$1", id="no name follows"),
        pytest.param("$username", "u", id="an option of the same group"),
    ],
)
def test_a_dollar_sign_is_read_as_nova_reads_it(written: str, meant: str, write_config: Write) -> None:
    login = {"auth_type": "password", "auth_url": "http://k/v3", "username": "u", "password": written}

    settings = load_settings([write_config(placement=login, ironic=login)])

    assert settings.apis.source["placement"]["password"] == settings.apis.source["ironic"]["password"] == meant


@pytest.mark.parametrize("group", ["placement", "ironic", "nova"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("auth_type", "$site", id="auth_type"),
        pytest.param("auth_type", "${site.kind}", id="auth_type of a group"),
        pytest.param("auth_section", "$site", id="auth_section"),
        pytest.param("password", "$site", id="password"),
    ],
)
def test_a_login_that_cannot_be_resolved_is_told_with_its_place(
    group: str, name: str, value: str, write_config: Write
) -> None:
    login = {"auth_type": "password", "auth_url": "http://k/v3", "username": "u", "password": "p"} | {name: value}

    text = problem(write_config(**{group: login}))

    assert f"[{group}] {name} " in text
    assert ".conf:" in text


@pytest.mark.parametrize(
    ("group", "name"),
    [("DEFAULT", "debug"), ("DEFAULT", "log_file"), ("placement", "auth_type"), ("nova", "auth_section")],
)
def test_an_option_of_the_log_or_of_a_login_that_refers_to_itself_is_told(
    group: str, name: str, write_config: Write
) -> None:
    with pytest.raises(ConfigError, match="refers to itself"):
        load_settings([write_config(**{group: {name: f"${name}"}})], service=True)


def test_the_login_in_another_group_is_resolved_too(write_config: Write) -> None:
    path = write_config(placement={"auth_section": "site"}, site={"auth_type": "$kind"})
    assert "[site] auth_type refers to $kind" in problem(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("[placement]\npassword hunter2\n", id="no equals sign"),
        pytest.param("[placement]\npassword = pa$hunter2\n", id="a dollar sign"),
        pytest.param("[placement]\nauth_type=v3token\ntoken = ${x.hunter2}\n", id="a token"),
        pytest.param("[placement]\nauth_url = http://u:pa$hunter2@k/v3\n", id="in a URL"),
        pytest.param("[placement]\n  hunter2\n", id="goes on from nothing"),
        pytest.param("[placement\npassword=hunter2\n", id="no end of the group's name"),
        pytest.param("[hunter2\n", id="no group"),
    ],
)
def test_no_message_shows_a_secret(content: str, tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text(content)

    text = problem(path)

    assert str(path) in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"endpoint": "http://h:1/p"}, id="endpoint"),
        pytest.param({"endpoint_override": "http://h:1/p"}, id="endpoint_override, as nova has it"),
        pytest.param({"endpoint": "http://other", "endpoint_override": "http://h:1/p"}, id="both: the override"),
    ],
)
@pytest.mark.parametrize("kind", [{"auth_type": "none"}, {"auth_type": "http_basic", "username": "u", "password": "p"}])
def test_a_service_without_keystone_is_where_either_option_says(
    kind: dict[str, object], given: dict[str, object], write_config: Write
) -> None:
    settings = load_settings([write_config(placement=kind | given, ironic=kind | given, nova=kind | given)])

    for adapter, where in (open_service(settings, group) for group in ("placement", "ironic", "nova")):
        assert where.endswith(" at http://h:1/p")
        assert adapter.endpoint_override or adapter.get_endpoint() == "http://h:1/p"


@pytest.mark.parametrize("kind", [{"auth_type": "none"}, {"auth_type": "http_basic", "username": "u", "password": "p"}])
def test_a_service_without_keystone_needs_a_place(kind: dict[str, object], write_config: Write) -> None:
    settings = load_settings([write_config(placement=kind, ironic=kind, nova=kind)])

    with pytest.raises(ConfigError, match=r"\[placement\] auth_type = \w+ needs endpoint = URL of placement"):
        open_service(settings, "placement")
    with pytest.raises(ConfigError, match=r"\[ironic\] auth_type = \w+ needs endpoint_override = URL of Ironic"):
        open_service(settings, "ironic")
    with pytest.raises(ConfigError, match=r"\[nova\] auth_type = \w+ needs endpoint_override = URL of nova"):
        open_service(settings, "nova")


@pytest.mark.parametrize(
    ("option", "url", "advice"),
    [
        pytest.param("endpoint", "http://admin:s3/cret@127.0.0.1:1", "%2F", id="slash"),
        pytest.param("endpoint_override", "http://admin:12/cret@127.0.0.1:1", "%2F", id="slash after a number"),
        pytest.param("endpoint", "http://admin:s3@cret@127.0.0.1:1", "%40", id="at"),
        pytest.param("auth_url", "admin:cret@127.0.0.1:1", "http://", id="no scheme"),
    ],
)
@pytest.mark.parametrize("group", ["placement", "ironic", "nova"])
def test_a_password_that_is_not_escaped_in_a_url_is_refused_and_not_shown(
    group: str, option: str, url: str, advice: str, write_config: Write
) -> None:
    kind = (
        {"auth_type": "password", "username": "u", "password": "p"} if option == "auth_url" else {"auth_type": "none"}
    )
    settings = load_settings([write_config(**{group: kind | {option: url}})])

    with pytest.raises(ConfigError, match=advice) as caught:
        open_service(settings, group)

    assert f"[{group}] {option}" in str(caught.value)
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("GET http://u:p@h/x: no", "GET http://***@h/x: no", id="plain"),
        pytest.param("http://admin:s3/cret@h:1/x", "http://***@h:1/x", id="slash"),
        pytest.param("postgresql://u:hun@ter2@h/p", "postgresql://***@h/p", id="at"),
        pytest.param("http://u:p?q@h/x", "http://***@h/x", id="question mark"),
        pytest.param("http://u:p@h/x?a=b@c", "http://***@h/x?a=b@c", id="in the query"),
        pytest.param("http://h/a, to a@b", "http://h/a, to a@b", id="none"),
    ],
)
def test_a_url_is_shown_without_its_password(text: str, shown: str) -> None:
    assert mask(text) == shown


def test_a_database_whose_password_is_not_escaped_is_refused() -> None:
    name_of = pytest.importorskip("agent.connect.embedded").name_of  # which needs placement
    with pytest.raises(ValueError, match="an @ in it"):
        name_of("postgresql://u:hun@ter2@127.0.0.1/placement")
    assert name_of("postgresql://u:hun%40ter2@h/placement") == "postgresql://u:***@h/placement"


@pytest.mark.parametrize(
    ("group", "meant"),
    [
        pytest.param("agnet", "agent", id="letters in the wrong order"),
        pytest.param("libvrit", "libvirt", id="one of nova's that is read"),
        pytest.param("device", "devices", id="a letter less"),
        pytest.param("placment", "placement", id="placement"),
        pytest.param("default", "DEFAULT", id="in small letters"),
        pytest.param("pic", "pci", id="short"),
        pytest.param("compute-node-agent", "agent", id="the agent's whole name"),
    ],
)
def test_a_group_that_is_nearly_one_that_is_read_is_told_once(write_config: Write, group: str, meant: str) -> None:
    path = write_config(**{group: {"one": 1, "two": 2}})

    found = slips_of_the_pen(Values(load_settings([path]).apis.source))

    assert found == (f"{path}:2: the group [{group}] is not read: is [{meant}] meant?",)


@pytest.mark.parametrize(
    "group", ["api", "api_database", "quota", "cache", "profiler", "mdev_i915-GVTg_V5_4", "vgpu_i915-GVTg_V5_4"]
)
def test_other_groups_are_novas_or_of_an_enabled_type(write_config: Write, group: str) -> None:
    path = write_config(devices={"enabled_mdev_types": "i915-GVTg_V5_4"}, **{group: {"max_instances": 1}})

    assert slips_of_the_pen(Values(load_settings([path]).apis.source)) == ()


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        pytest.param(
            {"devices": {"enabled_mdev_types": "i915-GVTg_V5_4"}, "mdev_i915-GVTg_V5_4": {"max_instance": 1}},
            "[mdev_i915-gvtg_v5_4] max_instance is not read: is max_instances meant?",
            id="option of a type",
        ),
        pytest.param(
            {"devices": {"enabled_mdev_types": "nvidia-35"}, "vgpu_nvidia-35": {"device_address": "0000:84:00.0"}},
            "[vgpu_nvidia-35] device_address is not read: is device_addresses meant?",
            id="option of a type in nova's older form",
        ),
        pytest.param(
            {"devices": {"enabled_mdev_types": "nvidia-35"}, "mdev_nvidia35": {"max_instances": 1, "mdev_class": "A"}},
            "the group [mdev_nvidia35] is not read: is [mdev_nvidia-35] meant?",
            id="group of a misspelt type",
        ),
        pytest.param(
            {"compute": {"Layout": "a"}}, "[compute] Layout is not read: is layout meant?", id="capital letter"
        ),
        pytest.param({"nova": {"auth_tipe": "a"}}, "[nova] auth_tipe is not read: is auth_type meant?", id="a login's"),
        pytest.param({"compute": {"layuot": "a"}}, "[compute] layuot is not read: is layout meant?", id="swapped"),
        pytest.param(
            {"libvirt": {"image_type": "rbd"}}, "[libvirt] image_type is not read: is images_type meant?", id="less"
        ),
        pytest.param(
            {"compute": {"role": "audit"}},
            "[compute] role is not read: is [agent] role meant?",
            id="role elsewhere",
        ),
        pytest.param(
            {"DEFAULT": {"layout": "cells"}},
            "[DEFAULT] layout is not read: is [compute] layout meant?",
            id="layout elsewhere",
        ),
        pytest.param(
            {"mdev_nvidia-36": {"max_instances": 1}},
            "the group [mdev_nvidia-36] is not read: enable its type in [devices] enabled_mdev_types, or remove the "
            "group",
            id="group of a type that is not enabled",
        ),
    ],
)
def test_a_slip_in_the_configuration_is_told_once(
    write_config: Write, groups: dict[str, dict[str, object]], told: str
) -> None:
    (found,) = slips_of_the_pen(Values(load_settings([write_config(**groups)]).apis.source))

    assert found.partition(": ")[2] == told


def test_live_migration_of_devices_for_ports_is_told(write_config: Write) -> None:
    path = write_config(pci={"device_spec": '{"physical_network": "net", "live_migratable": "yes"}'})

    (found,) = slips_of_the_pen(Values(load_settings([path]).apis.source))

    assert found.startswith("[pci] device_spec rule 1 has live_migratable, which nova reads for devices that a flavor ")


def test_a_second_type_without_cards_of_its_own_is_told(write_config: Write) -> None:
    path = write_config(devices={"enabled_mdev_types": "a,b,c"}, mdev_c={"device_addresses": "0000:84:00.0"})

    (found,) = slips_of_the_pen(Values(load_settings([path]).apis.source))

    assert found.startswith(f"{path}:2: [devices] enabled_mdev_types has b, which is not offered: a lacks ")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("adress", "is address meant?"),
        ("vendor", "is vendor_id meant?"),
        ("productid", "is product_id meant?"),
        ("device_id", "remove it"),
        ("rack", "remove it"),
    ],
)
def test_a_key_of_a_rule_that_nobody_reads_and_a_space_are_told(tmp_path: Path, key: str, meant: str) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(
        '[pci]\ndevice_spec = {"vendor_id": "8086", "trusted": "true", "bandwidth": 2}\n'
        f'device_spec = [{{"{key}": "10de", "traits": "fast, slow"}}]\n'
    )

    assert slips_of_the_pen(Values(load_settings([path]).apis.source)) == (
        "[pci] device_spec rule 2 has a space in ' slow', which becomes a _ in its name: remove it",
        f"[pci] device_spec rule 2 has {key}, which is not read: {meant}",
    )


def test_a_slip_in_an_option_of_the_log_is_told(write_config: Callable[..., Path]) -> None:
    path = write_config(DEFAULT={"log_fiel": "a"})

    (found,) = slips_of_the_pen(Values(load_settings([path], service=True).apis.source))

    assert found.endswith("[DEFAULT] log_fiel is not read: is log_file meant?")


@pytest.mark.parametrize("auth_type", ["auht_type = password", "auth_type = pasword"])
def test_a_slip_in_the_type_of_a_login_hides_no_other_slip_of_it(tmp_path: Path, auth_type: str) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(f"[placement]\n{auth_type}\nauth_ulr = u\nuser_name = nova\npasword = p\nproject_name = service\n")

    found = [one.partition("[placement] ")[2] for one in slips_of_the_pen(Values(load_settings([path]).apis.source))]

    wrong, *unread = sorted(found)
    assert "is auth_type meant?" in wrong or wrong == "auth_type = pasword is not known: is password meant?"
    assert unread == ["auth_ulr is not read: is auth_url meant?", "pasword is not read: is password meant?"]


@pytest.mark.parametrize(("own", "shared", "told"), [("bogus", "none", 0), ("none", "pasword", 1)])
def test_the_type_of_a_login_is_that_of_its_auth_section(own: str, shared: str, told: int, write_config: Write) -> None:
    path = write_config(
        placement={"auth_section": "keystone", "auth_type": own, "endpoint": "http://p"}, keystone={"auth_type": shared}
    )

    assert len(slips_of_the_pen(Values(load_settings([path]).apis.source))) == told


@pytest.mark.parametrize("group", ["placement", "keystone"])
def test_wrong_values_and_names_of_a_login_are_told_in_one_round(tmp_path: Path, group: str) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(
        f"[placement]\nauth_section = {group}\ntimeout = 1O\n[{group}]\nauth_type = nonee\nendpont = u\nusrname = n\n"
    )

    assert slips_of_the_pen(Values(load_settings([path]).apis.source)) == (
        f"{path}:6: [{group}] endpont is not read: is endpoint meant?",
        f"{path}:7: [{group}] usrname is not read: is username meant?",
        f"{path}:5: [{group}] auth_type = nonee is not known: is none meant?",
        f"{path}:3: [placement] timeout is not valid: could not convert string to float: '1O'",
    )


def test_a_wrong_option_of_the_log_is_told_with_its_line_beside_other_slips(tmp_path: Path) -> None:
    path = tmp_path / "nova.conf"
    path.write_text("[DEFAULT]\ndebug = maybe\nrate_limit_burst = many\n[placement]\nauth_ulr = u\n")

    with pytest.raises(ConfigError) as caught:
        load_settings([path], service=True)

    assert caught.value.problems == (
        f"{path}:2: [DEFAULT] debug is not valid: Unexpected boolean value 'maybe'",
        f"{path}:3: [DEFAULT] rate_limit_burst is not valid: invalid literal for int() with base 10: 'many'",
        f"{path}:5: [placement] auth_ulr is not read: is auth_url meant?",
    )


def test_an_older_name_of_an_option_is_no_slip(write_config: Callable[..., Path]) -> None:
    older = {"DEFAULT": {"logfile": "a", "logdir": "b"}, "placement": {"user_name": "u"}, "nova": {"user-name": "u"}}

    assert slips_of_the_pen(Values(load_settings([write_config(**older)], service=True).apis.source)) == ()


@pytest.mark.parametrize(
    ("wrong", "unread"),
    [
        pytest.param('{"vendor": "8086", "product_id": "xyzw"}', "rule 1 has vendor, which", id="a rule"),
        pytest.param('{"vendor": "8086"}\ndevice_spec = {', "rule 1 has vendor, which", id="a later rule is no JSON"),
        pytest.param('[3, {"vendor": "8086"}]', "rule 2 has vendor, which", id="a rule is no object"),
        pytest.param('{"vendor": "8086"}\ndiscover = everything', "rule 1 has vendor, which", id="another option"),
        pytest.param("{}\n[agent]\nintervl = 3", "no option of this agent: is interval meant?", id="told once"),
        pytest.param("{}\n[devices]\nenabled_mdev_types = $enabled_mdev_types", "itself", id="itself"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_slips(tmp_path: Path, wrong: str, unread: str) -> None:
    path = tmp_path / "nova.conf"
    path.write_text(f"[pci]\ndevice_spec = {wrong}\n")

    with pytest.raises(ConfigError) as error:
        load_settings([path])

    assert unread in error.value.problems[-1]


@pytest.mark.parametrize(
    ("login", "told"),
    [
        pytest.param(
            {"auth_type": "pasword"}, "auth_type = pasword is not known: is password meant?", id="no such way"
        ),
        pytest.param({"auth_type": "password", "password": "p"}, "which were not given: auth_url", id="URL"),
        pytest.param(
            {"auth_type": "password", "auth_url": "http://k/v3", "username": "u"},
            "needs password: set it",
            id="password",
        ),
        pytest.param(
            {"auth_type": "v3applicationcredential", "auth_url": "http://k/v3", "application_credential_id": "i"},
            "You must provide an auth secret.",
            id="secret",
        ),
        pytest.param(
            {"auth_type": "none", "endpoint": "127.0.0.1:8778"},
            "endpoint = 127.0.0.1:8778 is no URL: it must begin with http:// or https://",
            id="endpoint without a scheme",
        ),
        pytest.param(
            {"auth_type": "none", "endpoint_override": "localhost/placement"},
            "endpoint_override = localhost/placement is no URL",
            id="override without a scheme",
        ),
    ],
)
@pytest.mark.parametrize("group", ["placement", "ironic"])
def test_a_login_that_cannot_work_is_told_with_its_options(
    group: str, login: dict[str, object], told: str, write_config: Write
) -> None:
    settings = load_settings([write_config(**{group: login})])

    with pytest.raises(ConfigError) as caught:
        open_service(settings, group)

    assert told in str(caught.value)
    assert f"[{group}]" in str(caught.value)


def test_a_group_in_capitals_is_read_and_its_options_are_checked(write_config: Write) -> None:
    assert load_settings([write_config(Agent={"interval": 7})]).service.interval_s == 7
    assert "[agent] intervall is no option" in problem(write_config(Agent={"intervall": 7}))


def test_a_reference_to_an_option_of_a_group_in_capitals_is_resolved(write_config: Write) -> None:
    path = write_config(Vendor={"folder": "/srv"}, DEFAULT={"instances_path": "${vendor.folder}/guests"})

    assert load_settings([path]).hypervisor.disk == InstancesFolder(instances=Path("/srv/guests"))


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("250-251,255", frozenset({250, 251, 255})),
        ("0", frozenset({0})),
        ("without_cpus", WITHOUT_CPUS),
        ("none", frozenset()),
    ],
)
def test_cells_are_reserved_by_their_ids_or_by_a_word(text: str, cells: ReservedCells, write_config: Write) -> None:
    assert load_settings([write_config(agent={"reserved_cells": text})]).policy.reserved_cells == cells
    assert load_settings([write_config()]).policy.reserved_cells is None


def test_a_file_that_may_not_be_read_is_told_with_what_to_do() -> None:
    told = _tell_reading(cfg.ConfigFilesPermissionDeniedError(["/etc/nova/nova.conf"]))

    assert told.endswith("/etc/nova/nova.conf: run as a user that may read it, for instance with sudo")
