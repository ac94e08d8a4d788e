"""A cloud of its own for each file of tests."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beds.cloud.lab import Lab, serving


@pytest.fixture(scope="module")
def lab(bed_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    began = time.monotonic()
    with serving(tmp_path_factory.mktemp("cloud"), bed_cache) as lab:
        print(f"\nthe cloud stands after {time.monotonic() - began:.0f} s")
        yield lab
