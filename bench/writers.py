"""Two writers on one root: whether the agent notices, says who, keeps its hands off, and placement stays whole."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.counts import add_guest, nova_report
from bench.goals import Goal, print_table
from bench.lab import Host, Run, only_provider, reporting

OWNER_NOVA = "OWNER_NOVA"
PASSES = 2  # of ours after the second writer began, within which it must be noticed
CONTESTED, FINDINGS = 4, 3  # exit codes of sync and of check


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of second writer; ``named`` is what messages must call it."""

    title: str
    marks: bool  # whether it puts OWNER_NOVA on the root
    named: str
    seed: int


CASES = (
    Case("nova-compute of today, which marks its root", True, "nova-compute", 4),
    Case("a writer without a mark, as nova-compute before OWNER_NOVA", False, "another service", 5),
)


def contest_root(scratch: Path, template: Path) -> tuple[Goal, ...]:
    """Each kind of second writer in turn."""
    return tuple(goal for case in CASES for goal in _contest(case, scratch, template))


def _contest(case: Case, scratch: Path, template: Path) -> tuple[Goal, ...]:
    print(f"{case.title}:")
    with reporting(scratch / f"writers-{case.seed}", template, seed=case.seed) as host:
        return _Alternation(host, case).goals()


class _Alternation:
    """Ours, theirs, ours, theirs, ours; every step a row."""

    def __init__(self, host: Host, case: Case) -> None:
        self._host = host
        self._case = case
        self._rows: list[tuple[object, ...]] = []
        self._report = nova_report(host)
        if not case.marks:
            self._report["traits"].remove(OWNER_NOVA)

    def goals(self) -> tuple[Goal, ...]:
        self._sync()
        _, first = self._shown()
        self._report["uuid"] = first["uuid"]
        guest = add_guest(self._host, first["uuid"])
        held = self._held(guest)
        passes = []
        for turn in (1, 2):
            self._write(turn)
            passes.append(self._sync())
        check, _ = self._host.requests_of("check", codes=(0, FINDINGS))
        detail = next((one["detail"] for one in check.json["checks"] if not one["ok"]), "no finding")
        self._rows.append(("agent", "check", f"exit {check.code}", "-", *self._stock()))
        print_table(("who", "does", "ends", "writes", "VCPU ratio", "MEMORY_MB reserved"), self._rows)
        print(f"sync says:  {' / '.join(passes[-1][0].json['notes'])}\ncheck says: {detail}\n")
        return (
            self._noticed(passes),
            self._goal("check's exit code, and whom it names", f"{check.code}, {self._name_in(detail)}", FINDINGS),
            self._whole(first["traits"]),
            self._untouched(guest, held),
        )

    def _sync(self) -> tuple[Run, int]:
        """One pass of ours, and how many writes it sent."""
        done, sent = self._host.requests_of("sync", codes=(0, CONTESTED))
        writes = sum(not request.startswith("GET ") for request in sent)
        outcome = f"{done.json['outcome']}, exit {done.code}"
        self._rows.append(("agent", "sync", outcome, writes, *self._stock()))
        return done, writes

    def _write(self, turn: int) -> None:
        """The other one's report, with values that are neither ours nor those of its turn before."""
        self._report["inventories"]["VCPU"]["allocation_ratio"] = 8.0 + turn
        self._report["inventories"]["MEMORY_MB"]["reserved"] = 1024 * turn
        (sent,) = self._host.nova(self._report)
        writes = sum(not request.startswith("GET ") for request in sent)
        self._rows.append(("nova", "report", "done", writes, *self._stock()))

    def _noticed(self, passes: list[tuple[Run, int]]) -> Goal:
        """The pass that first says contested; none after it may write, and all name the other writer."""
        stopped = [done.json["outcome"] == "contested" for done, _ in passes]
        first = stopped.index(True) + 1 if any(stopped) else None
        quiet = all(writes == 0 for (_, writes), stop in zip(passes, stopped, strict=True) if stop)
        named = self._name_in(" ".join(passes[-1][0].json["notes"]))
        held = stopped[-1] and passes[-1][0].code == CONTESTED and quiet and named == self._case.named
        value = f"pass {first}, {named}" if first else "never"
        wanted = f"within {PASSES} passes, {self._case.named}, exit {CONTESTED}"
        return Goal(f"{self._case.title}: noticed", value + ("" if quiet else ", and written"), wanted, held)

    def _goal(self, what: str, value: str, code: int) -> Goal:
        wanted = f"{code}, {self._case.named}"
        return Goal(f"  {what}", value, wanted, value == wanted)

    def _name_in(self, text: str) -> str:
        return self._case.named if self._case.named in text else "nobody"

    def _whole(self, traits: list[str]) -> Goal:
        """What stands is one writer's whole inventory, here the other's, and the root has all traits it had."""
        _, root = self._shown()
        wrong = [] if root["inventories"] == self._report["inventories"] else ["inventories are nobody's"]
        if lost := set(traits) - set(root["traits"]):
            wrong.append(f"lost {', '.join(sorted(lost))}")
        if (OWNER_NOVA in root["traits"]) != self._case.marks:
            wrong.append(f"{OWNER_NOVA} is not as its writer left it")
        return Goal(
            "  one writer's whole inventory stands, all traits kept", "; ".join(wrong) or "yes", "yes", not wrong
        )

    def _untouched(self, guest: str, held: dict[str, Any]) -> Goal:
        same = self._held(guest) == held
        return Goal("  the guest's allocations are untouched", "yes" if same else "no", "yes", same)

    def _shown(self) -> tuple[str, dict[str, Any]]:
        return only_provider(self._host.agent("show").json)

    def _held(self, guest: str) -> dict[str, Any]:
        """What the guest holds, and its generation, which any write of its allocations would raise."""
        answer = self._host.ask("GET", f"/allocations/{guest}")
        resources = {provider: part["resources"] for provider, part in answer["allocations"].items()}
        return {"resources": resources, "generation": answer["consumer_generation"]}

    def _stock(self) -> tuple[str, int]:
        _, root = self._shown()
        return f"{root['inventories']['VCPU']['allocation_ratio']:g}", root["inventories"]["MEMORY_MB"]["reserved"]
