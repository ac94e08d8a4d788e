"""The command: its verbs with their options, and what a failure looks like."""

import argparse
import io
import logging
import os
import re
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from agent import VERSION
from agent.command.exits import Exit

EPILOG = """\
placement is chosen after the verb:
  --embedded                a placement of your own in a file, to look around
  --config-file FILE        the host's nova.conf, or a file of this agent's own

exit codes: 0 done, or nothing to do; 1 error; 2 usage; 3 differences or findings; 4 refused:
unsafe, no place for what a guest has, or not the plan that was agreed to

examples:
  compute-node-agent discover
  compute-node-agent sync --embedded
  compute-node-agent plan --config-file /etc/nova/nova.conf --format json
  compute-node-agent reshape --to numa; compute-node-agent reshape --to numa --apply --digest D
  compute-node-agent record host-1 && compute-node-agent discover --host host-1
"""

VERBS = {  # verb -> (help, the verb needs a placement)
    "discover": ("the tree that this host would report", False),
    "show": ("the tree that placement holds, and who uses it", True),
    "plan": ("what a pass would change; writes nothing", True),
    "sync": ("one pass: make placement equal to this host", True),
    "reshape": ("convert the tree, with what guests hold, to another shape; a dry run unless --apply", True),
    "record": ("record this host in a folder, to look at elsewhere", False),
    "explain": ("why a provider has what it has: the fact and the rule", True),
    "watch": ("events as they come, with what each changes", True),
    "claim": ("give a guest what an allocation candidate offered", True),
    "move": ("begin a move: a guest gets its new place, a migration keeps the old one", True),
    "confirm": ("end a move: what the migration kept is let go", True),
    "revert": ("undo a move: the guest gets back what the migration kept", True),
    "release": ("let go of all that a guest holds", True),
    "audit": ("what placement says of this host's guests against what really runs", True),
    "run": ("the service: passes at their time and at the host's word, audits, and what is told of them", True),
    "status": ("what the service last said of itself", True),
    "retire": ("take this host's tree out of placement, once nobody holds anything of it", True),
    "hand-over": ("take this agent's marks off the tree, for nova-compute to go on with it", True),
    "check": ("try everything that a pass needs; writes nothing", True),
}


