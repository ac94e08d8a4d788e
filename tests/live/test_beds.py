"""A bed that does not come up says why."""

from pathlib import Path

import pytest

from beds.process import BedError, free_port, running

pytestmark = pytest.mark.live


def test_a_server_which_dies_is_an_error_with_its_log(tmp_path: Path) -> None:
    url, log = f"http://127.0.0.1:{free_port()}", tmp_path / "log"
    dying = running(["sh", "-c", "echo no such database; exit 3"], directory=tmp_path, log=log, url=url)
    with pytest.raises(BedError, match=r"(?s)ended with 3.*no such database"), dying:
        pass
