"""docs/operations.md, from the tables in the code: ``make sample`` writes it, a unit test holds it current."""

from pathlib import Path

from agent.conflicts import write_documentation
from agent.findings import MEANINGS

HEAD = """\
# Operations and findings

Made by `make sample` from `agent/conflicts.py` and `agent/findings.py`: change those.

## What can be done to a guest's allocations

Each operation is one write, or none.
Project, user and consumer type are kept.
What a guest has of shared storage stays with it, as long as its new set asks for none of the kind.
A write whose answer is lost is looked for, and is never sent again blindly.
The same operations are a Python API: `agent.operations.Operations`.

"""
FINDINGS = """
## What an audit finds

Nothing is a finding that has an innocent explanation: a guest in the middle of a migration, a migration whose guest is
still defined here, a consumer of another service's type, a consumer that changed less than `[agent] audit_grace`
seconds ago.
A repair that is not safe is never carried out by `--heal`: a person must decide.
Nova gives its consumers no type, so one without a type that no audit ever saw run here is healed only where the policy
says `untyped: true`.

| kind | what it means |
| --- | --- |
"""
POLICY = """
## What may be healed

`audit --heal --policy FILE` carries out what FILE lets, and nothing else:

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
