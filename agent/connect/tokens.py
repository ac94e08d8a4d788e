"""
Keystone's tokens: renewed before their end at a moment that differs from host to host, and kept over a restart.

A login costs Keystone a comparison of passwords, a quarter of a second of CPU by default. The hosts of a fleet that
start together would all log in at once, and again whenever their tokens end together.
"""

import logging
import math
import os
import random
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keystoneauth1 import exceptions
from keystoneauth1.access import AccessInfo
from keystoneauth1.identity.base import BaseIdentityPlugin
from keystoneauth1.session import Session

from agent.state.files import read_whole, replace_file, seal, unseal
from reportclient.keystone import FAILURES, describe

LOG = logging.getLogger(__name__)
FIRST_PART, LAST_PART = 0.4, 0.9  # of a token's life: it is renewed between these
_SUFFIX = "-token.json"
_FORMAT = 1  # of the kept file
FOLDER = "RUNTIME_DIRECTORY"  # systemd's name for the unit's own folder in memory, in the service's environment


def look_after(auth: object, name: str) -> None:
    """
    Renew the tokens of a plugin early, and keep them over a restart of the service as ``name``.

    A plugin that logs in without Keystone is left as it is. Nothing is kept where systemd gives no folder for it.
    """
    if isinstance(auth, BaseIdentityPlugin):
        folder = os.environ.get(FOLDER, "").partition(":")[0]
        Tokens(auth, Path(folder) / f"{name}{_SUFFIX}" if folder else None)


def forget_tokens() -> None:
    """Forget what is kept, so that the next login asks Keystone: its catalog may have another address of placement."""
    if folder := os.environ.get(FOLDER, "").partition(":")[0]:
        for file in Path(folder).glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                file.unlink()


class Tokens:
    """
    Replaces the ``get_access`` of a plugin; any thread may call it.

    ``file`` keeps the token (None: it is not kept). Ages are counted by a clock that nobody sets and that goes on
    while the service is restarted (CLOCK_BOOTTIME, clock_gettime(2)); the file does not survive a boot.
    """

    def __init__(self, auth: BaseIdentityPlugin, file: Path | None) -> None:
        self._auth = auth
        self._file = file
        self._renewing = threading.Lock()
        self._noting = threading.Lock()
        self._within = threading.local()  # a login of this thread
        self._known: AccessInfo | None = None  # the token that ``_renew_at`` is about
        self._renew_at = 0.0
        self._log_in = auth.get_access
        self._read()
        auth.get_access = self.get_access  # type: ignore[method-assign]

    def get_access(self, session: Session, **more: Any) -> AccessInfo:
        """
        Return a token that is good, as the plugin does.

        Where a renewal fails, the token that there is stays in use until its end.

        Raises:
            as the plugin: there is no good token, and Keystone gives none, or asks for one before it does.
        """
        known = self._auth.auth_ref
        if known is not None and known is self._known and _now_s() >= self._renew_at:
            self._renew(session, known)
        if getattr(self._within, "login", False):  # keystoneauth would wait for its own lock for ever
            raise exceptions.Unauthorized(
                "auth_url answers 401 even to the request for its versions: is it Keystone's?"
            )
        self._within.login = True
        try:
            found = self._log_in(session, **more)
        finally:
            self._within.login = False
        with self._noting:
            if found is not self._known:
                self._note(found, _now_s())
                self._write(found)
        return found

    def _renew(self, session: Session, known: AccessInfo) -> None:
        if not self._renewing.acquire(blocking=False):
            return  # another thread does it, or this one, whose login asks for a token
        failed = ""
        try:
            self._auth.auth_ref = self._auth.get_auth_ref(session)
        except FAILURES as error:
            failed = describe(error)
        finally:
            self._renewing.release()
        if failed:
            left_s = _left_s(known)
            self._renew_at = _now_s() + left_s * random.uniform(FIRST_PART, LAST_PART)
            LOG.warning("Keystone renews no token, the one that is there is good for %.0f s reason=%s", left_s, failed)

    def _note(self, found: AccessInfo, obtained_s: float) -> None:
        """Use a token that Keystone gave at ``obtained_s``, and choose when it is renewed."""
        self._known = found
        self._renew_at = obtained_s + random.uniform(FIRST_PART, LAST_PART) * _life_s(found)

    def _read(self) -> None:
        """Use the token of the service that ran before; skip a broken file, and the token of another login."""
        if self._file is None:
            return
        try:
            about = self._file.lstat()
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                raise PermissionError("others may have written it")
            kept = unseal(read_whole(self._file).decode(), form=_FORMAT)
            login = self._auth.get_cache_id()
            if login is not None and kept["login"] == login:
                self._auth.set_auth_state(kept["state"])
                if self._auth.auth_ref is not None:
                    self._note(self._auth.auth_ref, float(kept["obtained_s"]))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            LOG.info("the token of the last run cannot be read, so the agent logs in file=%s", self._file)
            self._auth.set_auth_state(None)

    def _write(self, found: AccessInfo) -> None:
        login, state = self._auth.get_cache_id(), self._auth.get_auth_state()
        if self._file is None or login is None or state is None or found is not self._auth.auth_ref:
            return
        kept = {"login": login, "obtained_s": _now_s(), "state": state}
        try:
            replace_file(self._file, seal(kept, form=_FORMAT), 0o600, lasting=False)
        except OSError as error:
            LOG.info("the token is not kept for the next start file=%s reason=%s", self._file, error.strerror)


def _left_s(token: AccessInfo) -> float:
    """Return for how many seconds a token is good, by this host's wall clock as keystoneauth counts; never negative."""
    return max(0.0, (token.expires - datetime.now(UTC)).total_seconds()) if token.expires else math.inf


def _life_s(token: AccessInfo) -> float:
    """Return for how many seconds a token was good when Keystone gave it; infinite where it does not say."""
    return (token.expires - token.issued).total_seconds() if token.expires and token.issued else math.inf


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
