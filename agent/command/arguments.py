"""Parse the command line, run the verb, and turn its failure into a message and an exit code."""

import argparse
import io
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agent import VERSION
from agent.command.exits import Exit
from agent.command.verb_options import COMMON, Option, contradiction
from agent.command.verbs import VERBS
from agent.misspelt import nearest
from agent.records import clean
from reportclient.errors import printable

EPILOG = """\
placement is chosen after the verb:
  --embedded                an embedded placement, kept in a file, to try the agent without a cloud
  --config-file FILE        the host's nova.conf, or a file of this agent's own

exit codes: 0 done, or nothing to do; 1 error; 2 usage; 3 differences or findings; 4 refused:
the plan is unsafe, cannot place all that a guest has, or is not the approved plan; or a second writer was found

examples:
  compute-node-agent discover
  compute-node-agent sync --embedded
  compute-node-agent plan --config-file /etc/nova/nova.conf --format json
  compute-node-agent reshape --to numa; compute-node-agent reshape --to numa --apply --digest D
  compute-node-agent record host-1 && compute-node-agent discover --host host-1
"""


_WITHOUT_VERB = ("-h", "--help", "--version")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - stays open until the process ends
    parser, verbs = parsers()
    given = sys.argv[1:] if arguments is None else [*arguments]
    if given and given[0] not in (*VERBS, *_WITHOUT_VERB):
        if not given[0].startswith("-"):
            parser.error(f"there is no verb {printable(given[0])}{nearest(given[0], VERBS)} (--help lists all)")
        meant = nearest(given[0], _WITHOUT_VERB)
        parser.error(f"put the verb first, and {printable(given[0])} after it{meant} (--help lists all verbs)")
    options, unknown = parser.parse_known_args(given)
    verb = VERBS[options.verb]
    if unknown:
        known = ("--format", "--verbose", *(option.name for option in (*COMMON, *verb.options)))
        verbs[verb.name].error(f"{verb.name} takes no {printable(unknown[0])}{nearest(unknown[0], known)}")
    if refusal := contradiction(options, verb.options):
        verbs[verb.name].error(refusal)
    if not verb.logs:
        _set_up_log(options.verbose)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        from agent.command.carry_out import run_command  # imports all that verbs need, and so --help does without it

        return run_command(verb, options)
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # else the reader of our output went away
            failed = f"reading or printing failed: {error}; writes that were sent to placement are not undone"
            print(printable(failed), file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.ERROR
    except KeyboardInterrupt:
        print("interrupted: what was sent to placement stays, and the next pass goes on from it", file=sys.stderr)
        return Exit.INTERRUPTED


def _set_up_log(verbose: int) -> None:
    """Set log levels: the libraries one level stricter than the agent, because their warnings repeat its errors."""
    libraries, ours = ((logging.ERROR, logging.WARNING), (logging.WARNING, logging.INFO))[verbose > 0]
    if verbose > 1:
        libraries = ours = logging.DEBUG
    logging.basicConfig(level=libraries, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger().handlers[0].addFilter(clean)
    for package in ("agent", "drivers", "reportclient"):
        logging.getLogger(package).setLevel(ours)


class _Once(argparse.Action):
    """Stores the value of an option, and refuses a second one: it would replace the first in silence."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, name: str | None = None
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{name} takes one value: give it once")
        setattr(namespace, self.dest, values)


def parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and that of each verb, by name."""
    parser = argparse.ArgumentParser(
        prog="compute-node-agent",
        description="Reports this host's CPUs, memory, disk, cells and devices to OpenStack placement as one tree.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a new option would change what a script means
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in VERBS.values():
        one = verbs.add_parser(
            verb.name,
            help=verb.help,
            description=verb.help[0].upper() + verb.help[1:] + ".",
            epilog=f"example: compute-node-agent {verb.name} {verb.example}",
            allow_abbrev=False,
        )
        for option in (*COMMON, *verb.options):
            _add(one, option)
        form = "table for people, json or yaml for programs"
        one.add_argument("--format", choices=("table", "json", "yaml"), default="table", help=form)
        one.add_argument("-v", "--verbose", action="count", default=0, help="log what is done; -vv: log every detail")
    return parser, verbs.choices


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    if option.is_switch:
        parser.add_argument(option.name, action="store_true", help=option.help)
        return
    of_kind: dict[str, Any] = {"nargs": None if option.required else "?"}
    if option.name.startswith("-"):
        action = "append" if option.repeated else _Once
        of_kind = {"action": action, "default": option.default, "required": option.required}
    parser.add_argument(
        option.name, type=option.type, metavar=option.metavar, choices=option.choices, help=option.help, **of_kind
    )
