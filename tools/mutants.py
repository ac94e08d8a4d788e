"""
Change the pure modules in one small place each, and print the changes that no unit test notices.

Each changed copy of the code is a mutant. The sample of mutants follows from the seed, which is printed. For each, the
unit tests that reach the changed lines run in a copy of the tree. What they reach is measured once for one state of the
tree, and kept in .mutants. Run it as ``python -m tools.mutants``.
"""

import argparse
import ast
import copy
import difflib
import hashlib
import itertools
import multiprocessing
import os
import queue
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from coverage import CoverageData
from hypothesis import Phase, settings

from tools.coverage import TOP, files_of, pure_modules

KEPT = TOP / ".mutants"
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider")
QUIET = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # what is loaded before pytest is not rewritten
MEASURED = (
    "agent/",
    "drivers/",
    "reportclient/",
    "inside_nova/",
    "tests/",
)  # folders: after a change, it is measured anew
UNNOTICED = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
SLOWER = 1  # times the seconds that tests took when they were measured, until a mutant counts as endless
FIRST = 4  # files of tests that are loaded first
ASLEEP = 20  # times that on a busy machine, until a mutant that waits counts as endless

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
_OWN = {"agent", "drivers", "reportclient", "inside_nova", "beds", "tools", "conftest", "__main__", "__mp_main__"}
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


@dataclass(frozen=True, slots=True)
class Reach:
    """Unit tests, and the lines that each of them reaches."""

    seconds: dict[str, float]  # of each test
    tests: dict[str, dict[int, frozenset[str]]]  # by file and line

    def of(self, mutant: Mutant) -> tuple[list[str], list[str]]:
        """
        Return the tests that reach a mutant, those to run first and the others, quick ones first.

        To load the files of all takes longer than those of some that reach it often: these are first. Where the mutant
        is run at import, all tests that reach its file do, or else all tests.
        """
        by_line = self.tests.get(mutant.file, {})
        found = {test for line in mutant.lines or by_line for test in by_line.get(line, ())}
        if not mutant.lines and not found:
            found = set(self.seconds)
        often = Counter(_file_of(test) for test in found)
        seconds = {file: sum(self._seconds(test) for test in found if _file_of(test) == file) for file in often}
        first = set(sorted(often, key=lambda file: (-often[file] / (1 + seconds[file]), file))[:FIRST])
        quick = sorted(found, key=lambda test: (self._seconds(test), test))
        return [one for one in quick if _file_of(one) in first], [one for one in quick if _file_of(one) not in first]

    def _seconds(self, test: str) -> float:
        return self.seconds.get(test, 0.0)


def _file_of(test: str) -> str:
    return test.partition("::")[0]


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
            if not (isinstance(node, ast.keyword) and node.arg == "strict"):  # of zip: a check that never fails
                if isinstance(node, ast.expr):
                    yield node
                yield from _own(node)


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
            yield from (_with(node, keywords=rest) for rest in _one_less(keywords, lambda _: True))
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


