"""Directories which are slow to make and quick to copy, kept from one test session to the next."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


def cached(cache: Path, distribution: str, python: Path, make: Callable[[Path], None], recipe: Path) -> Path:
    """
    The template directory for the ``distribution`` that this Python's environment has, made on first use.

    Its name carries the version and a digest of ``recipe``, the file whose code makes it, so that neither an upgrade
    nor an edit meets an old template. It appears whole or not at all; of two sessions making it at once, one wins.
    """
    ask = f"from importlib.metadata import version; print(version({distribution!r}))"
    version = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    digest = hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]
    template = cache / f"{distribution}-{version}-{digest}"
    if not template.exists():
        _make(template, make)
    return template


def _make(template: Path, make: Callable[[Path], None]) -> None:
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent, prefix="making-") as scratch:
        made = Path(scratch) / "template"
        made.mkdir()
        make(made)
        try:
            made.rename(template)
        except OSError:
            if not template.exists():
                raise


def copy_once(source: Path, target: Path) -> None:
    """Copy a file or a folder unless the target is there, so that a server can be stopped and started on its data."""
    if target.exists():
        return
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)
