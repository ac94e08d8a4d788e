"""What an audit says of providers alone."""

import pytest

from agent.audit.decide.findings import Kind
from agent.audit.decide.providers import audit_providers
from agent.audit.decide.snapshot import Scene
from reportclient.allocations import Allocation, Holdings
from reportclient.ownership import MARKER
from reportclient.tree import Inventory, ObservedProvider, ObservedTree, Provider

CARD = "host_0000:81:00.0"


def tree(reserved: int) -> ObservedTree:
    """A host with one card of ours."""
    stock = {"SRIOV_NET_VF": Inventory(total=2, reserved=reserved)}
    providers = (
        Provider(name="host", inventories={"VCPU": Inventory(total=4)}, traits=frozenset({MARKER})),
        Provider(name=CARD, parent="host", inventories=stock, traits=frozenset({MARKER})),
    )
    return ObservedTree(tuple(ObservedProvider(uuid=one.name, generation=1, provider=one) for one in providers))


@pytest.mark.parametrize(
    ("reserved", "used", "safe", "words"),
    [
        pytest.param(0, 0, True, "no hardware", id="nobody wants it"),
        pytest.param(0, 1, False, "in use", id="a guest has some of it"),
        pytest.param(2, 0, False, "resource provider delete", id="an operator reserved it, and the card may come back"),
    ],
)
def test_a_card_that_is_gone_may_be_deleted_only_if_nothing_rests_on_it(
    reserved: int, used: int, safe: bool, words: str
) -> None:
    scene = Scene(
        tree=tree(reserved),
        allocations=(Allocation("guest", CARD, "SRIOV_NET_VF", used),) if used else (),
        holdings=Holdings(),
        classes={"host": frozenset({"VCPU"}), CARD: frozenset({"SRIOV_NET_VF"})},
    )

    (finding,) = (one for one in audit_providers(scene) if one.kind is Kind.GHOST)

    assert (finding.safe, finding.repair is not None) == (safe, safe)
    assert words in finding.seen
