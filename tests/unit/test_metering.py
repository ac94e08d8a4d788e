"""How requests are told to who counts them."""

from typing import Any

import pytest

from agent.connect.senders import MeteredSender


def test_a_request_that_fails_is_told_too() -> None:
    class Silent:
        def request(self, url: str, method: str, **_: Any) -> Any:
            raise TimeoutError(url, method)

    told: list[tuple[str, str, int]] = []
    sender = MeteredSender(Silent(), lambda *one: told.append(one[:3]))

    with pytest.raises(TimeoutError):
        sender.request("/traits", "GET")

    assert told == [("GET", "/traits", 0)]