SAVING = ("plan", "reshape", "audit")
ALLOCATIONS = ("claim", "move", "confirm", "revert", "release")
_GUEST, _MIGRATION = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70", "b7c1d2e3-5f64-4a08-9b1a-6c7d8e9f0a12"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; answers the exit code."""
    parser = _parser()
    options = _check(parser, parser.parse_args(arguments))
    if options.verb != "run":  # the service logs as it is configured
        _set_up_log(options.verbose)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives as long as we do
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        return _run(options)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output went away
        return Exit.ERROR
    except OSError as error:
        print(f"reading or printing failed: {error}; what was sent to placement stands", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.ERROR
    except KeyboardInterrupt:
        writes = options.verb in ("sync", "reshape", "audit", "retire", "hand-over", *ALLOCATIONS)
        sent = ": what was sent stands, and the next pass goes on from there" if writes else ""
        print(f"interrupted{sent}", file=sys.stderr)
        return Exit.INTERRUPTED


def _set_up_log(verbose: int) -> None:
    """Our own lines one level lower than those of the libraries, whose warnings repeat what our errors say."""
    libraries, ours = ((logging.ERROR, logging.WARNING), (logging.WARNING, logging.INFO))[verbose > 0]
    if verbose > 1:
        libraries = ours = logging.DEBUG
    logging.basicConfig(level=libraries, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for package in ("agent", "drivers", "reportclient"):
        logging.getLogger(package).setLevel(ours)


def _run(options: argparse.Namespace) -> int:
    """Run the verb; what a user can cause becomes one line and an exit code."""
    from agent.command import host_verbs as verbs
    from agent.errors import USER_ERRORS

    try:
        result = verbs.run(options.verb, options)
        sys.stdout.flush()
        return result
    except USER_ERRORS as error:
        print(error, file=sys.stderr)
        return Exit.ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compute-node-agent",
        description="Reports this host's CPUs, memory, disk, cells and devices to OpenStack placement as one tree.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, (text, reports) in VERBS.items():
        one = verbs.add_parser(
            verb,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"example: compute-node-agent {verb} {_example(verb)}",
        )
        _add_common(one, reports)
        _add_own(one, verb)
    return parser


def _add_common(verb: argparse.ArgumentParser, reports: bool) -> None:
    verb.add_argument(
        "--config-file",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="options, for instance /etc/nova/nova.conf; may be repeated, later files win",
    )
    verb.add_argument(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder of *.conf files; may be repeated",
    )
    verb.add_argument("--format", choices=("table", "json", "yaml"), default="table", help="for people or programs")
    verb.add_argument("-v", "--verbose", action="count", default=0, help="say what is done; twice: in detail")
    if reports:
        verb.add_argument("--embedded", action="store_true", help="report to a placement of your own, kept in a file")
        verb.add_argument(
            "--embedded-dir",
            type=Path,
            metavar="DIR",
            help="where that is kept, with compute_id and state (default ~/.local/share/compute-node-agent)",
        )


def _add_own(verb: argparse.ArgumentParser, name: str) -> None:
    if name == "record":
        verb.add_argument("directory", type=Path, metavar="DIR", help="a new folder")
    elif name not in ("watch", "confirm", "revert", "release"):
        verb.add_argument(
            "--host",
            type=Path,
            metavar="DIR",
            help="look at the host recorded in this folder (or .tar.gz) instead of the live one",
        )
    if name == "show":
        verb.add_argument("--project", metavar="ID", help="show instead what this project uses in the whole placement")
        verb.add_argument("--user", metavar="ID", help="and of it this user")
        verb.add_argument(
            "--node", metavar="NODE", help="only this one of several: a host by its name, a bare-metal node by its uuid"
        )
    if name == "audit":
        depth = verb.add_mutually_exclusive_group()
        depth.add_argument(
            "--light", action="store_true", help="read only what moved a generation since the last audit"
        )
        depth.add_argument(
            "--consumers", action="store_true", help="read each guest's consumer too: whose it is, and of what type"
        )
        verb.add_argument("--heal", action="store_true", help="carry out the repairs that the policy lets")
        verb.add_argument(
            "--policy",
            type=Path,
            metavar="FILE",
            help="what may be healed: heal (kinds), grace_s, again_s, move_s, untyped, limit, as docs/operations.md "
            "explains them",
        )
    if name in ALLOCATIONS:
        _add_allocations(verb, name)
    if name in ("retire", "hand-over"):
        verb.add_argument("--dry-run", action="store_true", help="only show what would be done")
    if name == "hand-over":
        verb.add_argument("--force", action="store_true", help="also with providers that nova would not keep")
    if name in ("plan", "sync"):
        verb.add_argument("--rename-from", metavar="OLD", help="this host was called OLD: rename its providers")
    if name == "reshape":
        how = verb.add_mutually_exclusive_group()
        how.add_argument("--apply", action="store_true", help="carry it out")
        how.add_argument(
            "--approve",
            action="store_true",
            help="with --digest: let the service carry out that plan before it starts the next time, once",
        )
        verb.add_argument(
            "--approved",
            action="store_true",
            help="with --apply: only what [agent] allow_reshape allows, or the plan that was approved; for units",
        )
        verb.add_argument(
            "--digest", metavar="D", type=_digest, help="only the plan of this digest, as a dry run showed it"
        )
        verb.add_argument(
            "--patience",
            type=int,
            metavar="SECONDS",
            help="with --apply: how long to go on where others disturb it, instead of [agent] reshape_timeout",
        )
        verb.add_argument(
            "--to",
            choices=("flat", "devices", "numa"),
            help="another layout than [compute] layout says: there, and back again",
        )
        verb.add_argument(
            "--database",
            metavar="URL",
            help="with placement's API down: its database, as postgresql://USER:PASSWORD@HOST/placement",
        )
        verb.add_argument(
            "--api-is-down",
            action="store_true",
            help="with --database: a person made sure that no placement API runs, where this host cannot tell",
        )
    if name in SAVING:
        _add_case(verb, name)
    if name == "explain":
        verb.add_argument("name", metavar="NAME", help="a provider's name, or what follows the host's in it")
        verb.add_argument("what", metavar="CLASS or TRAIT", nargs="?", help="one of what it has; else all")
    if name == "watch":
        verb.add_argument("--sync", action="store_true", help="bring placement up to date after each change")
    if name == "sync":
        verb.add_argument(
            "--force", action="store_true", help="shrink as far as the host did, even below what guests use"
        )
        verb.add_argument("--take-over", action="store_true", help="write again after a second writer was stopped")


def _add_case(verb: argparse.ArgumentParser, name: str) -> None:
    verb.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="keep all that is read in this .tar.gz, without secrets, for a bug report or another look",
    )
    if name == "plan":
        verb.add_argument(
            "--replay",
            type=Path,
            metavar="FILE",
            help="do again what was done with --save, on what was read then; needs no libvirt and no placement",
        )


def _add_allocations(verb: argparse.ArgumentParser, name: str) -> None:
    meaning = "a migration's uuid" if name == "confirm" else "a guest's uuid"
    verb.add_argument("consumer", type=_uuid, metavar="MIGRATION" if name == "confirm" else "CONSUMER", help=meaning)
    if name in ("move", "revert"):
        verb.add_argument(
            "--migration", type=_uuid, required=True, metavar="UUID", help="who keeps what the guest had, of the move"
        )
    if name in ("claim", "move"):
        verb.add_argument(
            "--request",
            type=Path,
            required=True,
            metavar="FILE",
            help='one allocation request as allocation candidates give it: {"allocations": {...}}, passed on as it is',
        )
        verb.add_argument(
            "--alternate",
            type=Path,
            action="append",
            default=[],
            metavar="FILE",
            help="another one, for when that has no room; may be repeated",
        )
        verb.add_argument(
            "--fit", action="store_true", help="ask only for what fits the cells and devices that this host really has"
        )
    if name == "claim":
        verb.add_argument("--project", metavar="ID", help="of a new guest; one that exists keeps its own")
        verb.add_argument("--user", metavar="ID", help="as --project")
        verb.add_argument("--type", metavar="T", type=_consumer_type, help="of a new guest, for instance INSTANCE")
        how = verb.add_mutually_exclusive_group()
        how.add_argument("--replace", action="store_true", help="instead of all that it has: a resize in place")
        how.add_argument("--merge", action="store_true", help="beside what others claimed for it")
        how.add_argument("--evacuate", action="store_true", help="beside what it has on a host that is down")
        verb.add_argument(
            "--instead-of", type=Path, metavar="FILE", help="with --merge: the request that the caller claimed before"
        )
    if name == "release":
        verb.add_argument("--force", action="store_true", help="whoever changed it last")


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} is no uuid") from None


