"""Work begins again after another writer was first, and only then."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.sync import convert
from agent.sync.outcome import Outcome, Status
from agent.sync.run import again
from beds.memory import MemoryAnswer
from beds.one_host import Sender, begun
from drivers.policy import DevicePolicy
from hardware import card, host
from reportclient.errors import Conflict, PlacementError, Unavailable


@pytest.mark.parametrize(("conflicts", "patience_s", "made"), [(0, 0, 1), (4, 0, 5), (7, 600, 8), (5, 0, None)])
def test_work_begins_again_until_no_other_writer_is_first(conflicts: int, patience_s: float, made: int | None) -> None:
    tried: list[int] = []

    def act() -> int:
        tried.append(0)
        if len(tried) <= conflicts:
            raise Conflict(f"of attempt {len(tried)}")
        return len(tried)

    if made is None:
        with pytest.raises(Conflict, match=r"of attempt 5; 5 attempts in a row in .* s: find out who writes on host"):
            again(act, "host", patience_s)
    else:
        assert again(act, "host", patience_s) == made


@pytest.mark.parametrize(
    ("error", "longest_s"), [(Conflict("another"), 0.1), (Unavailable("no answer"), 10.0)], ids=lambda one: str(one)
)
def test_a_conversion_gives_way_to_a_placement_that_does_not_answer_and_not_to_who_claims(
    error: PlacementError, longest_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)
    monkeypatch.setattr("random.uniform", lambda _, most: most)
    node: Any = SimpleNamespace(name="host", settings=SimpleNamespace(changes=SimpleNamespace(reshape_timeout_s=600)))

    def act() -> Outcome:
        if len(waits) < 9:
            raise error
        return Outcome(node="host", status=Status.CHANGED)

    convert._patiently(node, act)

    assert max(waits) == longest_s


class TriedTwice(Sender):
    """Answers the second try of a reshape, of which the first is carried out: its stock is not there any more."""

    def request(self, url: str, method: str, **kwargs: Any) -> Any:
        answer = super().request(url, method, **kwargs)
        if url != "/reshaper":
            return answer
        return MemoryAnswer(
            400, {}, {"errors": [{"detail": "malformed reshaper data: No inventory of class VCPU found."}]}
        )


def test_a_conversion_that_was_carried_out_by_a_try_that_timed_out_is_done(tmp_path: Path) -> None:
    """keystoneauth sends a request again that was not answered in time, and placement may still be at the first one."""
    one = begun(tmp_path, host(*card("0000:81:00.0", 4)), DevicePolicy(discover_all=True), "flat")
    one.claim({"": {"VCPU": 1, "MEMORY_MB": 512}})
    one.sender = TriedTwice(one.sender.placement)

    done = one.reshape("numa")

    assert done.status is Status.CHANGED
    assert one.held() == {"host_NUMA0": {"VCPU": 1}, "host_NUMA0_PAGES_4": {"MEMORY_MB": 512}}