class Beds:
    """Copies of the tree in which tests run, one for each process."""

    def __init__(self, folder: Path, count: int) -> None:
        self._free: queue.Queue[Path] = queue.Queue()
        self._moments = itertools.count(10**9)
        listed = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=TOP, text=True)
        files = [name for name in listed.split("\0") if (TOP / name).is_file()]
        for number in range(count):
            for name in files:
                target = folder / str(number) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TOP / name, target)
            self._free.put(folder / str(number))
        self._context = _warm(folder / "0")
        own = [name for name in files if name.startswith(MEASURED)]
        self.digest = hashlib.sha256(b"".join(name.encode() + (TOP / name).read_bytes() for name in own)).hexdigest()

    def _write(self, file: Path, source: bytes) -> None:
        """Write a file with a time of its own, by which Python sees that its compiled form is another one's."""
        file.write_bytes(source)
        moment = next(self._moments)
        os.utime(file, (moment, moment))

    def measure(self) -> None:
        """
        Run all unit tests once, and keep what they reach.

        Raises:
            SystemExit: one of them fails.
        """
        bed = self._free.get()
        report = ["--cov", "--cov-context=test", "--cov-report=", "-o", "junit_family=xunit1", "--junitxml=report.xml"]
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-p", "tools.mutants", *report, "tests/unit"]
        if subprocess.run(command, cwd=bed, env=_environment(bed)).returncode:
            raise SystemExit("a unit test fails without any change of the code")
        KEPT.mkdir(exist_ok=True)
        for name in (".coverage", "report.xml"):
            shutil.move(bed / name, KEPT / name)
        (KEPT / "digest").write_text(self.digest)
        self._free.put(bed)

    def _exit_code(self, bed: Path, limit_s: float) -> int | None:
        """Return pytest's exit code; below 0 if it took these seconds of a CPU, or ``ASLEEP`` times as long."""
        process = self._context.Process(target=_run, args=(bed, [*OPTIONS, *QUIET, "@tests.txt"], int(limit_s)))
        process.start()
        process.join(limit_s * ASLEEP)
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        return process.exitcode

    def survives(self, mutant: Mutant, reach: Reach, limit_s: float) -> bool:
        """Return whether all tests that reach a mutant pass in time; also where there are none."""
        bed = self._free.get()
        file = bed / mutant.file
        source = file.read_bytes()
        self._write(file, mutant.applied(source))
        try:
            return all(self._pass(bed, tests, reach, limit_s) for tests in reach.of(mutant) if tests)
        finally:
            self._write(file, source)
            self._free.put(bed)

    def _pass(self, bed: Path, tests: list[str], reach: Reach, limit_s: float) -> bool:
        (bed / "tests.txt").write_text("\n".join(tests))
        limit_s = min(limit_s, 30 + SLOWER * sum(reach.seconds.get(test, 0.0) for test in tests))
        return self._exit_code(bed, limit_s) in UNNOTICED


def _environment(bed: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(bed)}


def _warm(bed: Path) -> BaseContext:
    """
    Return a context whose processes begin with all that the tests import from elsewhere.

    To load it takes longer than most tests.
    """
    code = (
        "import sys, pytest\n"
        "pytest.main(['-q', '--co', '-p', 'no:cacheprovider', '-p', 'no:terminal', 'tests/unit'])\n"
        "print(*(name for name, one in list(sys.modules.items()) if getattr(one, '__spec__', None)"
        " and not str(getattr(one, '__file__', None)).startswith(sys.argv[1])))"
    )
    command = [sys.executable, "-c", code, str(bed)]
    names = subprocess.run(command, cwd=bed, env=_environment(bed), check=True, capture_output=True, text=True).stdout
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in names.split() if name.partition(".")[0] not in _OWN])
    return context


def _run(bed: Path, args: list[str], limit_s: int) -> None:
    """Run tests in this process, which was made for it; its exit code is pytest's."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    os.chdir(bed)
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    os.environ.update(_environment(bed))
    sys.path[:] = [str(bed), *(one for one in sys.path if one not in ("", str(TOP)))]
    os._exit(pytest.main(args, plugins=[sys.modules[__name__]]))


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
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        beds = Beds(Path(folder), args.processes)
        if not (KEPT / "digest").is_file() or (KEPT / "digest").read_text() != beds.digest:
            beds.measure()
        reach = kept_reach()
        with ThreadPoolExecutor(args.processes) as pool:
            left = list(pool.map(lambda mutant: _told(beds, mutant, reach, args.limit), mutants))
    killed = len(mutants) - sum(left)
    print(f"{killed} of {len(mutants)} mutants killed ({killed / len(mutants):.1%}), {sum(left)} survive")
    return 1 if any(left) else 0


def _told(beds: Beds, mutant: Mutant, reach: Reach, limit_s: float) -> bool:
    source = (TOP / mutant.file).read_bytes()
    survives = beds.survives(mutant, reach, limit_s)
    told = (
        f"survives {sum(map(len, reach.of(mutant)))} tests: {mutant.shown(source)}"
        if survives
        else f"killed: {mutant.file}:{mutant.line}"
    )
    print(told, flush=True)
    return survives


def pytest_configure() -> None:
    """Let a failing test of Hypothesis end at once: which example is the smallest is of no interest here."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutants", settings.get_profile("default"), phases=phases, database=None, derandomize=True
    )
    settings.load_profile("mutants")


if __name__ == "__main__":
    sys.exit(main())
