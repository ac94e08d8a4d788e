"""A pass of the service ends in time, whatever its services do: no request is sent after that; each sent is told."""

import time
from collections.abc import Callable

import pytest

from agent.connect.senders import PASS_S, Trace, TracedSender
from agent.nova.client import NovaClient
from drivers.errors import DiscoveryError
from drivers.ironic.client import IronicClient
from fakes import FakeAnswer, FakeSender
from reportclient.errors import Unavailable
from reportclient.transport import Transport

OVER = "this pass takes more than 30 minutes"


def placement(sender: TracedSender) -> None:
    with pytest.raises(Unavailable, match=OVER) as caught:
        Transport(sender, where="placement").get("/")
    assert not caught.value.late


def ironic(sender: TracedSender) -> None:
    with pytest.raises(DiscoveryError, match=OVER):
        next(IronicClient(sender, "Ironic", shard=None, conductor_group=None).records())


def nova(sender: TracedSender) -> None:
    assert OVER in NovaClient(sender, "nova").record("uuid").silence


@pytest.mark.parametrize("ask", [placement, ironic, nova])
def test_after_the_time_of_a_pass_nothing_is_sent(ask: Callable[[TracedSender], None]) -> None:
    trace, sender = Trace(), FakeSender([])
    trace.begin()
    trace.ends_s -= PASS_S + 1

    ask(TracedSender(sender, trace))

    assert sender.asked == []


def test_a_request_that_fails_is_told_too() -> None:
    told: list[tuple[str, str, int]] = []
    sender = TracedSender(FakeSender([TimeoutError()]), Trace(), lambda *one: told.append(one[:3]))

    with pytest.raises(TimeoutError):
        sender.request("/traits", "GET")

    assert told == [("GET", "/traits", 0)]


def test_the_next_pass_has_its_own_time_and_a_verb_has_no_limit() -> None:
    trace, sender = Trace(), FakeSender([FakeAnswer(), FakeAnswer()])
    assert trace.ends_s > time.monotonic() + 10 * PASS_S
    Transport(TracedSender(sender, trace), where="placement").get("/")
    trace.ends_s = 0.0
    trace.begin()

    Transport(TracedSender(sender, trace), where="placement").get("/")

    assert len(sender.asked) == 2
