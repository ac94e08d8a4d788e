"""
Builds the wheel nova-compute-node-agent: our libvirt driver, for nova's Python. ``make nova-driver`` calls it.

The names of our packages are too general for an environment of others. So the wheel has all modules that the driver
imports below one package, with the imports rewritten, and ``nova/virt/compute_node_agent.py``, which nova finds.
"""

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
OURS = ("agent", "drivers", "reportclient", "inside_nova")
PREFIX = "compute_node_agent_nova"
ENTRY = "inside_nova.driver"
FOUND_BY_NOVA = "nova/virt/compute_node_agent.py"


def reached(entry: str, top: Path = TOP) -> frozenset[str]:
    """Return our modules that a module imports, directly or not, at its top or inside functions; with itself."""
    found: set[str] = set()
    left = [entry]
    while left:
        module = left.pop()
        if module in found:
            continue
        found.add(module)
        left += [name for name in _imports(source_of(module, top).read_text(), top) if name not in found]
        left += [module.rpartition(".")[0]] if "." in module else []
    return frozenset(found)


def source_of(module: str, top: Path = TOP) -> Path:
    """Return the file of one of our modules or packages."""
    path = top / module.replace(".", "/")
    package = path / "__init__.py"  # a folder alone may be left of a package that became a module
    return package if package.exists() else path.with_suffix(".py")


def rewritten(text: str) -> str:
    """
    Return the text of a module with our packages imported from below the prefix.

    Raises:
        ValueError: an ``import agent.x`` or a text like "agent.x" names our packages in a way that is not rewritten.
    """
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if _is_ours(module):
                line = lines[node.lineno - 1]
                start = node.col_offset + len("from ")
                lines[node.lineno - 1] = f"{line[:start]}{PREFIX}.{line[start:]}"
            case ast.Import(names=names) if any(_is_ours(one.name) for one in names):
                raise ValueError(f"line {node.lineno}: write from ... import ...")
            case ast.Call(args=[ast.Constant(value=str(value)), *_]) if value.split(".")[0] in OURS and "." in value:
                raise ValueError(f"line {node.lineno}: {value!r} is not rewritten")
            case _:
                pass
    return "".join(lines)


def stage(folder: Path, top: Path = TOP) -> None:
    """Write what the wheel is built from into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for module in sorted(reached(ENTRY, top)):
        source = source_of(module, top)
        target = folder / PREFIX / source.relative_to(top)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(rewritten(source.read_text()))
    (folder / PREFIX / "__init__.py").write_text(
        '"""The packages of compute-node-agent, for use inside nova-compute."""\n'
    )
    entry = folder / FOUND_BY_NOVA
    entry.parent.mkdir(parents=True)
    entry.write_text(
        f'"""[DEFAULT] compute_driver = compute_node_agent.LibvirtDriver."""\n\n'
        f"from {PREFIX}.{ENTRY} import LibvirtDriver\n\n__all__ = ['LibvirtDriver']\n"
    )
    shutil.copy(top / "inside_nova/wheel.toml", folder / "pyproject.toml")
    shutil.copy(top / "LICENSE", folder)


def main(target: str) -> int:
    """Build the wheel into the folder ``target``."""
    staging = TOP / "build/nova-driver"
    stage(staging)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        target,
    ]
    subprocess.run([*build, str(staging)], check=True)
    print(*sorted(str(path) for path in Path(target).glob("nova_compute_node_agent-*.whl")))
    return 0


def _imports(text: str, top: Path) -> Iterator[str]:
    """Yield our modules that a text imports; ``from package import module`` gives both."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and _is_ours(node.module):
            yield node.module
            names = (f"{node.module}.{one.name}" for one in node.names)
            yield from (name for name in names if source_of(name, top).is_file())


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in OURS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
