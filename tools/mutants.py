"""
Change the pure modules in one small place each, and print the changes that no unit test notices.

Each changed copy of a function is a mutant. The sample of mutants follows from the seed, which is printed. For each,
the unit tests that reach the changed lines run in a process of their own, which is forked from one with all tests
loaded and gets the changed function; a change outside of functions is there before anything is loaded. What the tests
reach is measured once for one state of the tree, and kept in .mutants. Run it as ``python -m tools.mutants``.
"""

import argparse
import ast
import copy
import difflib
import gc
import hashlib
import inspect
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from xml.etree import ElementTree

import pytest
from _pytest.runner import runtestprotocol
from coverage import CoverageData
from hypothesis import Phase, settings

from tools.coverage import TOP, files_of, pure_modules

KEPT = TOP / ".mutants"
OPTIONS = ("-q", "-p", "no:cacheprovider", "--rootdir", str(TOP))
BLUNT = ("--assert=plain", "--tb=no")  # that a test fails is enough, and to say why takes long
MEASURED = (
    "agent/",
    "drivers/",
    "reportclient/",
    "inside_nova/",
    "tests/",
)  # after a change there, it is measured anew
ALONE = "MUTANT"  # the variable with a change that is there before anything is loaded
TESTS = "tests/unit"
_START_S = 0.02  # about what a test takes that does nothing

_PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.FloorDiv),
    (ast.BitOr, ast.BitAnd),
    (ast.And, ast.Or),
)
_SWAPS: dict[type[ast.AST], type[Any]] = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_DECIDED = (ast.Constant(True), ast.Constant(False))  # stand instead of a whole condition
_FIELDS = {"annotation", "returns", "decorator_list", "type_params"}  # of types and decorators: never changed


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One change of one file: the bytes from ``start`` to ``end`` become ``text``."""

    file: str
    line: int
    start: int
    end: int
    text: str
    lines: tuple[int, ...]  # of the statement; empty: it runs at import

    def applied(self, source: bytes) -> bytes:
        """Return the changed code."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def shown(self, source: bytes) -> str:
        """Return the change as a diff, with the place above it."""
        texts = (text.decode().splitlines(keepends=True) for text in (source, self.applied(source)))
        return f"{self.file}:{self.line}\n" + "".join([*difflib.unified_diff(*texts, n=1)][2:])


@dataclass(frozen=True)
class Reach:
    """Unit tests, and the lines that each of them reaches."""

    seconds: dict[str, float]  # of each test
    tests: dict[str, dict[int, frozenset[str]]]  # by file and line

    def of(self, mutant: Mutant) -> list[str]:
        """
        Return the tests that reach a mutant: in turn one which reaches much in a short time, and one of little reach.

        Where the mutant is run at import, all tests that reach its file do, or else all tests.
        """
        by_line = self.tests.get(mutant.file, {})
        found = {test for line in mutant.lines or by_line for test in by_line.get(line, ())}
        if not mutant.lines and not found:
            found = set(self.seconds)
        broad = sorted(found, key=lambda test: (-self.breadth[test] / (_START_S + self.seconds.get(test, 0.0)), test))
        narrow = sorted(found, key=lambda test: (self.breadth[test], test))
        return list(dict.fromkeys(itertools.chain.from_iterable(zip(broad, narrow, strict=True))))

    @cached_property
    def breadth(self) -> Counter[str]:
        """How many lines of the code each test reaches."""
        found: Counter[str] = Counter()
        for file, by_line in self.tests.items():
            if not file.startswith("tests/"):
                for tests in by_line.values():
                    found.update(tests)
        return found


def mutants_of(file: str, source: bytes) -> Iterator[Mutant]:
    """Yield all mutants of one file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for statement, inside in _statements(ast.parse(source), False):
        if not inside and _is_type(statement):
            continue
        own = tuple(_own(statement))
        reached = {line for node in own for line in range(node.lineno, node.end_lineno + 1)}
        for node in own:
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            for new in (*_changes(node), *(_DECIDED if node is getattr(statement, "test", None) else ())):
                text = ast.unparse(new)
                if text == ast.unparse(node):
                    continue
                changed = text if isinstance(new, ast.stmt) else f"({text})"
                yield Mutant(file, node.lineno, start, end, changed, tuple(sorted(reached)) if inside else ())


def _statements(above: ast.AST, inside: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Yield all statements, each with whether it is inside a function."""
    for node in ast.iter_child_nodes(above):
        if isinstance(node, ast.stmt):
            yield node, inside
        yield from _statements(node, inside or isinstance(node, ast.FunctionDef))


