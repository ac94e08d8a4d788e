"""
What sends requests, a keystoneauth adapter, and why no answer came: the same for placement, Ironic and nova.

The adapter asks Keystone for a token and for the catalog on the way, so a request can fail before it reaches its
service.
"""

from typing import Any, Protocol

from keystoneauth1 import exceptions

from reportclient.errors import mask, shorten

LEAKED = (KeyError, IndexError, TypeError, AttributeError, RecursionError)
"""Raised by keystoneauth for answers that do not come from Keystone."""
FAILURES = (exceptions.ClientException, OSError, ArithmeticError, ValueError, *LEAKED)
"""Everything that an adapter raises when no answer came."""
KEYSTONE_AWAY = "Keystone gives no token: does it run, and is auth_url right?"
_UNTRUSTED = "its certificate is not trusted here: set [{group}] cafile to the CA that signed it"
_PLAIN_HTTP = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")  # OpenSSL's words for it


class PassOver(exceptions.ClientException):
    """The time of a pass is over; the request was not sent."""


class Sender(Protocol):
    """
    A keystoneauth adapter, as far as we use it: it returns an answer whatever the status is, or raises FAILURES.

    An answer is a ``requests`` response, or has what ``Transport`` uses of one.
    """

    def request(self, url: str, method: str, **kwargs: Any) -> Any: ...


def explain(error: Exception, where: str, group: str) -> tuple[str, bool]:
    """
    Return one line why no answer came, and whether another try may help; the error is one of ``FAILURES``.

    The line has where, what to do next, and the cause without passwords. ``group`` has the options of the login.
    """
    may_pass, advice = next((passes, text) for kinds, passes, text in _ADVICE if isinstance(error, kinds))
    if isinstance(error, exceptions.DiscoveryFailure) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        may_pass, advice = False, _UNTRUSTED
    elif isinstance(error, exceptions.SSLError) and any(word in str(error) for word in _PLAIN_HTTP):
        advice = "it answers without TLS: is https right in its URL or auth_url in [{group}], or should it be http?"
    elif isinstance(error, (exceptions.ConnectTimeout, exceptions.ConnectFailure)) and "/auth/tokens" in str(error):
        advice = KEYSTONE_AWAY
    return f"{where}: {advice.format(group=group)} ({describe(error)})", may_pass


def describe(error: Exception) -> str:
    """Return the kind and the text of an error on one line, without passwords."""
    return f"{type(error).__name__}: {shorten(mask(str(error)))}"


_ADVICE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], bool, str], ...] = (
    (exceptions.SSLError, False, _UNTRUSTED),
    (
        exceptions.ConnectTimeout,
        True,
        "no answer in time: is it overloaded or behind a firewall? [{group}] timeout is the limit",
    ),
    (
        exceptions.ConnectFailure,
        True,
        "no connection: does it run, and are address, port and http or https right in [{group}]?",
    ),
    (
        exceptions.Unauthorized,
        False,
        "Keystone refused the credentials: check user, password or application credential in [{group}], and when they "
        "expire",
    ),
    (
        exceptions.NotFound,
        False,
        "Keystone does not know what [{group}] names: was the application credential deleted, is auth_url right?",
    ),
    (
        (exceptions.EndpointNotFound, exceptions.EmptyCatalog),
        False,
        "the catalog has no such service: check region_name, valid_interfaces and service_type in [{group}], and that "
        "the credentials name a project",
    ),
    (exceptions.MissingRequiredOptions, False, "[{group}] lacks options that its auth_type needs"),
    (exceptions.DiscoveryFailure, True, KEYSTONE_AWAY),
    (exceptions.HttpServerError, True, "Keystone failed: see its log, and check auth_url"),
    (exceptions.HTTPClientError, False, "Keystone does not accept what [{group}] says"),
    (exceptions.ClientException, True, "the request failed"),
    ((ValueError, ArithmeticError), False, "[{group}] holds a number or address that cannot be used"),
    (LEAKED, True, "the answer from auth_url in [{group}] is not in Keystone's form: is auth_url right?"),
    (OSError, False, "a file that [{group}] names cannot be read: check cafile, certfile and keyfile"),
)
"""What to do about each of ``FAILURES``, the first that fits, with whether another try may help."""
