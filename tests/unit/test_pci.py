"""PCI addresses: there and back, in the order in which people list them, and none that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers.pci import LIMITS, PciAddress, parse_pci_address

parts = st.tuples(*(st.integers(0, limit) for limit in LIMITS))


@given(parts)
def test_an_address_is_there_and_back(place: tuple[int, int, int, int]) -> None:
    assert parse_pci_address(str(PciAddress(*place))) == PciAddress(*place)


@pytest.mark.parametrize("text", ["", "81:00.0", "0000:81:00.8", "0000:81:00", "00000000081:81:00.0", "0000:8g:00.0"])
def test_a_text_in_another_form_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no PCI address like 0000:81:00"):
        parse_pci_address(text)


@pytest.mark.parametrize(
    "place", [(0, 0, 0x20, 0), (0, 0x100, 0, 0), (0, 0, 0, 8), (0x1_0000_0000, 0, 0, 0), (0, 0, 0, -1)]
)
def test_no_function_is_beyond_the_limits_of_the_bus(place: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="no PCI function is at"):
        PciAddress(*place)


def test_addresses_are_in_the_order_of_their_numbers_and_not_of_their_texts() -> None:
    texts = ["10000:00:00.0", "0000:81:10.0", "0000:81:02.1", "0000:05:00.0"]

    assert sorted(map(parse_pci_address, texts)) == [parse_pci_address(text) for text in reversed(texts)]
