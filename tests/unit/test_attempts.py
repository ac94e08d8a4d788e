"""Work begins again after another writer was first, and only then."""

import pytest

from agent.sync.run import again
from reportclient.errors import Conflict


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
