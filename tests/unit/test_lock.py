"""The package is built from what tools/deb/requirements.txt locks: each release with hashes, and as setup.py asks."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGED = {"install_requires", "LIBVIRT", "UDEV", "IRONIC", "MANUAL"}  # what tools/stage.sh installs


def locked() -> dict[str, tuple[str, str]]:
    """Version and the rest of the entry, by name."""
    text = (ROOT / "tools/deb/requirements.txt").read_text(encoding="utf-8").replace("\\\n", "")
    return {name: (version, rest) for name, version, rest in re.findall(r"(?m)^([\w-]+)==(\S+)(.*)$", text)}


def asked() -> Iterator[Requirement]:
    for node in ast.walk(ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))):
        named = node.targets[0] if isinstance(node, ast.Assign) else None
        name = named.id if isinstance(named, ast.Name) else node.arg if isinstance(node, ast.keyword) else None
        if name in PACKAGED and isinstance(node, ast.Assign | ast.keyword):
            yield from map(Requirement, ast.literal_eval(node.value))


def test_each_locked_release_has_hashes() -> None:
    assert locked()
    assert [name for name, (_, rest) in locked().items() if "--hash=sha256:" not in rest] == []


def test_the_lock_has_what_setup_asks_for() -> None:
    """Else run tools/lock.sh."""
    found = locked()
    wanted = list(asked())

    assert len(wanted) > len(PACKAGED)
    for one in wanted:
        assert found[canonicalize_name(one.name)][0] in one.specifier, one


def test_the_package_is_built_from_the_lock_alone() -> None:
    script = (ROOT / "tools/stage.sh").read_text(encoding="utf-8")
    installs = re.findall(r"pip install (.*?)(?: &&|;)", script)

    assert [one for one in installs if "--require-hashes" not in one] == ["--no-build-isolation --no-deps ."]
