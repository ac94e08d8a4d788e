"""docs/operations.md, from the tables in the code: ``make sample`` writes it, a unit test holds it current."""

from pathlib import Path

from agent.allocations.decide.rules import write_documentation
from agent.audit.decide.findings import MEANINGS

HEAD = """\
# Operations and findings

Made by `make sample` from `agent/allocations/decide/rules.py` and `agent/audit/decide/findings.py`: change those.

## What can be done to a guest's allocations

Each operation is one write, or none.
Project, user and consumer type are kept.
What a guest has of shared storage stays with it, as long as its new set asks for none of the kind.
A write whose answer is lost is looked for, and is never sent again blindly.
The same operations are a Python API: `agent.allocations.operations.Operations`.

The outcome is `done`, `no-room`, `exists`, `absent` (who is named holds nothing) or `conflict` (what is known of it is
not true any more), with a `note` that says why; the exit code is 0 for `done`, for `release` and `confirm` also for
`absent`, and 1 else.

A request is one of the `allocation_requests` of `GET /allocation_candidates`, in a file:

```console
$ cat request.json
{"allocations": {"UUID OF A PROVIDER, AS show TELLS": {"resources": {"VCPU": 2, "MEMORY_MB": 2048}}}}
$ compute-node-agent claim $GUEST --project $PROJECT --user $USER --type INSTANCE --request request.json
$ compute-node-agent move $GUEST --migration $(uuidgen) --request elsewhere.json
$ compute-node-agent confirm $MIGRATION    # or: revert $GUEST --migration $MIGRATION
$ compute-node-agent release $GUEST
```

`claim --fit` asks this host first: each class of the request must be on the provider that it names, in amounts that
this host's inventory allows, and as much must be free as others neither have allocated nor really hold.
What the guest itself has does not stand against its request, which replaces it or, with `--merge`, is added to it; only
`move` counts it too, as the migration keeps it.
Classes of provider.yaml and what others put below this host's root are judged by placement alone.
It refuses, and rearranges nothing.

Placement does not tell which guest a migration is of.
`revert` checks that both are of one project and user, and that neither is typed as something else; `confirm` refuses
the uuid of a guest that is typed as one.
Nova gives its consumers no type, so there a wrong uuid is not found out.

"""
FINDINGS = """
## What an audit finds

Nothing is a finding that has an innocent explanation: a guest in the middle of a migration, a migration whose guest is
still defined here, a consumer of another service's type, a consumer that changed less than `[agent] audit_grace`
seconds ago.
What a guest has of VCPU, PCPU and MEMORY_MB is not judged where its flavor overrides it (`resources:VCPU=1`), as far
as nova's metadata tells.
Of `VCPU`, `PCPU` and memory it is judged by provider only what the guest is bound to; the rest may be on any provider
where it can run.

A repair that is not safe is never carried out by `--heal`: a person must decide.
Nova gives its consumers no type, so what would take from one without a type is done only where the policy says
`untyped: true`.

`--light` reads the allocations only of providers whose generation moved since the last audit.
A DELETE, and a write that leaves a provider for another, move none: what they left wrong is found by a full audit.

| kind | what it means |
| --- | --- |
"""
POLICY = """
## What may be healed

`audit --heal --policy FILE` carries out what FILE lets, and nothing else; only `heal` must be there, and the others
have these values by default.
`ownerless`, `duplicate-provider`, `over-capacity` and `other-layout` are never healed.

```yaml
heal: [orphaned, leaked-migration, doubled]  # kinds
grace_s: 600    # how long something must have been wrong, and nobody have written the allocations
again_s: 60     # and at least so long ago an earlier audit saw it: nothing is ever healed at the first look
move_s: 86400   # as grace_s, for what looks the same while a guest is on its way: a move may wait and copy for hours
untyped: false  # true: consumers without a type are nova's, as no other service claims on this host's own stock
limit: 5        # repairs in one audit
```
"""


def document() -> str:
    """The whole page."""
    findings = "".join(f"| `{kind.value}` | {meaning} |\n" for kind, meaning in MEANINGS.items())
    return HEAD + write_documentation() + FINDINGS + findings + POLICY


if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("docs/operations.md").write_text(document(), encoding="utf-8")
