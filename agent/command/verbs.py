"""
The verbs of the command: name and options of each.

A new verb is one row here, and its function in ``carry_out.py``, which ``--help`` does not import.
"""

from pathlib import Path
from typing import NamedTuple

from agent.command.verb_options import (
    ALL,
    CASE,
    CONSUMER,
    DIGEST,
    DRY_RUN,
    HOST,
    MIGRATION,
    NOVA,
    PICTURE,
    PLACEMENT,
    RENAME,
    REQUESTS,
    TAKE_OVER,
    WHAT,
    YES,
    Option,
    parse_consumer_type,
    parse_time,
    parse_uuid,
)

_OF_A_GUEST = ("--replace", "--merge", "--evacuate")  # options of claim for a guest that has allocations
GUEST, MIGRATED = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70", "b7c1d2e3-5f64-4a08-9b1a-6c7d8e9f0a12"


class Verb(NamedTuple):
    """One verb."""

    name: str
    help: str
    example: str = "--embedded"
    placement: bool = True  # has the options that choose a placement
    host: bool = True  # has the option that names a recorded host
    logs: bool = False  # sets up its log as configured; else the command logs to standard error
    own: tuple[Option, ...] = ()
    decides: tuple[str, ...] = ()  # attributes of the options that a saved case keeps

    @property
    def options(self) -> tuple[Option, ...]:
        """All options of the verb, with those that choose placement and host."""
        return (*(PLACEMENT if self.placement else ()), *((HOST,) if self.host else ()), *self.own)

    def defaults(self) -> dict[str, object]:
        """Return the default values of all options, by attribute."""
        return {option.attribute: option.default for option in self.options}


