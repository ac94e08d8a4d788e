"""
List every sentence that operators can see: errors, notes, log lines, help texts; each with its file and line.

One reader who does not know the code reads the list once, and marks what had to be read twice.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("agent", "drivers", "reportclient")
FEWEST_WORDS = 3  # shorter strings are names, keys and options


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout to read")
    root = parser.parse_args().root
    found = [
        (path.relative_to(root), line, text)
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        for line, text in sentences(path.read_text(encoding="utf-8"))
    ]
    for path, line, text in found:
        print(f"{path}:{line}: {text}")
    print(f"{len(found)} sentences", file=sys.stderr)
    return 0


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string of several words that is not a docstring; values appear in braces."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inside -= {id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)}
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        (node.lineno, _text(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in inside and id(node) not in docstrings
    ]
    yield from sorted((line, text) for line, text in texts if len(_words(text)) >= FEWEST_WORDS)


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return " ".join(node.value.split()) if isinstance(node.value, str) else ""
    parts = [
        str(part.value) if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    ]
    return " ".join("".join(parts).split())


def _words(text: str) -> list[str]:
    return [word for word in text.split() if any(letter.isalpha() for letter in word)]


if __name__ == "__main__":
    sys.exit(main())