def _consumer_type(text: str) -> str:
    if not re.fullmatch("[A-Z0-9_]{1,255}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no consumer type: those are of A-Z, 0-9 and _")
    return text


def _digest(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{12}", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no digest: a dry run shows it, 12 hex digits")
    return text


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> argparse.Namespace:
    """Options that contradict each other are a usage error."""
    if options.verb == "reshape":
        _check_reshape(parser, options)
    if getattr(options, "database", None) is not None and (options.embedded or options.embedded_dir):
        parser.error("--database and --embedded are two placements: name one")
    if options.verb == "claim":
        new = not (options.replace or options.merge or options.evacuate)
        if new and not (options.project and options.user):
            parser.error("a new guest needs --project and --user")
        if options.instead_of and not options.merge:
            parser.error("--instead-of goes with --merge: it says which part of the guest's set is the caller's")
    if getattr(options, "save", None):
        writing = [name for name in ("apply", "approve", "heal", "policy", "database") if getattr(options, name, None)]
        if writing:
            parser.error(f"--save goes with a look alone, not with --{writing[0]}")
    if getattr(options, "heal", False) and not options.policy:
        parser.error("--heal needs --policy: it says which kinds of findings may be healed")
    if getattr(options, "user", None) and not options.project:
        parser.error("--user goes with --project")
    return options


def _check_reshape(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.digest is not None and not (options.apply or options.approve):
        parser.error("--digest goes with --apply or --approve: it says which plan to carry out")
    if options.approve and options.digest is None:
        parser.error("--approve needs --digest: a dry run shows it")
    if options.api_is_down and options.database is None:
        parser.error("--api-is-down goes with --database: without it the API itself is asked")
    if options.approved and (not options.apply or options.digest is not None):
        parser.error("--approved goes with --apply, and without --digest: the approval has it")


def _example(verb: str) -> str:
    own = {
        "discover": "--format json",
        "record": "host-1",
        "explain": "host-1 VCPU",
        "watch": "--sync --embedded",
        "sync": "--config-file /etc/nova/nova.conf",
        "reshape": "--to numa --embedded",
        "claim": f"{_GUEST} --project P --user U --type INSTANCE --request FILE",
        "move": f"{_GUEST} --migration {_MIGRATION} --request FILE",
        "confirm": _MIGRATION,
        "revert": f"{_GUEST} --migration {_MIGRATION}",
        "release": _GUEST,
        "retire": "--dry-run --config-file /etc/nova/nova.conf",
        "hand-over": "--dry-run --config-file /etc/nova/nova.conf",
    }
    return own.get(verb, "--embedded")


if __name__ == "__main__":
    raise SystemExit(main())
