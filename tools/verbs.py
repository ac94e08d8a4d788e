"""Write docs/verbs.md from the table of verbs (``make sample``); a unit test checks that it is current."""

from pathlib import Path

from agent.command.verb_options import Option
from agent.command.verbs import VERBS, Verb

HEAD = """\
# The commands

`make sample` makes this page from `agent/command/verbs.py`; `man compute-node-agent-VERB` has the same.

The agent never guesses a placement.
A command that needs one takes it from the configuration, `[placement]` with a login ([Keystone](keystone.md)) or with
`auth_type = none` and `endpoint`, or from one of these options:

- `--embedded` or `--embedded-dir DIR`: placement itself runs in this process, on an SQLite file, to look around.
- `--database URL` of `reshape`: placement's own database, while its API is down.

[Commands in detail](commands.md) has exit codes, output, recorded hosts and cases.

"""


def document() -> str:
    """Return the page: a table of the verbs, then the options of each."""
    rows = [f"| [`{name}`](#{name}) | {verb.help} |" for name, verb in VERBS.items()]
    table = "\n".join(("| command | what it does |", "| --- | --- |", *rows))
    return f"{HEAD}{table}\n\n" + "\n".join(map(_section, VERBS.values()))


def _section(verb: Verb) -> str:
    rows = [f"| `{_spelt(one)}` | {_one_line(one.help)} |" for one in verb.options]
    options = ["| option | meaning |", "| --- | --- |", *rows, ""] if rows else []
    example = f"```\ncompute-node-agent {verb.name} {verb.example}\n```\n"
    return "\n".join((f"## {verb.name}\n", f"{_sentence(verb.help)}\n", example, *options))


def _spelt(option: Option) -> str:
    value = option.metavar or ("|".join(option.choices) if option.choices else "")
    if not option.name.startswith("-"):
        return (value or option.name).replace("|", "\\|")
    return f"{option.name} {value}".strip().replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    Path("docs/verbs.md").write_text(document(), encoding="utf-8")
