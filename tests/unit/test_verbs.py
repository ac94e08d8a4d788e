"""The table of verbs: what it names is there, and what contradicts itself is a usage error."""

import subprocess
import sys
from pathlib import Path

import pytest

import agent.command
from agent.command.arguments import main
from agent.command.carry_out import ACTS, OF_NODES
from agent.command.exits import Exit
from agent.command.verbs import VERBS

CONSUMER = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70"
CLAIM = ("claim", CONSUMER, "--request", "FILE")
HEAVY = {"libvirt", "keystoneauth1", "placement", "oslo_config", "yaml", "dataclasses", "agent.connect"}


def test_each_verb_has_its_function() -> None:
    assert ACTS.keys() == VERBS.keys() > OF_NODES.keys()


def test_help_loads_no_library() -> None:
    code = (
        "import sys; from argparse import ArgumentParser\n"
        "try: ArgumentParser().parse_args(['--help'])\n"  # from Python 3.14 on it needs dataclasses itself
        "except SystemExit: before = set(sys.modules)\n"
        "from agent.command.arguments import main\n"
        "try: main(['--help'])\n"
        f"except SystemExit: print({HEAVY!r} & (set(sys.modules) - before), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=_paths())

    assert done.stderr.strip() == "set()"


@pytest.mark.parametrize("verb", VERBS)
def test_the_example_of_a_verb_names_options_that_it_has(verb: str) -> None:
    options = {option.name for option in VERBS[verb].options}

    named = {word for word in VERBS[verb].example.split() if word.startswith("--")}

    assert named <= options | {"--config-file", "--format"}


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS.values() if verb.decides])
def test_what_decides_a_case_is_an_option_of_its_verb(verb: str) -> None:
    assert set(VERBS[verb].decides) <= VERBS[verb].defaults().keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(("reshape", "--digest", "0123456789ab"), "--digest needs --apply or --approve", id="digest alone"),
        pytest.param(("reshape", "--approve"), "--approve needs --digest", id="approve anything"),
        pytest.param(("reshape", "--api-is-down"), "--api-is-down needs --database", id="API is down"),
        pytest.param(("reshape", "--approved"), "--approved needs --apply", id="approved alone"),
        pytest.param(("reshape", "--database", "D", "--embedded"), "leave --embedded out", id="two placements"),
        pytest.param(
            ("reshape", "--database", "", "--embedded"), "leave --embedded out", id="an empty name is one too"
        ),
        pytest.param(("reshape", "--apply", "--save", "F"), "leave --apply out", id="save what is applied"),
        pytest.param(("plan", "--host", "a", "--host", "b"), "--host takes one value: give it once", id="two hosts"),
        pytest.param(("reshape", "--apply", "--approve"), "leave --apply out", id="apply and approve"),
        pytest.param(("reshape", "--apply", "--digest", ""), "is not a digest", id="an empty digest"),
        pytest.param(("reshape", "--apply", "--digest", "../../x"), "is not a digest", id="a path for a digest"),
        pytest.param(("audit", "--heal", "--save", "F"), "leave --heal out", id="save what is healed"),
        pytest.param(("show", "--user", "U"), "--user needs --project", id="user alone"),
        pytest.param(CLAIM, "CONSUMER needs --project or --replace", id="a guest of nobody"),
        pytest.param((*CLAIM, "--replace", "--instead-of", "F"), "--instead-of needs --merge", id="instead of nothing"),
        pytest.param(
            (*CLAIM, "--replace", "--user", "U"),
            "--user needs --project",
            id="claim for a user alone",
        ),
        pytest.param(("release", "guest"), "is not a uuid", id="no uuid"),
        *(
            pytest.param(("plan", "--replay", "F", *more), f"leave {more[0]} out", id=f"replay with {more[0]}")
            for more in (
                ("--save", "G"),
                ("--rename-from", "old"),
                ("--host", "DIR"),
                ("--config-file", "F"),
                ("--config-dir", "D"),
                ("--embedded",),
                ("--embedded-dir", "D"),
            )
        ),
        *(
            pytest.param(("plan", "--save", name), "is not the name of a regular file", id=f"save as {name!r}")
            for name in ("", ".", "..", "/", "/tmp", "new/", "/dev/null", "/dev/stdout")
        ),
    ],
)
def test_options_that_contradict_each_other_are_a_usage_error(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == Exit.USAGE
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.startswith(f"usage: compute-node-agent {arguments[0]} ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("synk",), "there is no verb synk: is sync meant? (--help lists all)", id="a verb"),
        pytest.param(("what",), "there is no verb what (--help lists all)", id="nothing like a verb"),
        pytest.param(("--verbose", "sync"), "put the verb first, and --verbose after it (--help", id="an option first"),
        pytest.param(("--verison",), "and --verison after it: is --version meant?", id="an option of none"),
        pytest.param(("st\x1b[31matus",), "there is no verb st\\x1b[31matus", id="an escape sequence"),
        pytest.param(("sync", "--forse"), "sync takes no --forse: is --force meant?", id="an option"),
        pytest.param(("sync", "--dry-run", "5"), "sync takes no --dry-run", id="another verb's option"),
    ],
)
def test_what_does_not_exist_is_named_with_what_may_be_meant(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == Exit.USAGE
    assert told in capsys.readouterr().err


def _paths() -> dict[str, str]:
    """No site packages: what they load at the start of Python is not the command's."""
    return {"PYTHONPATH": str(Path(agent.command.__file__).parents[2])}
