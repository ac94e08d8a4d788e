"""A placement is the same one however its URL is written, and what is remembered about it stays."""

from pathlib import Path

import pytest

from agent.state.audit_memory import AuditMemory, read_memory, write_memory
from agent.state.clock import Clock
from agent.state.memory import NodeState, same_place
from agent.state.node_file import StateFile
from agent.state.node_records import NodesMemory, read_nodes, write_nodes

UUID = "6f1f6a0c-4d3c-4b7e-8b9a-2f6b7a1c0d42"
NOW = Clock("this boot", 1000.0)
PLACE = "placement at http://cloud:8778"
ANOTHER = "placement at http://cloud:8779"
SLASH = f"{PLACE}/"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("placement at http://h/placement", "placement at http://h/placement/", id="last slash"),
        pytest.param("placement at http://h", "placement at http://h:80/", id="default port"),
        pytest.param("placement at https://h/p", "placement at https://h:443/p", id="default port of TLS"),
        pytest.param("placement at HTTP://Cloud.Example/p", "placement at http://cloud.example/p", id="case"),
        pytest.param("placement at http://[::1]:80", "placement at http://[::1]", id="IPv6"),
        pytest.param("in the catalog at http://k/v3/", "in the catalog at http://k/v3", id="the catalog's Keystone"),
        pytest.param("placement at http://***@h/p/", "placement at http://***@h/p", id="with a password"),
        pytest.param("placement at http://[h", "placement at http://[h", id="no URL"),
    ],
)
def test_a_place_is_the_same_however_its_url_is_written(one: str, other: str) -> None:
    assert same_place(one, other)
    assert same_place(other, one)


@pytest.mark.parametrize(
    "other",
    [
        "placement at http://h:8778/placement",
        "placement at https://h/placement",
        "placement at http://h/Placement",
        "placement at http://h",
        "placement at http://h2/placement",
        "placement at http://h:443/placement",
        "placement at http://[h/placement",
        "the endpoint in the catalog of Keystone at http://h/placement",
        "",
    ],
)
def test_another_host_port_path_or_scheme_is_another_place(other: str) -> None:
    assert not same_place("placement at http://h/placement", other)


def test_the_memory_of_a_placement_is_kept_when_its_url_is_written_otherwise(tmp_path: Path) -> None:
    file = StateFile(tmp_path, UUID)
    file.write(NodeState(where=PLACE, bodies={"strikes": 1}))

    assert file.read(SLASH) == NodeState(where=SLASH, bodies={"strikes": 1})
    assert file.read(ANOTHER) == NodeState(where=ANOTHER)


def test_the_memory_of_an_audit_is_kept_when_the_url_is_written_otherwise(tmp_path: Path) -> None:
    write_memory(tmp_path, UUID, AuditMemory(where=PLACE, clock=NOW, generations={UUID: 3}, names={UUID: "host"}))

    assert read_memory(tmp_path, UUID, SLASH, clock=NOW).generations == {UUID: 3}
    assert read_memory(tmp_path, UUID, ANOTHER, clock=NOW).generations == {}


def test_the_memory_of_bare_metal_is_kept_when_a_url_is_written_otherwise(tmp_path: Path) -> None:
    write_nodes(tmp_path, NodesMemory(where=PLACE, ironic="Ironic at http://i:80", lacked=frozenset({"T"})))

    assert read_nodes(tmp_path, SLASH, "Ironic at http://i").lacked == {"T"}
    assert read_nodes(tmp_path, SLASH, "Ironic at http://another").lacked == frozenset()
