"""Where a server sends a request instead: a login goes to no other server, nor to an address that is none."""

import pytest
import requests

from agent.connect.guarded import GuardedSession, UnusableAnswer


@pytest.mark.parametrize("location", ["http://[", "http://placement:99999/", "http://other/", "ftp://placement/"])
def test_a_redirect_to_another_server_or_to_none_is_told(location: str) -> None:
    answer = requests.Response()
    answer.url, answer.status_code, answer.headers["Location"] = "http://placement/x", 302, location

    with pytest.raises(UnusableAnswer, match="redirects to another server"):
        GuardedSession()._check_redirect(answer)
