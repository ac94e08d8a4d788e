"""Tokens of Keystone: renewed early at different moments, used to their end, and kept over a restart."""

import json
import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from keystoneauth1 import exceptions
from keystoneauth1.access import AccessInfo, create
from keystoneauth1.identity.base import BaseIdentityPlugin
from keystoneauth1.session import Session

from agent.connect import tokens
from agent.connect.tokens import FIRST_PART, LAST_PART, Tokens, look_after
from agent.state.files import seal

LIFE_S = 3600


class Clock:
    """This host's clocks; only the one that nobody sets stands still."""

    now_s = 5000.0


class Keystone(BaseIdentityPlugin):
    """A plugin that counts its logins; ``fails`` is raised instead."""

    def __init__(self, secret: str = "s", life_s: float = LIFE_S) -> None:
        super().__init__()
        self.logins = 0
        self.fails: Exception | None = None
        self._secret, self._life_s = secret, life_s

    def get_auth_ref(self, session: Session) -> AccessInfo:
        if self.fails:
            raise self.fails
        self.logins += 1
        now = datetime.now(UTC)
        token = {
            "issued_at": now.isoformat(),
            "expires_at": (now + timedelta(seconds=self._life_s)).isoformat(),
            "user": {"name": "agent"},
        }
        return create(body={"token": token}, auth_token=f"token {self.logins}")

    def get_cache_id_elements(self) -> dict[str, str | None]:
        return {"secret": self._secret}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(tokens, "_now_s", lambda: clock.now_s)
    return clock


def token_of(keystone: Keystone) -> str | None:
    return keystone.get_access(Session()).auth_token


def logged_in(file: Path | None, secret: str = "s") -> Keystone:
    keystone = Keystone(secret)
    Tokens(keystone, file)
    token_of(keystone)
    return keystone


def test_tokens_of_hosts_that_logged_in_together_are_renewed_at_different_moments(clock: Clock) -> None:
    renewed = []
    for _ in range(100):
        clock.now_s = 0
        keystone = logged_in(None)
        while keystone.logins == 1:
            clock.now_s += 20
            token_of(keystone)
        renewed.append(clock.now_s)

    assert min(renewed) >= FIRST_PART * LIFE_S
    assert max(renewed) <= LAST_PART * LIFE_S + 20
    assert len(set(renewed)) > 30


def test_a_token_that_is_not_renewed_is_used_to_its_end(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    keystone = Keystone()
    Tokens(keystone, None)
    assert token_of(keystone) == "token 1"
    keystone.fails = exceptions.ConnectFailure("no Keystone")
    clock.now_s += LIFE_S

    assert token_of(keystone) == "token 1"
    assert token_of(keystone) == "token 1"  # not asked for again at once
    assert caplog.text.count("Keystone renews no token") == 1

    keystone.fails = None
    clock.now_s += LIFE_S
    assert token_of(keystone) == "token 2"


def test_without_a_good_token_the_error_is_keystones(clock: Clock) -> None:
    keystone = Keystone(life_s=60)  # less than keystoneauth takes for good
    Tokens(keystone, None)
    token_of(keystone)
    keystone.fails = exceptions.ConnectFailure("no Keystone")

    with pytest.raises(exceptions.ConnectFailure):
        token_of(keystone)


class AsksFirst(Keystone):
    """A Keystone that asks for a token before it gives one; without a refusal, the login waits for its own lock."""

    def get_auth_ref(self, session: Session) -> AccessInfo:
        return self.get_access(session)


def test_a_login_that_needs_a_token_is_refused() -> None:
    keystone = AsksFirst()
    Tokens(keystone, None)

    for _ in range(2):
        with pytest.raises(exceptions.Unauthorized, match="401 even to the request for its versions"):
            token_of(keystone)


def test_the_next_start_goes_on_with_the_token(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "placement-token.json"
    logged_in(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    clock.now_s += 100
    after = Keystone()
    Tokens(after, file)

    assert token_of(after) == "token 1"
    assert after.logins == 0
    clock.now_s += LIFE_S
    token_of(after)
    assert after.logins == 1  # its age was kept too


def test_a_refused_token_is_followed_by_a_login(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    logged_in(file)
    after = logged_in(file)

    after.invalidate()  # as a session does after a 401

    assert token_of(after) == "token 1"
    assert after.logins == 1


def spoiled(kept: dict[str, Any], key: str, value: object) -> str:
    return seal({**kept["body"], key: value}, form=1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda kept: "",
        lambda kept: "[]",
        lambda kept: "{}",
        lambda kept: "[" * 100_000,
        lambda kept: json.dumps(kept)[:-20],
        lambda kept: json.dumps(kept).replace("token 1", "token 2"),
        lambda kept: spoiled(kept, "state", "nothing"),
        lambda kept: spoiled(kept, "state", json.dumps({"auth_token": "t", "body": {"token": {}}})),
        lambda kept: spoiled(kept, "state", json.dumps({"auth_token": "t", "body": {}})),
        lambda kept: spoiled(kept, "obtained_s", "early"),
        lambda kept: spoiled(kept, "login", "another"),
    ],
)
def test_what_cannot_be_a_token_of_this_login_is_left(spoil: Any, clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    logged_in(file)
    file.write_text(spoil(json.loads(file.read_text())))

    after = Keystone()
    Tokens(after, file)

    assert token_of(after) == "token 1"
    assert after.logins == 1


def test_another_password_is_another_login(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    logged_in(file)

    assert logged_in(file, secret="changed").logins == 1


def test_a_token_is_kept_only_where_systemd_gives_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder, kept in (("", []), (f"{tmp_path}:/nowhere", ["nova-token.json"])):
        monkeypatch.setenv("RUNTIME_DIRECTORY", folder)
        keystone = Keystone()
        look_after(keystone, "nova")
        token_of(keystone)
        assert [one.name for one in tmp_path.iterdir()] == kept

    look_after(object(), "placement")  # a login without Keystone


def test_ages_are_counted_while_a_service_is_restarted() -> None:
    assert tokens._now_s() >= time.monotonic() - 1


def test_a_reload_forgets_the_kept_token_as_the_catalog_may_have_changed(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tokens.FOLDER, str(tmp_path))
    before = Keystone()
    look_after(before, "placement")
    token_of(before)

    tokens.forget_tokens()
    after = Keystone()
    look_after(after, "placement")
    token_of(after)

    assert after.logins == 1
    assert [path.name for path in tmp_path.iterdir()] == ["placement-token.json"]


def test_nothing_is_forgotten_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(tokens.FOLDER, raising=False)

    tokens.forget_tokens()


def test_no_link_is_followed_and_no_pipe_waited_for(clock: Clock, tmp_path: Path) -> None:
    target, file = tmp_path / "target", tmp_path / "token.json"
    target.write_text("untouched")
    (tmp_path / "token.json.new").symlink_to(target)
    os.mkfifo(file, 0o600)
    logged_in(file)

    assert target.read_text() == "untouched"
    assert stat.S_ISREG(file.lstat().st_mode)


def test_a_folder_that_cannot_be_used_costs_nothing_but_the_next_login(clock: Clock, tmp_path: Path) -> None:
    assert token_of(logged_in(tmp_path / ("long" * 100) / "token.json")) == "token 1"


def test_a_file_that_others_may_have_written_is_not_used(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "token.json"
    before = Keystone()
    Tokens(before, file)
    token_of(before)
    file.chmod(0o666)

    after = Keystone()
    Tokens(after, file)
    token_of(after)

    assert after.logins == 1
    assert file.stat().st_mode & 0o777 == 0o600
