"""
The verbs of the command: what each is called, its options, and where its function is.

A new verb is one row here and its function, which is imported when the verb is run: ``--help`` loads nothing else.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agent.command.options import (
    CASE,
    CONSUMER,
    DRY_RUN,
    HOST,
    MIGRATION_OPTION,
    PLACEMENT,
    RENAME,
    REQUESTS,
    USER_ALONE,
    Contradiction,
    Option,
    Row,
    only_looking,
    parse_consumer_type,
    parse_digest,
    parse_uuid,
)

GUEST, MIGRATED = "4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70", "b7c1d2e3-5f64-4a08-9b1a-6c7d8e9f0a12"


class Verb(NamedTuple):
    """One verb; functions are named as "module:function", and take the parsed options."""

    name: str
    help: str
    function: str  # answers a Report, or None if it printed what it found itself
    nodes: str = ""  # the function for bare-metal nodes; empty: the verb is only for a hypervisor
    doing: str = ""  # shown on a terminal until the function ends; empty: nothing is shown
    example: str = "--embedded"
    placement: bool = True  # needs one
    logs: bool = False  # as it is configured, and not to standard error
    writes: bool = False  # to placement, so that an interrupt leaves something behind
    options: tuple[Row, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()  # the first that holds is told
    decides: tuple[str, ...] = ()  # the options that a saved case keeps, by their attributes

    @property
    def rows(self) -> tuple[Row, ...]:
        return (*PLACEMENT, *self.options) if self.placement else self.options

    def flat(self) -> Iterator[Option]:
        """Its options, also those of which at most one may be given."""
        for row in self.rows:
            yield from (row,) if isinstance(row, Option) else row

    def defaults(self) -> dict[str, object]:
        """What the options are if none is given, by their attributes."""
        return {option.attribute: option.default for option in self.flat()}

    def refusal(self, options: argparse.Namespace) -> str:
        """The usage error of options that contradict each other; empty: they do not."""
        return next((text for wrong, text in self.contradictions if wrong(options)), "")


_TABLE = (
    Verb(
        name="discover",
        help="the tree that this host would report",
        function="agent.command.host_verbs:discover",
        nodes="agent.command.node_verbs:discover",
        doing="reading this host",
        example="--format json",
        placement=False,
        options=HOST,
    ),
    Verb(
        name="show",
        help="the tree that placement holds, and who uses it",
        function="agent.command.host_verbs:show",
        nodes="agent.command.node_verbs:show",
        doing="reading placement",
        options=(
            *HOST,
            Option("--project", "show instead what this project uses in the whole placement", metavar="ID"),
            Option("--user", "and of it this user", metavar="ID"),
            Option(
                "--node",
                "only this one of several: a host by its name, a bare-metal node by its uuid",
                metavar="NODE",
            ),
        ),
        contradictions=(USER_ALONE,),
    ),
    Verb(
        name="plan",
        help="what a pass would change; writes nothing",
        function="agent.command.host_verbs:plan",
        nodes="agent.command.node_verbs:plan",
        doing="reading this host and placement",
        options=(
            *HOST,
            *RENAME,
            *CASE,
            Option(
                "--replay",
                "do again what was done with --save, on what was read then; needs no libvirt and no placement",
                metavar="FILE",
                type=Path,
            ),
        ),
        decides=("rename_from",),
    ),
    Verb(
        name="sync",
        help="one pass: make placement equal to this host",
        function="agent.command.host_verbs:sync",
        nodes="agent.command.node_verbs:sync",
        doing="reading this host, bringing placement up to date",
        example="--config-file /etc/nova/nova.conf",
        writes=True,
        options=(
            *HOST,
            *RENAME,
            Option("--force", "shrink as far as the host did, even below what guests use"),
            Option("--take-over", "write again after a second writer was stopped"),
        ),
    ),
    Verb(
        name="reshape",
        help="convert the tree, with what guests hold, to another shape; a dry run unless --apply",
        function="agent.command.host_verbs:reshape",
        doing="reading this host and placement, converting the tree",
        example="--to numa --embedded",
        writes=True,
        options=(
            *HOST,
            (
                Option("--apply", "carry it out"),
                Option(
                    "--approve",
                    "with --digest: let the service carry out that plan before it starts the next time, once",
                ),
            ),
            Option(
                "--approved",
                "with --apply: only what [agent] allow_reshape allows, or the plan that was approved; for units",
            ),
            Option("--digest", "only the plan of this digest, as a dry run showed it", metavar="D", type=parse_digest),
            Option(
                "--patience",
                "with --apply: how long to go on where others disturb it, instead of [agent] reshape_timeout",
                metavar="SECONDS",
                type=int,
            ),
            Option(
                "--to",
                "another layout than [compute] layout says: there, and back again",
                choices=("flat", "devices", "numa"),
            ),
            Option(
                "--database",
                "with placement's API down: its database, as postgresql://USER:PASSWORD@HOST/placement",
                metavar="URL",
            ),
            Option(
                "--api-is-down",
                "with --database: a person made sure that no placement API runs, where this host cannot tell",
            ),
            *CASE,
        ),
        contradictions=(
            (
                lambda options: options.digest is not None and not (options.apply or options.approve),
                "--digest goes with --apply or --approve: it says which plan to carry out",
            ),
            (
                lambda options: options.approve and options.digest is None,
                "--approve needs --digest: a dry run shows it",
            ),
            (
                lambda options: options.api_is_down and options.database is None,
                "--api-is-down goes with --database: without it the API itself is asked",
            ),
            (
                lambda options: options.approved and (not options.apply or options.digest is not None),
                "--approved goes with --apply, and without --digest: the approval has it",
            ),
            (
                lambda options: options.database is not None and (options.embedded or options.embedded_dir),
                "--database and --embedded are two placements: name one",
            ),
            *only_looking("apply", "approve", "database"),
        ),
        decides=("to",),
    ),
    Verb(
        name="record",
        help="record this host in a folder, to look at elsewhere",
        function="agent.command.host_verbs:record",
        doing="reading this host",
        example="host-1",
        placement=False,
        options=(Option("directory", "a new folder", metavar="DIR", type=Path, required=True),),
    ),
    Verb(
        name="explain",
        help="why a provider has what it has: the fact and the rule",
        function="agent.command.host_verbs:explain",
        doing="reading this host",
        example="host-1 VCPU",
        options=(
            *HOST,
            Option("name", "a provider's name, or what follows the host's in it", metavar="NAME", required=True),
            Option("what", "one of what it has; else all", metavar="CLASS or TRAIT"),
        ),
    ),
    Verb(
        name="watch",
        help="events as they come, with what each changes",
        function="agent.command.watch_verb:watch",
        example="--sync --embedded",
        options=(Option("--sync", "bring placement up to date after each change"),),
    ),
    Verb(
        name="claim",
        help="give a guest what an allocation candidate offered",
        function="agent.command.allocation_verbs:claim",
        doing="asking placement",
        example=f"{GUEST} --project P --user U --type INSTANCE --request FILE",
        writes=True,
        options=(
            *HOST,
            *CONSUMER,
            *REQUESTS,
            Option("--project", "of a new guest; one that exists keeps its own", metavar="ID"),
            Option("--user", "as --project", metavar="ID"),
            Option("--type", "of a new guest, for instance INSTANCE", metavar="T", type=parse_consumer_type),
            (
                Option("--replace", "instead of all that it has: a resize in place"),
                Option("--merge", "beside what others claimed for it"),
                Option("--evacuate", "beside what it has on a host that is down"),
            ),
            Option(
                "--instead-of",
                "with --merge: the request that the caller claimed before",
                metavar="FILE",
                type=Path,
            ),
        ),
        contradictions=(
            (
                lambda options: (
                    not (options.replace or options.merge or options.evacuate)
                    and not (options.project and options.user)
                ),
                "a new guest needs --project and --user",
            ),
            (
                lambda options: options.instead_of and not options.merge,
                "--instead-of goes with --merge: it says which part of the guest's set is the caller's",
            ),
            USER_ALONE,
        ),
    ),
    Verb(
        name="move",
        help="begin a move: a guest gets its new place, a migration keeps the old one",
        function="agent.command.allocation_verbs:move",
        doing="asking placement",
        example=f"{GUEST} --migration {MIGRATED} --request FILE",
        writes=True,
        options=(*HOST, *CONSUMER, *MIGRATION_OPTION, *REQUESTS),
    ),
    Verb(
        name="confirm",
        help="end a move: what the migration kept is let go",
        function="agent.command.allocation_verbs:confirm",
        doing="asking placement",
        example=MIGRATED,
        writes=True,
        options=(Option("consumer", "a migration's uuid", metavar="MIGRATION", type=parse_uuid, required=True),),
    ),
    Verb(
        name="revert",
        help="undo a move: the guest gets back what the migration kept",
        function="agent.command.allocation_verbs:revert",
        doing="asking placement",
        example=f"{GUEST} --migration {MIGRATED}",
        writes=True,
        options=(*CONSUMER, *MIGRATION_OPTION),
    ),
    Verb(
        name="release",
        help="let go of all that a guest holds",
        function="agent.command.allocation_verbs:release",
        doing="asking placement",
        example=GUEST,
        writes=True,
        options=(*CONSUMER, Option("--force", "whoever changed it last")),
    ),
    Verb(
        name="audit",
        help="what placement says of this host's guests against what really runs",
        function="agent.command.audit_verb:audit",
        doing="looking at this host and at placement",
        writes=True,
        options=(
            *HOST,
            (
                Option("--light", "read only what moved a generation since the last audit"),
                Option("--consumers", "read each guest's consumer too: whose it is, and of what type"),
            ),
            Option("--heal", "carry out the repairs that the policy lets"),
            Option(
                "--policy",
                "what may be healed: heal (kinds), grace_s, again_s, move_s, untyped, limit, as docs/operations.md "
                "explains them",
                metavar="FILE",
                type=Path,
            ),
            *CASE,
        ),
        contradictions=(
            *only_looking("heal", "policy"),
            (
                lambda options: options.heal and not options.policy,
                "--heal needs --policy: it says which kinds of findings may be healed",
            ),
        ),
        decides=("light", "consumers"),
    ),
    Verb(
        name="run",
        help="the service: passes at their time and at the host's word, audits, and what is told of them",
        function="agent.command.run_verb:run",
        logs=True,
        options=HOST,
    ),
    Verb(
        name="status",
        help="what the service last said of itself",
        function="agent.command.host_verbs:status",
        doing="reading the service's status",
        options=HOST,
    ),
    Verb(
        name="retire",
        help="take this host's tree out of placement, once nobody holds anything of it",
        function="agent.command.host_verbs:retire",
        doing="taking this host's tree away",
        example="--dry-run --config-file /etc/nova/nova.conf",
        writes=True,
        options=(*HOST, *DRY_RUN),
    ),
    Verb(
        name="hand-over",
        help="take this agent's marks off the tree, for nova-compute to go on with it",
        function="agent.command.host_verbs:hand_over",
        doing="taking this agent's marks away",
        example="--dry-run --config-file /etc/nova/nova.conf",
        writes=True,
        options=(*HOST, *DRY_RUN, Option("--force", "also with providers that nova would not keep")),
    ),
    Verb(
        name="check",
        help="try everything that a pass needs; writes nothing",
        function="agent.command.host_verbs:check",
        nodes="agent.command.node_verbs:check",
        doing="trying what a pass needs",
        options=HOST,
    ),
)
VERBS = {verb.name: verb for verb in _TABLE}
