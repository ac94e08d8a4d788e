"""What make mutants changes in the code, and which tests it runs for each change."""

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]
CODE = b"""\
LIMIT = 3; Change = list[int] | None
def f(xs, *, ok=lambda: None):
    if any(x < 1 for x in xs if x) and ok:
        return {**xs, 'y': 0}
    xs.clear(strict=True)
    raise ValueError(f'{1} is wrong')
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """By its path, as tools are no package of the product."""
    spec = importlib.util.spec_from_file_location("tools_mutants", TOP / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_each_change_is_small_and_still_python(tool: ModuleType) -> None:
    found = {(one.line, one.text) for one in tool.mutants_of("f.py", CODE)}

    assert found == {
        (1, "(4)"),
        (3, "(any((x < 1 for x in xs if x)) or ok)"),
        (3, "(any((x < 1 for x in xs if x)))"),
        (3, "(ok)"),
        (3, "(True)"),
        (3, "(False)"),
        (3, "(all((x < 1 for x in xs if x)))"),
        (3, "((x < 1 for x in xs))"),
        (3, "(x <= 1)"),
        (3, "(2)"),
        (4, "({'y': 0})"),
        (4, "(1)"),
        (5, "pass"),
    }
    for one in tool.mutants_of("f.py", CODE):
        assert ast.dump(ast.parse(one.applied(CODE))) != ast.dump(ast.parse(CODE))


def test_a_change_is_told_with_its_place_and_as_a_diff(tool: ModuleType) -> None:
    (one,) = [each for each in tool.mutants_of("f.py", CODE) if each.text == "pass"]

    assert one.shown(CODE).splitlines() == [
        "f.py:5",
        "@@ -4,3 +4,3 @@",
        "         return {**xs, 'y': 0}",
        "-    xs.clear(strict=True)",
        "+    pass",
        "     raise ValueError(f'{1} is wrong')",
    ]


def test_the_function_around_a_change_is_not_the_default_of_a_parameter(tool: ModuleType) -> None:
    inside = [each for each in tool.mutants_of("f.py", CODE) if each.lines]

    assert {tool._function(compile(CODE, "f.py", "exec"), each).co_name for each in inside} == {"f"}


def test_the_tests_that_reach_the_statement_run_in_turn_a_broad_and_a_narrow_one(
    tool: ModuleType,
) -> None:
    seconds = {"slow": 9.0, "quick": 0.1, "broad": 0.1, "elsewhere": 0.0}
    broad = {line: frozenset({"broad"}) for line in range(9)}
    reach = tool.Reach(
        seconds, {"f.py": {3: frozenset({"slow", "quick", "broad"}), 5: frozenset({"elsewhere"})}, "g.py": broad}
    )
    by_line = {one.line: reach.of(one) for one in tool.mutants_of("f.py", CODE)}

    assert by_line[3] == ["broad", "quick", "slow"]
    assert by_line[4] == []
    assert set(by_line[1]) == set(seconds)  # at import: all that reach the file
    (other, *_) = tool.mutants_of("h.py", b"LIMIT = 3\n")
    assert set(reach.of(other)) == set(seconds)


def test_a_seed_gives_the_same_sample_again_whatever_the_order(tool: ModuleType) -> None:
    found = list(tool.mutants_of("f.py", CODE))

    assert tool.chosen(found, [], 5, 1) == tool.chosen(found[::-1], [], 5, 1) != tool.chosen(found, [], 5, 2)
    assert len(set(tool.chosen(found, [], 5, 1))) == 5


def test_the_changes_of_one_line_can_be_asked_for(tool: ModuleType) -> None:
    found = tool.chosen(tool.mutants_of("f.py", CODE), ["f.py:4"], 5, 1)

    assert [one.text for one in found] == ["({'y': 0})", "(1)"]
