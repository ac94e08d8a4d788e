"""
List every sentence that operators can see: errors, notes, log lines; each with its file and line.

``document`` makes docs/messages.md of them (``make sample``); a unit test checks that it is current. Help texts of
options are in the sample configuration and in the manual pages instead.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("agent", "drivers", "reportclient", "inside_nova")
FEWEST_WORDS = 3  # shorter strings are names, keys and options
HELP = ("agent/command/verbs.py", "agent/command/verb_options.py", "agent/settings/options.py")
HEAD = """\
# Messages

`make sample` makes this page from the source: every sentence of an error, a note, a table or the log, with … for what
differs. What is wrong with a command line is not here.
Search it for a part of the sentence that you see.
Its heading says which part of the agent speaks, and what to do beside what the sentence says.
"""
AREAS = (  # title, advice, and beginnings of the paths of its files
    (
        "Configuration",
        "A file of yours is wrong: mend the line that the sentence names, then run `check`.",
        (
            "agent/settings",
            "agent/form_errors.py",
            "agent/misspelt.py",
            "agent/sync/provider_yaml.py",
            "agent/sync/yaml_file.py",
            "agent/connect/made_up.py",
        ),
    ),
    (
        "The host, libvirt and the kernel",
        "The host could not be read, so nothing was changed. `check` tries it alone; `bundle` keeps what was read.",
        ("drivers/libvirt", "drivers/host", "drivers/looks.py", "drivers/pci.py"),
    ),
    (
        "Devices",
        "What a rule or a card means. `explain NAME` shows fact and rule.",
        ("drivers/devices", "drivers/pools.py", "drivers/policy.py", "drivers/cells.py", "drivers/rules.py"),
    ),
    (
        "Ironic",
        "A node cannot be reported, or Ironic does not answer: see [bare metal](bare-metal.md).",
        ("drivers/ironic", "agent/bare_metal"),
    ),
    (
        "Placement and Keystone",
        "Placement did not answer, or refused a request. Each request is carried out or not: after a part of a pass, "
        "providers without stock may stand until the next pass goes on.",
        ("reportclient", "agent/connect"),
    ),
    (
        "Passes and conversions",
        "Why a pass wrote, or refused to. After a refusal nothing was changed but what is named as reserved; the "
        "sentence names the way out.",
        ("agent/sync", "drivers/moves"),
    ),
    (
        "Audits and repairs",
        "Findings and their repairs: see [operations](operations.md#what-an-audit-finds).",
        ("agent/audit", "agent/nova"),
    ),
    (
        "Allocations of guests",
        "Answers of `claim`, `move`, `confirm`, `revert` and `release`: see [operations](operations.md).",
        ("agent/allocations",),
    ),
    (
        "The service",
        "Lines of the journal: `status` and `check` say how it is now.",
        ("agent/service", "agent/state"),
    ),
    ("Commands", "Tables and remarks of the commands.", ("agent/command", "agent/bundle", "agent")),
    (
        "Inside nova-compute",
        "Lines of nova-compute's log by our driver: see [inside nova](inside-nova.md).",
        ("inside_nova",),
    ),
    ("Other parts", "Of the drivers in general.", ("drivers",)),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout to read")
    parser.add_argument("--write", action="store_true", help="write docs/messages.md instead of a list")
    options = parser.parse_args()
    if options.write:
        (options.root / "docs/messages.md").write_text(document(options.root), encoding="utf-8")
        return 0
    found = messages(options.root)
    for path, line, text in found:
        print(f"{path}:{line}: {text}")
    print(f"{len(found)} sentences", file=sys.stderr)
    return 0


def messages(root: Path) -> list[tuple[str, int, str]]:
    """Return (path, line, text) of each sentence below a checkout."""
    return [
        (str(path.relative_to(root)), line, text)
        for room in ROOMS
        for path in sorted((root / room).rglob("*.py"))
        for line, text in sentences(path.read_text(encoding="utf-8"))
    ]


def document(root: Path) -> str:
    """Return the page: the sentences of each area, each once, in the order of the files."""
    by_area: dict[str, dict[str, None]] = {title: {} for title, _, _ in AREAS}
    for path, _, text in messages(root):
        shown = _shown(text)
        if path not in HELP and len(_words(shown)) >= FEWEST_WORDS and not shown.startswith("(?"):  # a pattern
            by_area[_area(path)].setdefault(shown)
    parts = [HEAD]
    for title, advice, _ in AREAS:
        if lines := by_area[title]:
            parts.append("\n".join((f"## {title}\n", f"{advice}\n", "```text", *lines, "```\n")))
    return "\n".join(parts)


def _area(path: str) -> str:
    """Return the area with the longest beginning of a path."""
    fitting = [(len(one), title) for title, _, places in AREAS for one in places if path.startswith(one)]
    return max(fitting)[1]


def _shown(text: str) -> str:
    """Return a sentence with … for each value."""
    shown, depth = "", 0
    for letter in text:
        depth += letter == "{"
        if not depth:
            shown += letter
        elif letter == "}":
            depth -= 1
            shown += "" if depth else "…"
    return shown.replace("```", "'''")


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string of several words that is not a docstring; values appear in braces."""
    tree = ast.parse(source)
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in whole for part in node.values if isinstance(part, ast.Constant)}
    inside |= {id(part.format_spec) for node in whole for part in node.values if isinstance(part, ast.FormattedValue)}
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # also those of constants
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
