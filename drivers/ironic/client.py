"""
The only door to Ironic: its REST API through a keystoneauth adapter.

Listings are read by pages with only the fields that are needed, and are whole or not there at all.
"""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from typing import Any, NoReturn, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit

from keystoneauth1 import exceptions
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from drivers.errors import DiscoveryError, MalformedFact, Vanished
from drivers.ironic.nodes import FIELDS
from reportclient.errors import KEYSTONE_AWAY, LEAKED, asked_keystone, mask, shorten

PAGE = 1000  # nodes; more than Ironic's [api] max_limit is cut down by Ironic
REQUEST_TRIES = 5  # at one request that a busy Ironic refused, and at a listing of which a node went away
_NO_CONNECTION = (exceptions.ConnectTimeout, exceptions.ConnectFailure)
WITH_TRAITS, WITH_GROUPS, WITH_SHARDS = (1, 37), (1, 46), (1, 82)  # the API versions that brought them


class Adapter(Protocol):
    """What we use of a keystoneauth adapter."""

    def request(self, url: str, method: str, **kwargs: Any) -> Any: ...


class _Busy(Exception):
    """A refusal that passes: worth another try."""


class IronicClient:
    """
    One Ironic, and which of its nodes are ours.

    ``shard`` and ``conductor_group`` narrow the listing; None: all of them.
    """

    def __init__(self, sender: Adapter, where: str, *, shard: str | None, conductor_group: str | None) -> None:
        self._sender = sender
        self.where = where
        self._filters = {
            name: value for name, value in (("shard", shard), ("conductor_group", conductor_group)) if value is not None
        }
        needed = [WITH_TRAITS] + [WITH_GROUPS] * ("conductor_group" in self._filters)
        self._version = max(needed + [WITH_SHARDS] * ("shard" in self._filters))

    @property
    def name(self) -> str:
        """Where it is, and what narrows the listing."""
        return ", ".join([self.where, *(f"{name} {value!r}" for name, value in self._filters.items())])

    @property
    def lists_all(self) -> bool:
        """Whether nothing narrows the listing."""
        return not self._filters

    def records(self) -> Iterator[Any]:
        """
        Every node of our share, as Ironic's JSON has it, ``PAGE`` a request.

        Raises:
            Vanished: nodes that a page began at went away again and again.
            DiscoveryError: no whole answer; never a shorter listing.
        """
        query = {"fields": ",".join(FIELDS), "limit": str(PAGE), **self._filters}
        markers: set[str] = set()
        while True:
            body = self._get(f"/v1/nodes?{urlencode(query)}")
            try:
                page, following = body["nodes"], body.get("next")
                if not isinstance(page, list):
                    raise TypeError("nodes is no list")
                # Ironic's own link forgets shard and conductor group, so only its marker is taken.
                marker = dict(parse_qsl(urlsplit(following).query))["marker"] if following else ""
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise MalformedFact(f"{self.where} answered a listing of nodes that is none: {error}") from error
            yield from page
            if not marker:
                return
            if marker in markers:
                raise MalformedFact(f"{self.where} answers the page after {marker} again and again")
            markers.add(marker)
            query["marker"] = marker

    def is_there(self, uuid: str) -> bool:
        """
        Whether Ironic has a node of this uuid, whosever share it is of.

        Raises:
            DiscoveryError: it cannot be told.
        """
        for written in (uuid, uuid.upper()):  # Ironic keeps it as it was written
            with suppress(Vanished):
                self._get(f"/v1/nodes/{written}?fields=uuid")
                return True
        return False

    def _get(self, path: str) -> Any:
        """A GET's body; a busy Ironic is asked again."""
        tries = Retrying(
            stop=stop_after_attempt(REQUEST_TRIES),
            wait=wait_random_exponential(multiplier=0.1, max=2),
            retry=retry_if_exception_type(_Busy),
        )
        try:
            return tries(self._ask, path)
        except RetryError as error:
            raise DiscoveryError(f"{error.last_attempt.exception()}, {REQUEST_TRIES} times: see its log") from error

    def _ask(self, path: str) -> Any:
        version = ".".join(map(str, self._version))
        asked = f"{self.where} answered GET {path.partition('?')[0]}"
        try:
            answer = self._sender.request(
                path,
                "GET",
                raise_exc=False,
                microversion=version,
                headers={"Accept": "application/json", "X-OpenStack-Ironic-API-Version": version},
                rate_semaphore=nullcontext(),  # keystoneauth's own waits for the wall clock
            )
        except (exceptions.ClientException, OSError, ArithmeticError, ValueError, *LEAKED) as error:
            self._explain(error)
        status = answer.status_code
        if status == 406:
            newest = answer.headers.get("X-OpenStack-Ironic-API-Maximum-Version", "an older one")
            raise DiscoveryError(
                f"{self.where} speaks API version {newest}, and {version} is needed: upgrade Ironic"
                + (", or set no [ironic] shard" if self._version == WITH_SHARDS else "")
            )
        text = " ".join(str(answer.text).split())[:200]
        if status == 404 and "faultstring" in str(answer.text):
            raise Vanished(f"{asked} with 404: {text}")
        if status in (409, 429) or status >= 500:
            raise _Busy(f"{asked} with {status}: {text}")
        if status in (401, 403):
            raise DiscoveryError(
                f"{asked} with {status}: check the user and its roles in [ironic] (reader, or service)"
            )
        try:
            if status != 200:
                raise ValueError("no answer to a GET")
            return answer.json()
        except (ValueError, RecursionError) as error:
            raise DiscoveryError(
                f"{asked} with {status} and no answer of Ironic's: does the endpoint lead to it? {text}"
            ) from error

    def _explain(self, error: Exception) -> NoReturn:
        """What keystoneauth raised before any answer came."""
        cause = shorten(mask(str(error)))
        for kinds, advice in _ADVICE:
            if isinstance(error, kinds):
                no_token = kinds is _NO_CONNECTION and asked_keystone(error)
                advised = KEYSTONE_AWAY if no_token else advice
                raise DiscoveryError(f"{self.where}: {advised} ({type(error).__name__}: {cause})") from error
        raise DiscoveryError(f"{self.where}: {type(error).__name__}: {cause}: check [ironic]") from error


_ADVICE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (exceptions.SSLError, "its certificate is not trusted here: set [ironic] cafile to the CA that signed it"),
    (
        _NO_CONNECTION,
        "no connection: does it run, and are address, port and http or https right in [ironic]?",
    ),
    (exceptions.DiscoveryFailure, KEYSTONE_AWAY),
    (exceptions.Unauthorized, "Keystone refused the credentials: check user and password in [ironic]"),
    (
        (exceptions.EndpointNotFound, exceptions.EmptyCatalog),
        "the catalog has no such Ironic: check region_name, valid_interfaces and service_type in [ironic]",
    ),
)


def unique(records: Iterator[Mapping[str, Any]]) -> Iterator[Any]:
    """Records without those that a listing tells twice, as it does when nodes come while it is read."""
    seen: set[Any] = set()
    for record in records:
        uuid = record.get("uuid") if isinstance(record, Mapping) else None
        if not isinstance(uuid, str) or uuid not in seen:
            yield record
        if isinstance(uuid, str):
            seen.add(uuid)
