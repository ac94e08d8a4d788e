"""Plans and approvals in files, whose checksum is right and whose fields are of another kind."""

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.state.files import seal
from agent.sync.approval import Approval, read_approval
from agent.sync.plan_file import read_plans

APPROVAL = {
    **{"node": "host", "where": "placement", "digest": "0123456789ab", "approved": "2026-11-26", "begun": False},
    "outline": {"steps": [], "traits": [], "moves": ""},
}


def test_a_plan_file_with_a_field_of_another_kind_is_refused(tmp_path: Path) -> None:
    def write(**changes: object) -> Path:
        saved = {"node": "host", "where": "placement", "digest": "0123456789ab", "plan": {}} | changes
        (tmp_path / "plan").write_text(seal({"plans": [saved]}, form=1), encoding="ascii")
        return tmp_path / "plan"

    assert read_plans(write()).keys() == {"host"}
    with pytest.raises(ConfigError, match="is not a file that plan --out wrote"):
        read_plans(write(digest=1))


def test_an_approval_with_a_field_of_another_kind_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "approval"
    path.write_text(seal(APPROVAL, form=1), encoding="ascii")
    assert isinstance(read_approval(path), Approval)
    path.write_text(seal({**APPROVAL, "node": None}, form=1), encoding="ascii")
    assert read_approval(path) is None
