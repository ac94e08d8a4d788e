"""provider.yaml: what operators add to providers of this host."""

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.sync.decide.additions import add
from agent.sync.provider_yaml import read_additions
from reportclient.ownership import MARKER
from reportclient.renaming import child_uuid
from reportclient.reserve import UNHEALTHY
from reportclient.tree import Inventory, Provider, ProviderTree

ROOT_UUID = "00000000-0000-0000-0000-000000000001"
TREE = ProviderTree(
    (
        Provider(name="host", inventories={"VCPU": Inventory(total=2)}, traits=frozenset({"CUSTOM_OURS"})),
        Provider(name="host_gpu", parent="host"),
    )
)
ADDING = (
    "meta: {{schema_version: '1.0'}}\nproviders: [{{identification: {{name: a}}, inventories: "
    "{{additional: [{{{}: {{total: 1}}}}]}}}}]"
)


def entry(identity: str, traits: str = "[CUSTOM_FAST]", inventories: str = "[]") -> str:
    return (
        f"  - identification: {{{identity}}}\n    traits: {{additional: {traits}}}\n"
        f"    inventories: {{additional: {inventories}}}\n"
    )


def write(folder: Path, *entries: str, name: str = "a.yaml", version: str = "'1.0'") -> Path:
    (folder / name).write_text(f"meta: {{schema_version: {version}}}\nproviders:\n{''.join(entries)}")
    return folder


def merged(folder: Path) -> dict[str, Provider]:
    tree, _ = add(TREE, ROOT_UUID, read_additions(folder))
    return {provider.name: provider for provider in tree}


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        pytest.param("uuid: $COMPUTE_NODE", "host", id="every root"),
        pytest.param("name: host", "host", id="root by name"),
        pytest.param(f"uuid: {ROOT_UUID}", "host", id="root by uuid"),
        pytest.param(f"uuid: {child_uuid(ROOT_UUID, 'host', 'host_gpu').upper()}", "host_gpu", id="uuid in capitals"),
        pytest.param(f"uuid: {child_uuid(ROOT_UUID, 'host', 'host_gpu')}", "host_gpu", id="child by uuid"),
        pytest.param("name: host_gpu", "host_gpu", id="child by name"),
    ],
)
def test_a_provider_is_named_by_uuid_by_name_or_as_every_root(tmp_path: Path, identity: str, name: str) -> None:
    found = merged(write(tmp_path, entry(identity, inventories="[{CUSTOM_LICENCE: {total: 3, reserved: 1}}]")))

    assert "CUSTOM_FAST" in found[name].traits
    assert found[name].inventories["CUSTOM_LICENCE"] == Inventory(total=3, reserved=1)
    (other,) = found.keys() - {name}
    assert "CUSTOM_FAST" not in found[other].traits


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("meta: {schema_version: 1.0}\n", "meta.schema_version is 1.0, and this agent reads '1.0': write it in quotes"),
        ("", "meta.schema_version is missing"),
        ("meta: {schema_version: '1.0'}\nmeta: {}\n", "a.yaml:2: meta stands twice in one group: join them"),
        (f"meta: {{schema_version: 0x{'1' * 5000}}}\n", "a.yaml:1: a number has 5002 letters: no number is so long"),
    ],
)
def test_a_file_of_another_form_is_refused_with_what_to_write(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.yaml").write_text(text)

    with pytest.raises(ConfigError) as error:
        read_additions(tmp_path)

    assert told in str(error.value)


def test_an_alias_is_refused_before_a_few_lines_fill_the_memory(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))

    with pytest.raises(ConfigError, match=r"a\.yaml:2: \*a0 repeats what stands elsewhere: write it out"):
        read_additions(tmp_path)


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    text = "meta: {schema_version: '1.0'}\n"
    (tmp_path / "a.yaml").write_text(text + "#" * ((1 << 17) - len(text)))
    assert read_additions(tmp_path) == ()
    (tmp_path / "a.yaml").write_text(text + "#" * ((1 << 17) - len(text) + 1))

    with pytest.raises(ConfigError, match=r"a\.yaml is larger than 128 KiB"):
        read_additions(tmp_path)


def test_an_inventory_that_nobody_could_have_is_refused(tmp_path: Path) -> None:
    stock = "[{CUSTOM_LICENCE: {total: 3, min_unit: 4, max_unit: 2}}]"

    with pytest.raises(ConfigError, match="CUSTOM_LICENCE has min_unit 4 and max_unit 2: nobody could have any"):
        read_additions(write(tmp_path, entry("name: host", inventories=stock)))


