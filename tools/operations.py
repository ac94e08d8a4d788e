"""Write docs/operations.md from the tables in the code (``make sample``); a unit test checks that it is current."""

from pathlib import Path

from agent.allocations.decide.conflicts import RULES
from agent.audit.decide.findings import MEANINGS, NEVER_REPAIRED

HEAD = """\
# Operations and findings

`make sample` makes this page from `agent/allocations/decide/conflicts.py` and `agent/audit/decide/findings.py`: change
those files, not this page.

## Operations on a guest's allocations

Each operation is one write to placement, or none.
It keeps project, user and consumer type.
A guest keeps its allocations of shared storage if the new set has none of the same resource class.
If the answer to a write is lost, the agent looks up what placement holds; it never repeats the write without that look,
and never with other amounts.
The same operations are a Python API: `agent.allocations.operations.Operations`.

The outcome is `done`, `no-room`, `exists`, `absent` (the consumer has no allocations), `conflict` (the allocations
are not, or no longer, as the operation expects) or `refused`, with a `note` that gives the reason.
The exit code is 0 for `done`, for `release` and `confirm` also for `absent`, 4 for `refused`, and 1 otherwise.
`release` of a guest that runs on this host is `refused` and changes nothing: placement would offer what the guest uses
to another one. The note says what that is. `release --force` does it, and says it too.
`claim --replace`, `claim --merge` and `revert` are `refused` too where a guest that runs on this host would lose what
it uses, as libvirt reports it; what it has beyond that may go. Each has `--force`. The `release` of a guest that is
shut off here is done, and says what that means. The same holds for `confirm` and `release` of a consumer that may be
the migration of a guest that runs here without allocations here. Both read this host where the consumer has something
on it.

A request is one of the `allocation_requests` of `GET /allocation_candidates`, in a file:

```console
$ cat request.json
{"allocations": {"UUID OF A PROVIDER, AS show TELLS": {"resources": {"VCPU": 2, "MEMORY_MB": 2048}}}}
$ compute-node-agent claim $GUEST --project $PROJECT --user $USER --type INSTANCE --request request.json
$ compute-node-agent move $GUEST --migration $(uuidgen) --request elsewhere.json
$ compute-node-agent confirm $MIGRATION    # or: revert $GUEST --migration $MIGRATION
$ compute-node-agent release $GUEST
```

`claim --fit` first checks the request against this host:

- Each class must be on the provider that the request names.
- The amount must be one that this host's inventory allows.
- The amount must be free: neither allocated to other consumers nor in use by other guests. Of each consumer the larger
  of the two counts; what is reserved and in use counts once.

The guest's present allocations do not count as used, because the request replaces them or, with `--merge`, is added to
them.
Only `move` counts them, because the migration keeps them.
Classes from provider.yaml, and providers of other services below this host's root, are checked by placement alone.
`claim --fit` refuses a request that does not fit, and rearranges nothing.

Placement does not say which guest a migration belongs to.
`revert` checks that both consumers have the same project and user, and that neither has a type that excludes it.
`confirm` refuses the uuid of a consumer that has the type of a guest.
Nova gives its consumers no type, so with nova's consumers a wrong uuid is not detected.

"""
FINDINGS = """
## What an audit finds

What has an innocent explanation is not a finding: a guest in the middle of a migration, a migration that nova knows, a
migration that has just what a guest uses that is shut off or moves here, a consumer of another service's type, and a
consumer that changed less than `[agent] audit_grace` seconds ago.
A finding about one guest hides no finding about another one.
Where a flavor overrides amounts (`resources:VCPU=1`), the amounts of the guest's VCPU, PCPU and MEMORY_MB are not
judged, as far as nova's metadata shows the override. nova up to 2025.1 does not write it: a wrong amount of such a
guest is not safe, and its lost allocations are for a person to write.
Their provider is judged where the guest is bound to one with all its CPUs, or all its memory, and where that provider
can give the amount.
The CPUs of a guest that is pinned to a CPU in neither CPU set (`cpu_shared_set`, `cpu_dedicated_set`) are not judged.
Where a flavor names a class of devices (`resources:CUSTOM_X=1`), nova allocates that amount, whether or not the guest
gets a device. An allocation up to that amount is then no finding.
VCPU, PCPU and memory are judged by provider only for what the guest is bound to; the rest may be allocated on any
provider where the guest can run.

If a consumer has no guest here, the audit asks nova about it, where `[nova]` has a login
([allocations.md](allocations.md)).
A server that nova knows is `guest-lost`, or `doubled` if nova has it at rest on another host; it is never `orphaned`.
A consumer that is neither a server nor a migration of nova is certain.
An orphan with a disk on shared storage is not safe without nova's word: its data may still be there, and no audit sees
the disk once it is all that the consumer has.
Where nova manages the host (nova-compute runs here, or the root has the trait `OWNER_NOVA`) and was not asked, or did
not answer, `orphaned`, `leaked-migration` and `doubled` are not safe.

The findings of a consumer show each amount that its repair changes, with what placement has and what it should be.
The repair itself says, as a sentence and in the JSON's `writes`, what each consumer has afterwards, and of which
project, user and type it is.
`--heal` writes nothing else: if a repair changed since an earlier audit showed it, the finding begins anew.

`--heal` never carries out a repair that is not safe: a person must decide.
Nova gives its consumers no type, so a repair that takes allocations from a consumer without a type is carried out only
if the policy says `untyped: true`.

`--light` reads the allocations only of providers whose generation changed since the last audit.
A DELETE of allocations, and a write that moves allocations from one provider to another, do not change the generation
of the provider that loses them: only a full audit finds an error there.

| kind | what it means |
| --- | --- |
"""
POLICY = """
## What may be healed

`audit --heal --policy FILE` carries out only the repairs that FILE allows.
`audit --policy FILE` without `--heal` is a dry run: it shows of each finding what `--heal` would do about it now, and
repairs nothing.
`heal` is required; the other keys have the default values shown here.
Never repaired are NEVER.
`check` finds a policy that names one of them.

```yaml
heal: [orphaned, leaked-migration, doubled]  # kinds
grace_s: 600    # seconds since the finding was first seen, and since the allocations were last written
again_s: 60     # seconds since an earlier audit saw the finding: nothing is repaired at the first look
move_s: 86400   # replaces grace_s where a guest may be on its way, as far as nova does not say otherwise
untyped: false  # true: consumers without a type are nova's, because no other service claims on this host's inventory
at_once: false  # true: no waiting for rows of a guest that are on the wrong provider of this host; see below
limit: 5        # repairs in one audit; those that fail do not count
```

An orphan waits `grace_s` where nova answered that it has neither a server nor a migration of this uuid; else it waits
`move_s`, a day by default, as a guest that is on its way looks the same. `leaked-migration` and `doubled` wait like
that; a server that nova has at rest on another host waits `grace_s`. A guest that is `missing` while a migration keeps
its allocations waits `move_s`.

With `at_once: true` and `wrong-provider` in `heal`, the first audit after a guest's start puts its allocations where
the guest is. It does so only if nothing else differs: the guest runs on this host and does not migrate, its amounts
are right, it has no allocations on another host, and no consumer here can be its migration. Where nova runs, set a
login in `[nova]`: without nova's answer any consumer without a guest can be one, and the move waits.
Use it with the layouts `cells` and `numa` on a host with nova-compute: nova chooses the NUMA cell of a guest itself,
and that cell can differ from the cell of the guest's allocations.
Where the right provider has no room, placement refuses the repair, and the next audit tries it again. Guests that have
each other's last units are put right together, by one write.
"""


def document() -> str:
    """Return the page."""
    findings = "".join(f"| `{kind.value}` | {meaning} |\n" for kind, meaning in MEANINGS.items())
    never = ", ".join(f"`{kind.value}`" for kind in NEVER_REPAIRED)
    return HEAD + _operations() + FINDINGS + findings + POLICY.replace("NEVER", never)


def _operations() -> str:
    """Return the table of the operations."""
    head = "| operation | verb | what is sent | its consumer changed meanwhile | others wrote on a provider | no room |"
    lines = [head, "| --- | --- | --- | --- | --- | --- |"]
    for operation, rule in RULES.items():
        reactions = (rule.consumer_changed, rule.provider_raced, rule.no_room)
        cells = (operation.value, f"`{rule.verb}`", rule.sends, *(reaction.value for reaction in reactions))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(__file__).parents[1].joinpath("docs/operations.md").write_text(document(), encoding="utf-8")
