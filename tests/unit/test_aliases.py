"""What the aliases of flavors ask for, and which rules give it; tests/inside compares the request with nova's."""

import pytest

from agent.nova.aliases import Alias, parse_aliases, without_rule
from agent.nova.flavors import Flavor, request_of
from drivers.rules import parse_rule

QAT = '{"name": "qat", "vendor_id": "8086", "product_id": "37C9"}'
GPU = '{"name": "gpu", "resource_class": "gold gpu", "traits": "fast,HW_GPU_API_VULKAN"}'
LIVE = '{"name": "live", "resource_class": "qat", "traits": "HW_PCI_LIVE_MIGRATABLE"}'


def test_an_alias_asks_for_its_class_or_for_that_of_its_ids() -> None:
    assert parse_aliases([QAT, GPU]) == {
        "qat": Alias("CUSTOM_PCI_8086_37C9", frozenset()),
        "gpu": Alias("CUSTOM_GOLD_GPU", frozenset({"CUSTOM_FAST", "HW_GPU_API_VULKAN"})),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["{"], r"\[pci\] alias has {, which is no alias of nova's"),
        (["[1]"], r"\[pci\] alias has \[1\], which is no alias"),
        (['{"name": "a", "vendor_id": "8086"}'], "needs vendor_id and product_id, or resource_class"),
        ([QAT, QAT], "has qat twice, which nova refuses"),
    ],
)
def test_an_alias_that_nova_refuses_is_named(texts: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_aliases(texts)


@pytest.mark.parametrize(
    ("alias", "rule", "is_given"),
    [
        (QAT, {"vendor_id": "8086", "product_id": "37c9"}, True),
        (QAT, {"vendor_id": "8086"}, True),
        (QAT, {"vendor_id": "10de"}, False),
        (QAT, {"vendor_id": "8086", "resource_class": "qat"}, False),
        (QAT, {"vendor_id": "8086", "physical_network": "net"}, False),
        (GPU, {"vendor_id": "10de", "resource_class": "GOLD_GPU", "traits": "HW_GPU_API_VULKAN,fast,slow"}, True),
        (GPU, {"vendor_id": "10de", "resource_class": "GOLD_GPU", "traits": "fast"}, False),
        (LIVE, {"vendor_id": "8086", "resource_class": "qat", "live_migratable": "yes"}, True),
        (LIVE, {"vendor_id": "8086", "resource_class": "qat"}, False),
    ],
)
def test_an_alias_that_no_rule_gives_devices_is_told(alias: str, rule: dict[str, object], is_given: bool) -> None:
    aliases = parse_aliases([alias])
    (name,) = aliases

    told = [*without_rule({"pci_passthrough:alias": f"{name}:1"}, aliases, (parse_rule(rule, 1),))]

    assert bool(told) is not is_given
    assert all(one.startswith(f"the alias {name} asks for CUSTOM_") for one in told)


def test_an_alias_that_this_host_does_not_know_is_named() -> None:
    specs = {"pci_passthrough:alias": "qat:2"}
    told = request_of(Flavor(name="f", vcpus=1, memory_mb=1, root_gb=1, extra_specs=specs), {}, {})

    assert told.notes[0] == "[pci] alias of this host has no qat, which the flavor asks for 2 times"