def _own(statement: ast.AST) -> Iterator[Any]:
    """Yield a simple statement and its expressions; of others, the expressions without those of statements in them."""
    if isinstance(statement, ast.Expr | ast.AugAssign):
        yield statement
    for name, value in ast.iter_fields(statement):
        for node in value if isinstance(value, list) else [value]:
            if name in _FIELDS or not isinstance(node, ast.AST) or isinstance(node, ast.stmt | ast.JoinedStr):
                continue
            if not _is_strict(node):
                if isinstance(node, ast.expr):
                    yield node
                yield from _own(node)


def _is_strict(node: ast.AST) -> bool:
    """Return whether this is ``strict`` of zip: a check that never fails."""
    return isinstance(node, ast.keyword) and node.arg == "strict"


def _is_type(statement: ast.stmt) -> bool:
    """Return whether a statement names a union of types, which Python itself makes no use of."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
        return False
    names = [one.id for one in ast.walk(statement.value) if isinstance(one, ast.Name)]
    return not any(name.isupper() for name in names)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may stand instead of this one."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Compare(ops=ops):
            for at, operator in enumerate(ops):
                if type(operator) in _SWAPS:
                    yield _with(node, ops=[*ops[:at], _SWAPS[type(operator)](), *ops[at + 1 :]])
        case ast.BoolOp(op=operator, values=values):
            yield _with(node, op=_SWAPS[type(operator)]())
            for rest in _one_less(values, lambda _: True):
                yield rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.BinOp(left=left, op=operator, right=right):
            if type(operator) in _SWAPS:
                yield _with(node, op=_SWAPS[type(operator)]())
            yield left
            if isinstance(operator, ast.BitOr | ast.BitAnd):
                yield right
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.IfExp(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Call(func=function, args=args, keywords=keywords):
            if isinstance(function, ast.Name) and function.id in _CALLS:
                yield _with(node, func=ast.Name(_CALLS[function.id]))
            yield from (_with(node, args=rest) for rest in _one_less(args, _is_starred))
            yield from (_with(node, keywords=rest) for rest in _one_less(keywords, lambda one: not _is_strict(one)))
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            yield from (_with(node, elts=rest) for rest in _one_less(parts, _is_starred) if rest)
        case ast.Dict(keys=keys, values=values):
            pairs = list(zip(keys, values, strict=True))
            for rest in _one_less(pairs, lambda pair: pair[0] is None):
                yield _with(node, keys=[key for key, _ in rest], values=[value for _, value in rest])
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            for at, loop in enumerate(node.generators):
                for rest in _one_less(loop.ifs, lambda _: True):
                    loops = [*node.generators[:at], _with(loop, ifs=rest), *node.generators[at + 1 :]]
                    yield _with(node, generators=loops)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _one_less(parts: Sequence[Any], chosen: Any) -> Iterator[list[Any]]:
    return ([*parts[:at], *parts[at + 1 :]] for at, part in enumerate(parts) if chosen(part))


def _is_starred(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred)


class Trial:
    """A plugin of pytest that runs no test once, but for each mutant those that reach it, until one fails."""

    def __init__(self, tests: Mapping[Mutant, Sequence[str]], processes: int, limit_s: float) -> None:
        self._tests = tests
        self._processes = processes
        self._limit_s = limit_s
        self.left = 0

    def pytest_configure(self) -> None:
        """After conftest.py, which has settings of its own."""
        _calm()

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Share the mutants among processes; ``left`` counts those that survive."""
        items = {item.nodeid: item for item in session.items}
        functions = [one for one in gc.get_objects() if isinstance(one, FunctionType)]
        gc.freeze()  # else each process copies most of the memory when it looks for what is unused
        running: dict[int, Mutant] = {}
        sys.stdout.flush()
        for mutant, tests in self._tests.items():
            if len(running) == self._processes:
                self._wait(running)
            if not (pid := os.fork()):
                _try(mutant, functions, [items[name] for name in tests if name in items], self._limit_s)
            running[pid] = mutant
        while running:
            self._wait(running)
        return True

    def _wait(self, running: dict[int, Mutant]) -> None:
        pid, status = os.wait()
        mutant = running.pop(pid)
        told = f"killed: {mutant.file}:{mutant.line}"
        if not status:
            self.left += 1
            told = f"survives {len(self._tests[mutant])} tests: {mutant.shown((TOP / mutant.file).read_bytes())}"
        print(told, file=sys.__stdout__, flush=True)