def test_an_entry_of_its_own_takes_the_place_of_the_one_for_every_root(tmp_path: Path) -> None:
    found = merged(write(tmp_path, entry("uuid: $COMPUTE_NODE"), entry("name: host", "[CUSTOM_SLOW]")))

    assert found["host"].traits == {"CUSTOM_OURS", "CUSTOM_SLOW"}


def test_entries_for_other_hosts_and_empty_ones_add_nothing(tmp_path: Path) -> None:
    found = merged(write(tmp_path, entry("name: elsewhere"), entry("name: host", "[]")))

    assert found == {provider.name: provider for provider in TREE}


def test_no_folder_is_no_additions_unless_it_was_named(tmp_path: Path) -> None:
    assert read_additions(tmp_path / "none") == ()
    with pytest.raises(ConfigError, match="there is no folder"):
        read_additions(tmp_path / "none", required=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "is not YAML", id="broken"),
        pytest.param("a: !!int ''", "is not YAML", id="a tag that does not fit"),
        pytest.param("[]", "meta.schema_version is missing", id="a list"),
        pytest.param("meta: []", "meta.schema_version is missing", id="meta is a list"),
        pytest.param("meta:", "meta.schema_version is missing", id="no meta"),
        pytest.param("meta: {schema_version: '2.0'}", "'2.0', and this agent reads '1.0'", id="a later schema"),
        pytest.param("meta: {schema_version: 1.0}", "schema_version is 1.0", id="a number"),
        pytest.param("meta: {schema_version: '1.0'}\nproviders: [{}]", "identification", id="no name"),
        pytest.param(
            "meta: {schema_version: '1.0'}\n__source_file: a.yaml",
            "__source_file, which nova keeps",
            id="nova's own key",
        ),
        pytest.param(
            "meta: {schema_version: '1.0'}\nproviders: [{identification: {name: a, uuid: b}}]",
            "has too many",
            id="two names",
        ),
        pytest.param(
            ADDING.format("custom_a"),
            r"providers\[0\].inventories.additional\[0\]: 'custom_a' does not match",
            id="a class in small letters",
        ),
        pytest.param(
            ADDING.format(f"CUSTOM_{'A' * 249}"), r"additional\[0\]: 'CUSTOM_A*' does not .*\{1,255}\$'$", id="long"
        ),
        pytest.param(ADDING.format("5"), r"additional\[0\]: 5 is not of type 'string'$", id="a number as a class"),
    ],
)
def test_a_file_that_breaks_the_schema_is_an_error_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)

    with pytest.raises(ConfigError, match=message) as caught:
        read_additions(tmp_path)

    assert str(caught.value).startswith(str(tmp_path / "bad.yaml"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param((entry("name: host", "[HW_CPU_X86_AVX]"),), "only CUSTOM_ names", id="standard trait"),
        pytest.param(
            (entry("name: host", inventories="[{VCPU: {total: 3}}]"),), "only CUSTOM_ names", id="standard class"
        ),
        pytest.param(
            (entry("name: host", inventories="[{CUSTOM_A: {total: 0}}]"),), "total must be", id="nothing of it"
        ),
        pytest.param(
            (entry("name: host", inventories="[{CUSTOM_A: {total: 1}}, {CUSTOM_A: {total: 9}}]"),),
            "provider host has CUSTOM_A twice: join them",
            id="a class twice",
        ),
        pytest.param((entry("name: host"), entry("name: host")), "named in .* already", id="twice by name"),
        pytest.param((entry("name: host"), entry(f"uuid: {ROOT_UUID}")), "already", id="by name and by uuid"),
        pytest.param((entry("name: host", "[CUSTOM_OURS]"),), "reported by the driver", id="the driver's own"),
        pytest.param((entry("name: host", f"[{MARKER}_X]"),), f"host: has {MARKER}_X, by which", id="a mark of ours"),
        pytest.param((entry("name: host_gpu", f"[{UNHEALTHY}]"),), f"has {UNHEALTHY}, by which", id="another mark"),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, entries: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        merged(write(tmp_path, *entries))


def test_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, entry("name: host"), name="b.yaml")
    write(tmp_path, entry("name: host_gpu"), name="a.yaml")
    (tmp_path / "ignored.yml").write_text("{")

    assert [addition.provider for addition in read_additions(tmp_path)] == ["host_gpu", "host"]


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot read"):
        read_additions(tmp_path / "file")
