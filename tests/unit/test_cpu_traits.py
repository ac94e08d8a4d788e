"""libvirt's features and os-traits' names of them, compared as a whole."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from drivers.libvirt.traits import CPU_FEATURES

TOOL = Path(__file__).parents[2] / "tools/cpu_traits.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cpu_traits", TOOL)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_cpu_trait_has_a_feature_or_a_reason_why_none_gives_it(tool: ModuleType) -> None:
    assert list(tool.unexplained()) == []


def test_each_feature_is_one_that_libvirt_knows(tool: ModuleType) -> None:
    if not tool.CPU_MAP.exists():
        pytest.skip("needs libvirt's CPU map")

    assert CPU_FEATURES.keys() <= tool.features()