def _try(mutant: Mutant, functions: list[FunctionType], items: list[pytest.Item], limit_s: float) -> None:
    """Run tests with a mutant until one fails, in this process, which ends with 0 if none does."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s)))
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    scratch = tempfile.mkdtemp(prefix="mutant-")
    pid = os.fork()
    if not pid:
        if not mutant.lines or not _change(mutant, functions):
            _alone(mutant, [item.nodeid for item in items], Path(scratch))
        if items:
            items[0].config._tmp_path_factory._basetemp = Path(scratch)  # type: ignore[attr-defined]
        for item, after in itertools.zip_longest(items, items[1:]):
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=after)):
                os._exit(1)
        os._exit(0)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(int(limit_s) * 4)  # a mutant that waits is endless, too
    _, status = os.waitpid(pid, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    os._exit(1 if status else 0)


def _change(mutant: Mutant, functions: list[FunctionType]) -> bool:
    """Change the function of a mutant among all that there are; whether that could be done."""
    path = TOP / mutant.file
    source = path.read_bytes()
    before, after = (_function(compile(one, str(path), "exec"), mutant) for one in (source, mutant.applied(source)))
    if before is None or after is None or before.co_freevars != after.co_freevars:
        return False
    found = [
        one
        for one in functions
        if (one.__code__.co_qualname, one.__code__.co_firstlineno) == (before.co_qualname, before.co_firstlineno)
        and Path(one.__code__.co_filename).resolve() == path
    ]
    for function in found:
        function.__code__ = after
    return bool(found)


def _function(code: CodeType, mutant: Mutant) -> CodeType | None:
    """Return the outermost function around a mutant."""
    line = mutant.lines[0]
    inner = [one for one in _inside(code) if one.co_firstlineno <= line <= _end(one)]  # no default before the function
    if not inner:
        return None
    last = max(inner, key=lambda one: one.co_firstlineno)
    return last if last.co_flags & inspect.CO_OPTIMIZED else _function(last, mutant)


def _inside(code: CodeType) -> Iterator[CodeType]:
    return (one for one in code.co_consts if isinstance(one, CodeType))


def _end(code: CodeType) -> int:
    """Return the last line of a function, with those inside it."""
    return max([line for *_, line in code.co_lines() if line] + [*map(_end, _inside(code))])


def _alone(mutant: Mutant, tests: list[str], scratch: Path) -> None:
    """Become a new process, in which a mutant is there before anything is loaded; run tests in it."""
    (scratch / "tests").write_text("\n".join(tests))
    own = ("-x", "-p", "tools.mutants", f"--basetemp={scratch}/temp", f"@{scratch}/tests")
    environment = {**os.environ, ALONE: json.dumps(asdict(mutant))}
    os.execve(sys.executable, [sys.executable, "-m", "pytest", *OPTIONS, *BLUNT, *own], environment)


def _load_changed(mutant: Mutant) -> None:
    """Let Python load one file as a mutant has it."""
    load = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        path = Path(loader.path).resolve()
        if path != TOP / mutant.file:
            return load(loader, name)
        return compile(mutant.applied(path.read_bytes()), str(path), "exec")

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]


def measure(digest: str) -> None:
    """
    Run all unit tests once, and keep what they reach.

    Raises:
        SystemExit: one of them fails.
    """
    KEPT.mkdir(exist_ok=True)
    report = ["-x", "--cov", "--cov-context=test", "--cov-report=", "-o", "junit_family=xunit1"]
    command = [sys.executable, "-m", "pytest", *OPTIONS, "-n", "2", *report, f"--junitxml={KEPT}/report.xml", TESTS]
    if subprocess.run(command, cwd=TOP, env={**os.environ, "COVERAGE_FILE": str(KEPT / ".coverage")}).returncode:
        raise SystemExit("a unit test fails without any change of the code: mend that first")
    (KEPT / "digest").write_text(digest)


def _digest() -> str:
    """Return what tells one state of code and tests from another."""
    listed = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=TOP, text=True)
    names = sorted(name for name in listed.split("\0") if name.startswith(MEASURED) and (TOP / name).is_file())
    return hashlib.sha256(b"".join(name.encode() + (TOP / name).read_bytes() for name in names)).hexdigest()


def kept_reach() -> Reach:
    """Read what the unit tests reach, as it was measured last."""
    data = CoverageData(str(KEPT / ".coverage"))
    data.read()
    top = os.path.commonpath(data.measured_files())
    by_file = {name: data.contexts_by_lineno(name) for name in data.measured_files()}
    cases = ElementTree.parse(KEPT / "report.xml").iter("testcase")
    return Reach(
        {f"{case.get('file')}::{case.get('name')}": float(case.get("time", 0)) for case in cases},
        {
            os.path.relpath(name, top): {line: _tests(of) for line, of in lines.items()}
            for name, lines in by_file.items()
        },
    )


def _tests(contexts: Iterable[str]) -> frozenset[str]:
    """Return the tests of coverage's contexts, which add a test's phase; without a name it is the import."""
    return frozenset(context.rpartition("|")[0] for context in contexts) - {""}


def chosen(mutants: Iterable[Mutant], places: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """Return all mutants at some places (FILE:LINE), or else a sample of all."""
    found = sorted(set(mutants))
    if places:
        return [mutant for mutant in found if f"{mutant.file}:{mutant.line}" in places]
    return random.Random(seed).sample(found, count)


def main() -> int:
    """Print the mutants that survive, and the share of those that do not; 1 if any does."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="*", metavar="FILE:LINE", help="change these lines, instead of a sample")
    parser.add_argument("--count", type=int, default=200, help="size of the sample")
    parser.add_argument("--seed", type=int, default=random.randrange(10**8))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=600, help="seconds of a CPU at most for one mutant")
    args = parser.parse_args()
    files = sorted(files_of(pure_modules((TOP / "pyproject.toml").read_text()), TOP))
    every = [mutant for file in files for mutant in mutants_of(file, (TOP / file).read_bytes())]
    mutants = chosen(every, args.places, args.count, args.seed)
    print(f"{len(mutants)} of {len(every)} mutants of {len(files)} files, seed {args.seed}", flush=True)
    if not (KEPT / "digest").is_file() or (KEPT / "digest").read_text() != _digest():
        measure(_digest())
    reach = kept_reach()
    trial = Trial({mutant: reach.of(mutant) for mutant in mutants}, args.processes, args.limit)
    del reach  # a gigabyte, which no process needs
    pytest.main([*OPTIONS, *BLUNT, "-p", "no:xdist", TESTS], plugins=[trial])
    killed = len(mutants) - trial.left
    print(f"{killed} of {len(mutants)} mutants killed ({killed / len(mutants):.1%}), {trial.left} survive")
    return 1 if trial.left else 0


def _calm() -> None:
    """Let a failing test of Hypothesis end at once: which example is the smallest is of no interest here."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutants", settings.get_profile("default"), phases=phases, database=None, derandomize=True
    )
    settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Load one file as the mutant of the environment has it: as a plugin of pytest, before conftest.py loads any."""
    if ALONE in os.environ:
        _load_changed(Mutant(**json.loads(os.environ[ALONE])))


def pytest_configure() -> None:
    """After conftest.py, which has settings of its own."""
    _calm()


if __name__ == "__main__":
    sys.exit(main())
