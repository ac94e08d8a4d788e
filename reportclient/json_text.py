"""Decodes JSON of others, but for texts of so many values that these would fill the memory: a list takes 64 bytes."""

import json
from collections.abc import Callable
from typing import Any

MOST_VALUES = 1 << 20  # a record of a provider has about 30, so as many as 30,000 of them have


def decode_json(text: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """
    Decode a text; ``parse_constant`` as for ``json.loads``.

    Raises:
        ValueError, RecursionError: it is not JSON, or has more than ``MOST_VALUES`` values.
    """
    check_values(text.encode(errors="surrogatepass") if len(text) > MOST_VALUES else b"")
    return json.loads(text, parse_constant=parse_constant)


def check_values(text: bytes) -> None:
    """Raise ValueError where a text may have more than ``MOST_VALUES`` values; counts those in strings too."""
    if len(text) > MOST_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"it has more than {MOST_VALUES} values")
