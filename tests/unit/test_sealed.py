"""Plans and approvals in files, whose checksum is right and whose fields are of another kind."""

from pathlib import Path
from typing import Any

import pytest

from agent.errors import ConfigError
from agent.state.files import seal
from agent.sync.approval import Approval, read_approval
from agent.sync.plan_file import read_plans

ODD: tuple[Any, ...] = (None, 1, [], {})
PLAN = {"node": "host", "where": "placement", "plan": {"digest": "0123456789ab", "operations": [], "moves": []}}
APPROVAL = {
    **{"node": "host", "where": "placement", "digest": "0123456789ab", "approved": "2026-11-26", "begun": False},
    "outline": {"steps": [], "traits": [], "moves": ""},
}


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("field", ["node", "where", "plan", "digest"])
def test_a_plan_file_with_a_field_of_another_kind_is_refused(field: str, odd: object, tmp_path: Path) -> None:
    path = tmp_path / "plan"
    wrong = {**PLAN, "plan": {**PLAN["plan"], "digest": odd}} if field == "digest" else {**PLAN, field: odd}  # type: ignore[dict-item]
    path.write_text(seal({"plans": [PLAN]}, form=1), encoding="ascii")
    assert read_plans(path).keys() == {"host"}
    path.write_text(seal({"plans": [wrong]}, form=1), encoding="ascii")

    with pytest.raises(ConfigError, match="is not a file that plan --out wrote"):
        read_plans(path)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("field", ["node", "where", "digest", "approved"])
def test_an_approval_with_a_field_of_another_kind_does_not_count(field: str, odd: object, tmp_path: Path) -> None:
    path = tmp_path / "approval"
    path.write_text(seal(APPROVAL, form=1), encoding="ascii")
    assert isinstance(read_approval(path), Approval)
    path.write_text(seal({**APPROVAL, field: odd}, form=1), encoding="ascii")

    assert read_approval(path) == f"{path} is damaged (ValueError)"
