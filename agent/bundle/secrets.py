"""Blanks secrets: those of the configuration files wherever they stand, and those that the form of a text shows."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote
from xml.sax.saxutils import escape

from agent.settings.read import Settings
from agent.settings.resolve import is_secret
from agent.settings.values import mentions
from reportclient.errors import USERINFO, mask

MASK = "***"
_SHORTEST = 3  # letters of a secret that is looked for: a shorter one would blank words
_RECORDED = ("host/", "cases/")  # files that plans need whole; all others are of people and services
_WORD = (
    r"passw(?:or)?d|passphrase|secret|token|credential|cookie|api_?key|private_?key|auth_?key|(?<![a-z])pass(?![a-z])"
)
_NAME = rf"[\w.-]*(?:{_WORD})[\w.-]*"
_VALUE = r"""\\"[^"\\]*|"(?:[^"\\]|\\.)*|\\?'[^']*|[^\s"',;&}\])]+(?:[^\s"']*[^\s"',;&}\])])?"""
_OPTION = re.compile(rf"(?i){_NAME}|.*key")  # names of options that the agent does not read
_NUMBER = re.compile(r"\d{1,7}")
_SWITCHES = frozenset({"true", "false", "yes", "no", "on", "off", "none"})
_NAMED = re.compile(rf"(?i)((?<![\w.-]){_NAME}\\?[\"']?[ \t]*[:=][ \t]*(?:(?:Bearer|Basic)[ \t]+)?)(?:{_VALUE})")
_HEADER = re.compile(r"(?i)(\bauthorization\\?[\"']?[ \t]*[:=][ \t]*\\?[\"']?(?:\w+[ \t]+)?)[^\s\"'\\]+")
_LINE = re.compile(rf"(?im)^([ \t]*{_NAME}[ \t]*=[ \t]*)\S[^\n]*$")  # an option, whose value may have blanks
_ARGUMENT = re.compile(rf"(?i)(?<!\S)(--{_NAME}[ \t]+)[^\s-]\S*")
_ELEMENT = re.compile(rf"(?i)(<(?:\w+:)?{_NAME}>)[^<]+")
_FERNET = re.compile(r"\bgAAAA[\w-]{8,}={0,2}")  # a token of Keystone (keystone, doc/source/admin/tokens.rst)


def secrets_of(settings: Settings) -> frozenset[str]:
    """Return the values of all options that may be secrets, also those of nova's that the agent does not read."""
    found: set[str] = set()
    for group, options in settings.apis.source.items():
        for name, value in options.items() if hasattr(options, "items") else ((group, options),):
            if isinstance(value, str):
                found |= {value} if is_secret(name, value) else set()
                found |= {*_passwords(value)}
    for _, _, _, name, value in mentions(settings.apis.source):
        bare = value.strip().strip("\"'")
        found |= {bare} if _may_be_secret(name, bare) else set()
        found |= {*_passwords(bare)}
    return frozenset(one for one in found if len(one) >= _SHORTEST)


def hide(files: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """
    Return the files without these secrets, and without users and passwords of URLs, wherever one stands.

    In files that are not recorded from the host also without values whose name says that they are secret, as
    ``password=X``, ``"token": "X"`` or ``X-Auth-Token: X``, and without tokens of Keystone.
    """
    wanted = sorted({form for one in secrets if one for form in _forms(one)}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, wanted))) if wanted else None
    return {path: _hide(text, pattern, prose=not path.startswith(_RECORDED)) for path, text in files.items()}


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it stands, and as JSON, XML, a URL or base64 has it."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield escape(secret)
    yield escape(secret, {'"': "&quot;", "'": "&apos;"})
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield b64encode(secret.encode()).decode()


def _hide(text: str, secrets: re.Pattern[str] | None, *, prose: bool) -> str:
    text = mask(secrets.sub(MASK, text) if secrets else text)
    if not prose:
        return text
    for pattern in (_LINE, _ARGUMENT, _ELEMENT, _NAMED, _HEADER):
        text = pattern.sub(lambda found: f"{found[1]}{MASK}", text)
    return _FERNET.sub(MASK, text)


def _may_be_secret(name: str, value: str) -> bool:
    """Whether the value of any option is one, by its name; not that of inject_password or token_cache_time."""
    is_count = _NUMBER.fullmatch(value) and not name.endswith(("password", "passwd", "secret", "token", "key"))
    return bool(_OPTION.fullmatch(name)) and not is_count and value.lower() not in _SWITCHES


def _passwords(value: str) -> Iterator[str]:
    """Yield the password of each login in the URLs of a value, as it stands and decoded."""
    for login in USERINFO.findall(value):
        for one in login.rstrip("@").split(","):  # nova's transport_url has several hosts
            password = one.rpartition("@")[0].partition(":")[2] or one.partition(":")[2]
            yield password
            yield unquote(password)
