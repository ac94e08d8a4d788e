"""An approval whose checksum is right, and whose fields are of another kind."""

from pathlib import Path

from agent.state.files import seal
from agent.sync.approvals import Approval, read_approval

APPROVAL = {
    **{"node": "host", "where": "placement", "digest": "0123456789ab", "approved": "2026-11-26", "begun": False},
    "outline": {"steps": [], "traits": [], "moves": ""},
}


def test_an_approval_with_a_field_of_another_kind_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "approval"
    path.write_text(seal(APPROVAL, form=1), encoding="ascii")
    assert isinstance(read_approval(path), Approval)
    path.write_text(seal({**APPROVAL, "node": None}, form=1), encoding="ascii")
    assert read_approval(path) is None