_TABLE = (
    Verb(
        name="discover",
        help="show the tree that this host would report",
        example="--format json",
        placement=False,
        own=(ALL,),
    ),
    Verb(
        name="show",
        help="show the tree that placement holds, with its allocations",
        own=(
            Option("--project", "show instead what this project uses in the whole placement", metavar="ID"),
            Option(
                "--user", "with --project: only what this user of the project uses", metavar="ID", needs=("--project",)
            ),
            Option("--node", "only this node: a host by its name, a bare-metal node by its uuid", metavar="NODE"),
            PICTURE,
            ALL,
        ),
    ),
    Verb(
        name="plan",
        help="show what a pass would change; writes nothing",
        own=(
            RENAME,
            CASE,
            PICTURE,
            ALL,
            Option(
                "--replay",
                "repeat a verb on the data that --save or the service wrote to this file; needs neither libvirt nor "
                "placement",
                metavar="FILE",
                type=Path,
                excludes=(  # those of the case count
                    "--save",
                    "--rename-from",
                    "--host",
                    "--config-file",
                    "--config-dir",
                    "--embedded",
                    "--embedded-dir",
                ),
            ),
        ),
        decides=("rename_from",),
    ),
    Verb(
        name="sync",
        help="run one pass: make placement equal to this host",
        example="--config-file /etc/nova/nova.conf",
        own=(
            RENAME,
            Option("--force", "shrink inventories to what the host has now, even below what guests use"),
            TAKE_OVER,
            ALL,
        ),
    ),
    Verb(
        name="reshape",
        help="convert the tree and the allocations of its guests to another shape; a dry run unless --apply",
        example="--to numa --embedded",
        own=(
            Option("--apply", "carry out the conversion"),
            Option(
                "--approve",
                "with --digest: approve that plan; it is carried out once, before the service starts the next time",
                needs=("--digest",),
                excludes=("--apply",),
            ),
            Option(
                "--withdraw",
                "withdraw the approvals of this host, but not one whose conversion was begun",
                excludes=("--apply", "--approve"),
            ),
            Option(
                "--approved",
                "with --apply: any conversion with [agent] allow_reshape, otherwise only the approved plan; "
                "for systemd units",
                needs=("--apply",),
                excludes=("--digest",),
            ),
            TAKE_OVER,
            DIGEST,
            Option(
                "--patience",
                "with --apply: how long to retry if placement fails or others write; default [agent] reshape_timeout",
                metavar="SECONDS",
                type=int,
            ),
            Option(
                "--confirm-within",
                "with --apply: the service takes the conversion back, exactly, unless --confirm comes by then: a time, "
                "or 90m, 12h, 7d",
                metavar="TIME",
                type=parse_time,
                needs=("--apply",),
                excludes=("--approved", "--database"),
            ),
            Option(
                "--confirm",
                "the last conversion stands, and is not taken back",
                excludes=("--apply", "--approve", "--withdraw"),
            ),
            Option(
                "--to",
                "plan this layout instead of that of [compute] layout",
                choices=("flat", "devices", "cells", "numa"),
            ),
            Option(
                "--database",
                "work directly on placement's database while placement's API is down; URL has the form "
                "postgresql://USER:PASSWORD@HOST/placement",
                metavar="URL",
                excludes=("--embedded", "--embedded-dir"),
            ),
            Option(
                "--api-is-down",
                "with --database: confirm that no placement API runs, if the agent cannot find that out itself",
                needs=("--database",),
            ),
            CASE,
            PICTURE,
            ALL,
        ),
        decides=("to",),
    ),
    Verb(
        name="undo",
        help="take the last conversion back, exactly, or not at all; a dry run unless --apply",
        example="--apply --digest 0123456789ab",
        own=(
            Option(
                "--list", "list the conversions of this host, the latest first, and do nothing", excludes=("--apply",)
            ),
            Option("--apply", "carry it out"),
            DIGEST._replace(needs=("--apply",)),
            PICTURE,
            ALL,
        ),
    ),
    Verb(
        name="record",
        help="record this host in a folder, to read it on another machine",
        example="host-1",
        placement=False,
        host=False,
        own=(Option("directory", "a new folder", metavar="DIR", type=Path, required=True),),
    ),
    Verb(
        name="upgrade",
        help="upgrade check: whether this host is ready for this version, with the codes of nova-status",
        example="check --config-file /etc/nova/nova.conf",
        own=(
            Option("what", "check", choices=("check",), required=True),
            Option(
                "--nova",
                "tell too what would stop nova-compute of this release at its next start here, or change in placement",
                metavar="RELEASE",
                choices=(NOVA,),
            ),
        ),
    ),
    Verb(
        name="adopt",
        help="find the root provider of this host, whose compute_id was lost, and write the file again",
        host=False,
        own=(
            Option(
                "uuid",
                "the root provider; default: the one that this host's name and its guests' allocations show",
                metavar="UUID",
                type=parse_uuid,
            ),
            Option("--yes", "write it without a question; without UUID only if the guests' allocations show which"),
        ),
    ),
    Verb(
        name="bundle",
        help="write what a bug report needs into one file: host, last cases, status, options, versions, journal",
        example="report.tar.gz",
        placement=False,
        host=False,
        own=(
            Option("file", "a new file, .tar.gz", metavar="FILE", type=Path, required=True),
            Option("--yes", "write it without a question"),
        ),
    ),
    Verb(
        name="explain",
        help="explain why a provider has its classes and traits, or why a host is no allocation candidate",
        example="host-1 VCPU",
        own=(
            Option(
                "name",
                "a provider's name, its part after the host's name, or the address of its device",
                metavar="NAME",
            ),
            Option("what", "one class or trait of the provider; default: all of them", metavar="CLASS or TRAIT"),
            Option(
                "--request",
                "a file with the query of a request for allocation candidates: say why this host is or is not among "
                "them, wish by wish",
                metavar="FILE",
                type=Path,
            ),
            Option(
                "--flavor",
                "instead of a file: what nova-scheduler asks for with this flavor, by its name or id; needs [nova]",
                metavar="NAME",
                excludes=("--request",),
            ),
            Option(
                "--image", "with --flavor: and with this image, by its name or id", metavar="NAME", needs=("--flavor",)
            ),
            ALL._replace(
                help="with a request: which of all hosts of this placement are candidates, what the others lack, and "
                "the smallest change of the request that finds a host",
                needs=("--request", "--flavor"),
            ),
            Option("--each", "with --all: a line for each host", needs=("--all",)),
        ),
    ),
    Verb(
        name="claim",
        help="give a guest what an allocation candidate offered",
        example=f"{GUEST} --project P --user U --type INSTANCE --request FILE",
        own=(
            CONSUMER._replace(needs=("--project", *_OF_A_GUEST)),
            *REQUESTS,
            Option(
                "--project",
                "project of a new guest; an existing guest keeps its own",
                metavar="ID",
                needs=("--user", *_OF_A_GUEST),
            ),
            Option(
                "--user", "user of a new guest; an existing guest keeps its own", metavar="ID", needs=("--project",)
            ),
            Option(
                "--type", "consumer type of a new guest, for instance INSTANCE", metavar="T", type=parse_consumer_type
            ),
            Option("--replace", "replace all that the guest has: a resize in place"),
            Option("--merge", "keep what others claimed for the guest", excludes=("--replace",)),
            Option("--evacuate", "keep what the guest has on a host that is down", excludes=("--replace", "--merge")),
            Option(
                "--instead-of",
                "with --merge: the request that the caller claimed before",
                metavar="FILE",
                type=Path,
                needs=("--merge",),
            ),
            Option("--force", "with --replace or --merge: even if the guest runs here and uses what it would lose"),
        ),
    ),
    Verb(
        name="move",
        help="begin a move: a guest gets its new place, a migration keeps the old one",
        example=f"{GUEST} --migration {MIGRATED} --request FILE",
        own=(CONSUMER, MIGRATION, *REQUESTS),
    ),
    Verb(
        name="confirm",
        help="end a move: remove what the migration kept",
        example=MIGRATED,
        own=(Option("consumer", "a migration's uuid", metavar="MIGRATION", type=parse_uuid, required=True),),
    ),
    Verb(
        name="revert",
        help="undo a move: the guest gets back what the migration kept",
        example=f"{GUEST} --migration {MIGRATED}",
        own=(CONSUMER, MIGRATION, Option("--force", "even if the guest runs here and uses what it would lose")),
    ),
    Verb(
        name="release",
        help="remove all that a guest holds",
        example=GUEST,
        own=(
            CONSUMER,
            Option("--force", "even if the guest runs here, or another service changes it at the same time"),
            YES,
        ),
    ),
    Verb(
        name="audit",
        help="compare the allocations in placement with the guests that really run here",
        own=(
            Option("--light", "read only providers whose generation changed since the last audit"),
            Option(
                "--heal",
                "carry out the repairs that --policy allows; without a policy ask, on a terminal, or see --yes",
            ),
            Option(
                "--yes",
                "make the repairs without asking; a consumer without a type is left alone",
                needs=("--heal",),
                excludes=("--policy",),
            ),
            Option(
                "--policy",
                "YAML file of repairs that are allowed; without --heal a dry run of them. Its keys are heal (kinds of "
                "findings), grace_s, again_s, move_s, untyped, at_once and limit: see docs/operations.md",
                metavar="FILE",
                type=Path,
            ),
            CASE,
            PICTURE,
        ),
        decides=("light",),
    ),
    Verb(name="run", help="run the service: a pass at each period and event, audits, metrics and status", logs=True),
    Verb(
        name="status",
        help="show the status that the service wrote last",
        own=(Option("--strict", "end with 3 also where the last audit found something"),),
    ),
    Verb(
        name="retire",
        help="remove this host's tree from placement; refused while anything in it is allocated",
        example="--dry-run --config-file /etc/nova/nova.conf",
        own=(DRY_RUN, YES),
    ),
    Verb(
        name="hand-over",
        help="remove this agent's marks from the tree, so that nova-compute can take it over",
        example="--dry-run --config-file /etc/nova/nova.conf",
        own=(
            DRY_RUN,
            YES,
            Option("--force", "hand over even if nova would not maintain some providers, or its driver there was ours"),
        ),
    ),
    Verb(
        name="hold",
        help="take a device, or this host, off offer with a reason; what guests have stays theirs",
        example='0000:81:00.0 --reason "RMA 4711" --until 7d',
        own=(
            WHAT._replace(needs=("--reason",), excludes=("--list",)),
            Option("--reason", "why, for those who look later", metavar="TEXT", needs=("what",)),
            Option(
                "--until",
                "give it back then: a time as 2026-12-24T18:00, of this host's zone, or after so many minutes, hours "
                "or days, as 90m, 12h or 7d; default: when a person gives it back",
                metavar="TIME",
                type=parse_time,
                needs=("what",),
            ),
            Option("--list", "list what is held (also without any argument)"),
        ),
    ),
    Verb(
        name="release-hold",
        help="end a hold; what operators reserved by hand stays reserved",
        example="0000:81:00.0",
        own=(WHAT._replace(required=True),),
    ),
    Verb(
        name="check",
        help="try everything that a pass needs; writes nothing",
        own=(Option("--strict", "end with 3 also for a doubt: it stops no pass, but was probably not meant"),),
    ),
)
VERBS = {verb.name: verb for verb in _TABLE}
