"""What the operator's files add to providers, ours and those of others, and what they withdraw."""

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.sync.decide.additions import (
    COMPUTE_NODE,
    Addition,
    add,
    add_to_others,
    now_named,
    still_named,
    without,
    without_taken,
)
from reportclient.ownership import Names
from reportclient.reserve import KEEP
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider, ProviderTree

LINK = "NET_BW_EGR_KILOBIT_PER_SEC"


def provider(name: str, *traits: str, **totals: int) -> Provider:
    stock = {key: Inventory(total=total) for key, total in totals.items()}
    return Provider(name=name, parent="host" if "_" in name else None, inventories=stock, traits=frozenset(traits))


def seen(name: str, *traits: str, **totals: int) -> ObservedProvider:
    return ObservedProvider(uuid=f"uuid of {name}", generation=1, provider=provider(name, *traits, **totals))


def entry(name: str, *traits: str, **totals: int) -> Addition:
    stock = provider("any", **totals).inventories
    return Addition(provider=name, source=Path("a.yaml"), inventories=stock, traits=frozenset(traits))


def names(*found: str) -> Names:
    """Classes with capital letters, traits with small ones."""
    return Names(frozenset(filter(str.isupper, found)), frozenset(filter(str.islower, found)))


def test_a_standing_provider_is_named_by_the_uuid_that_it_has_under_whatever_name() -> None:
    standing = ObservedTree((seen("old"), seen("old_gpu")))

    tree, added = add(
        ProviderTree((provider("host"), provider("host_gpu", "t", A=1))),
        "root",
        [entry("uuid of old_gpu", "u", B=2)],
        observed=standing,
    )

    assert tuple(tree) == (provider("host"), provider("host_gpu", "t", "u", A=1, B=2))
    assert added == {"host_gpu": names("B", "u")}


def test_a_class_of_the_drivers_own_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a.yaml: A of host is reported by the driver"):
        add(ProviderTree((provider("host", A=1),)), "root", [entry("host", A=2, B=1)])


def test_what_stands_on_anothers_provider_is_its_owners_unless_a_file_gave_it() -> None:
    others = (
        seen("host_ovs", "owners", "ours", **{LINK: 5, "OURS": 3, "SAME": 4, "OTHER": 4}),
        seen("host_none", "owners", "gone", A=1, GONE=2),
        seen("host_stock", A=1),
        seen("host_traits", A=1),
        seen("host_same", "owners", A=1),
    )
    additions = (
        entry("uuid of host_ovs", "ours", "owners", "new", NEW=7, OURS=9, SAME=4, OTHER=5),
        entry("host_stock", B=1),
        entry("host_traits", "new"),
        entry("host_same", "owners", A=1),
    )
    before = {"host_ovs": names("OURS", "ours"), "host_none": names("GONE", "gone")}

    found, added, notes = add_to_others(ObservedTree((seen("host"), *others)), others, before, additions)

    assert found == {
        "host_ovs": provider(
            "host_ovs", "owners", "ours", "new", **{LINK: 5, "OURS": 9, "SAME": 4, "OTHER": 4, "NEW": 7}
        ),
        "host_none": provider("host_none", "owners", A=1),
        "host_stock": provider("host_stock", A=1, B=1),
        "host_traits": provider("host_traits", "new", A=1),
        "host_same": provider("host_same", "owners", A=1),
    }
    assert added == {
        "host_ovs": names("NEW", "OURS", "ours", "new"),
        "host_stock": names("B"),
        "host_traits": names("new"),
    }
    assert [one[:39] for one in notes] == ["a.yaml: OTHER of host_ovs has other num"]


def test_anothers_provider_that_is_named_both_by_name_and_by_uuid_is_refused() -> None:
    observed = ObservedTree((seen("host"), seen("host_ovs")))

    with pytest.raises(ConfigError, match=r"uuid of host_ovs is named host_ovs in a\.yaml already"):
        now_named(observed, [entry("host_ovs", A=1), entry("uuid of host_ovs", A=9)])


def test_a_class_is_its_owners_once_it_has_numbers_that_no_pass_left() -> None:
    before = {"a": names("A", "B", "C", "E", "t"), "gone": names("X")}
    others = (seen("a", A=1, B=2, C=3, D=4, E=5), seen("b", A=1))
    left = [ObservedTree((seen("a", A=1, B=9, E=6),)), ObservedTree((seen("a", B=2),)), ObservedTree()]

    assert without_taken(before, others, left) == {"a": names("A", "B", "t"), "gone": names("X")}
    assert without_taken(before, others, []) == before


def test_an_entry_for_every_root_is_for_the_root_alone_and_what_it_still_names_stays() -> None:
    observed = ObservedTree((seen("host"), seen("host_c"), seen("host_d"), seen("host_e")))
    additions = (entry(COMPUTE_NODE, "t", "u", A=1, B=1), entry("uuid of host_c", C=1), entry("host_d", D=1))

    now = now_named(observed, additions)
    still = still_named(
        {"host": names("A", "X", "t", "y"), "host_c": names(), "host_e": names("E")}, observed, additions
    )

    assert now == {"host": names("A", "B", "t", "u"), "host_c": names("C"), "host_d": names("D")}
    assert still == {"host": names("A", "t"), "host_c": names()}


def test_a_driver_does_not_see_what_the_files_put_on_a_provider() -> None:
    observed = ObservedTree((seen("host", "t", "u", f"{KEEP}1_A", A=1, B=1), seen("host_c", "t", A=1)))

    assert without(observed, {"host": names("A", "t")}) == ObservedTree(
        (seen("host", "u", B=1), seen("host_c", "t", A=1))
    )
