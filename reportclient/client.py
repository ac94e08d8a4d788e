"""Reads placement's tree and carries out plans: the only writer."""

from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import urlencode
from uuid import UUID

from reportclient import payload
from reportclient.allocations import Allocation, Consumer
from reportclient.errors import Absent, Conflict, Forbidden, Rejected, Unavailable
from reportclient.plan import Plan
from reportclient.transport import NEWEST, Transport, parse_date
from reportclient.tree import ObservedProvider, ObservedTree, Provider, went_back
from reportclient.writer import Writer

SHARES = "MISC_SHARES_VIA_AGGREGATE"
NAMES_PER_QUERY = 100  # keeps GET /traits?name=in:... under 8 KiB


class PlacementClient:
    """One placement, through one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.went_back = False  # in this pass placement was found in an older state than the one remembered
        self._latest: dict[str, ObservedProvider] = {}  # as read by this pass, which may have to look again at once
        self._listed: dict[str, int] = {}  # the generation of each consumer, as a provider's allocations told it last
        self._consumers: dict[str, tuple[Consumer, set[Allocation]]] = {}  # as read, and what they held here then

    @property
    def microversion(self) -> tuple[int, int]:
        """The microversion of the next request: at most what this placement was found to speak."""
        return self._transport.microversion

    @microversion.setter
    def microversion(self, spoken: tuple[int, int]) -> None:
        self._transport.microversion = min(spoken, NEWEST)

    def begin(self) -> None:
        """Forget what was read: what is told twice within a pass rests on generations, which can come again later."""
        self._latest = {}
        self.went_back = False
        self._listed.clear()
        self._consumers.clear()

    @property
    def skew_s(self) -> float | None:
        """Placement's clock minus ours, as of its last answer; None when it sent no date."""
        return self._transport.skew_s

    def find(self, name: str) -> str | None:
        """The uuid of the provider of exactly this name, None when there is none. One request."""
        body, _ = self._transport.get(f"/resource_providers?{urlencode({'name': name})}")
        with payload.in_form(f"the provider named {name}"):
            rows = payload.decode_listing(body)
        return next((uuid for uuid, found, _, _ in rows if found == name), None)

    def exists(self, name_or_uuid: str) -> bool:
        """Whether a provider of any host has exactly this name or this uuid. At most two requests."""
        if self.find(name_or_uuid):
            return True
        try:
            uuid = str(UUID(name_or_uuid))
        except ValueError:
            return False
        body, _ = self._transport.get(f"/resource_providers?{urlencode({'uuid': uuid})}")
        with payload.in_form(f"the provider {uuid}"):
            return bool(payload.decode_listing(body))

    def generations(self, trait: str | None = None, *, uuid: str | None = None) -> dict[str, int]:
        """
        The generations of all roots that are named by their uuid, of those that carry a trait, or of one. One request.

        Raises:
            Unavailable: no complete answer.
        """
        query = {"required": trait} if trait else {"uuid": uuid} if uuid else {}
        try:
            body, _ = self._transport.get(f"/resource_providers{'?' if query else ''}{urlencode(query)}")
        except Rejected:
            if trait and trait not in self.known_traits([trait]):
                return {}  # nobody can carry what placement does not know
            raise
        with payload.in_form("a list of providers"):
            rows = payload.decode_listing(body)
        return {uuid: generation for uuid, name, parent, generation in rows if name == uuid and parent is None}

    def read(self, uuid: str, name: str, generation: int) -> ObservedProvider:
        """One root as it stands, without its children; three requests. Errors as ``observe``."""
        return self._observe_one(uuid, name, None, generation, None)

    def observe(self, root_uuid: str, since: ObservedTree | None = None, *, whole: bool = False) -> ObservedTree:
        """
        The tree under a root, at the price of one request when nothing changed since ``since``.

        Providers whose generation moved are read again, three requests each. No such root is an empty tree.
        A listing that is older than ``since`` comes from a cache, or from a database that was restored: then all is
        read again, and what is stale in it is found out at the first write, by its generation. ``whole`` reads what did
        not move too, but for what this pass has read, so that another history with the same generations is found;
        ``went_back`` tells of both.

        Raises:
            Unavailable: no complete answer; never a shorter tree.
            Conflict: a provider went away while the tree was read.
        """
        body, modified = self._transport.get(f"/resource_providers?{urlencode({'in_tree': root_uuid})}")
        with payload.in_form("the tree of a root"):
            rows = payload.decode_listing(body)
        _check_tree(rows, root_uuid)
        if since and _is_older(rows, modified, since):
            whole = (
                True  # by its date alone it may be of a server whose clock is behind: what was read then is the same
            )
            self._latest.clear()
        known = self._latest | {
            seen.uuid: seen
            for seen in (() if whole else since or ())
            if seen.uuid not in self._latest or seen.generation > self._latest[seen.uuid].generation
        }
        names = {uuid: name for uuid, name, _, _ in rows}
        parents = {uuid: names.get(parent) if parent else None for uuid, _, parent, _ in rows}
        tree = ObservedTree(
            tuple(
                self._observe_one(uuid, name, parents[uuid], generation, known.get(uuid))
                for uuid, name, _, generation in _from_the_root(rows)
            ),
            modified,
        )
        self.went_back = self.went_back or (since is not None and went_back(since, tree))
        self._latest = tree.by_uuid
        return tree

    def glance(self, root_uuid: str, since: ObservedTree) -> ObservedTree:
        """
        The tree under a root with its generations of now, and the stock and traits of ``since`` where it had them.

        One request, and three for each provider that ``since`` did not have: who looks at allocations need not read
        anew what seldom changes. Not to be planned from.

        Raises:
            as ``observe``.
        """
        body, modified = self._transport.get(f"/resource_providers?{urlencode({'in_tree': root_uuid})}")
        with payload.in_form("the tree of a root"):
            rows = payload.decode_listing(body)
        _check_tree(rows, root_uuid)
        names = {uuid: name for uuid, name, _, _ in rows}
        known = {} if _is_older(rows, modified, since) else since.by_uuid
        found = []
        for uuid, name, parent, generation in _from_the_root(rows):
            stood = replace(known[uuid], generation=generation) if uuid in known else None
            found.append(self._observe_one(uuid, name, names.get(parent) if parent else None, generation, stood))
        return ObservedTree(tuple(found), modified)

    def allocations(
        self, providers: Iterable[ObservedProvider], *, as_observed: bool = False
    ) -> tuple[Allocation, ...]:
        """
        Who holds what on these providers; one request each.

        Raises:
            Conflict: with ``as_observed``, somebody wrote on one of them since it was observed.
        """
        held: list[Allocation] = []
        for observed in providers:
            body, _ = self._transport.get(f"/resource_providers/{observed.uuid}/allocations")
            with payload.in_form(f"the allocations on {observed.name}"):
                rows = payload.decode_allocations(body, observed.name)
                generation = int(body["resource_provider_generation"])
                self._listed |= payload.decode_consumer_generations(body)
            if as_observed and generation != observed.generation:
                raise Conflict(f"somebody wrote on {observed.name} while it was read")
            held += rows
        return tuple(held)

    def consumers(self, uuids: Iterable[str], held: Iterable[Allocation] = ()) -> tuple[Consumer, ...]:
        """
        These consumers with all they hold, here and elsewhere; who holds nothing is left out.

        One request for each that was not read before, or of which the last ``allocations`` (``held`` are those) told
        another generation or other amounts: when a plan is made again because others wrote, few are read again.
        """
        rows: dict[str, set[Allocation]] = {}
        for one in held:
            rows.setdefault(one.consumer, set()).add(one)
        found = []
        for uuid in sorted(set(uuids)):
            known = self._consumers.get(uuid)
            if known is None or (known[0].generation, known[1]) != (self._listed.get(uuid), rows.get(uuid)):
                consumer = self.consumer(uuid)
                if consumer is None:
                    continue
                known = self._consumers[uuid] = consumer, rows.get(uuid, set())
            found.append(known[0])
        return tuple(found)

    def consumer(self, uuid: str) -> Consumer | None:
        """One consumer with all it holds, as it is now; None when it holds nothing. One request."""
        body, modified = self._transport.get(f"/allocations/{uuid}")
        written = parse_date(modified)
        age_s = self._transport.now() - written.timestamp() + (self.skew_s or 0) if written else None
        with payload.in_form(f"the allocations of {uuid}"):
            return payload.decode_consumer(body, uuid, age_s)

    def sharing(self) -> frozenset[str]:
        """The uuids of all providers that share what they have with others, as storage does. One request."""
        body, _ = self._transport.get(f"/resource_providers?{urlencode({'required': SHARES})}")
        with payload.in_form("the providers that share"):
            return frozenset(row[0] for row in payload.decode_listing(body))

    def usages(self, project: str, user: str | None = None) -> dict[str, dict[str, int]]:
        """What a project, or a user of it, uses: consumer type -> class -> amount; "" where no types are told."""
        query = {"project_id": project} | ({"user_id": user} if user else {})
        body, _ = self._transport.get(f"/usages?{urlencode(query)}")
        with payload.in_form(f"the usages of {project}"):
            return payload.decode_usages(body)

    def known_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Those of ``names`` that placement has; one request per hundred."""
        wanted = sorted(names)
        known: set[str] = set()
        for start in range(0, len(wanted), NAMES_PER_QUERY):
            query = urlencode({"name": "in:" + ",".join(wanted[start : start + NAMES_PER_QUERY])})
            body, _ = self._transport.get(f"/traits?{query}")
            with payload.in_form("its traits"):
                known |= payload.decode_names(body, "traits")
        return frozenset(known)

    def execute(self, plan: Plan, observed: ObservedTree) -> ObservedTree:
        """
        Carry out a plan that was made from ``observed``; answer what is known to stand afterwards.

        Every write names the generation that the last answer gave, so placement itself refuses it when somebody
        wrote in between. Providers of which the final generation is not known are left out of the answer: the next
        ``observe(since=answer)`` reads them.

        Raises:
            Conflict: observe and plan again.
            Rejected, Unavailable: what was sent before stands, and the next plan goes on from there.
        """
        writer = Writer(self._transport, observed)
        for operation in plan.operations:
            writer.write(operation)
        return writer.outcome

    def may_reshape(self) -> bool:
        """Whether the role allows the reshaper: an empty body is malformed with the role, forbidden without."""
        try:
            self._transport.send("POST", "/reshaper", {})
        except Forbidden:
            return False
        except Rejected:
            return True
        raise Unavailable("placement took an empty reshape, which none known does")

    def may_write(self) -> bool:
        """Whether the role allows writes: a provider without a name is malformed with the role, forbidden without."""
        try:
            self._transport.send("POST", "/resource_providers", {})
        except Forbidden:
            return False
        except Rejected:
            return True
        raise Unavailable("placement took a provider without a name, which none known does")

    def _observe_one(
        self, uuid: str, name: str, parent: str | None, generation: int, known: ObservedProvider | None
    ) -> ObservedProvider:
        if known and known.generation == generation:
            if (known.name, known.provider.parent) == (name, parent):
                return known
            return replace(known, provider=replace(known.provider, name=name, parent=parent))
        base = f"/resource_providers/{uuid}"
        try:
            stock, traits, aggregates = (
                self._transport.get(f"{base}/{aspect}")[0] for aspect in ("inventories", "traits", "aggregates")
            )
        except Absent as error:
            raise Conflict(f"provider {name} went away while it was read: {error}") from error
        with payload.in_form(f"provider {name}"):
            provider = Provider(
                name=name,
                parent=parent,
                inventories=payload.decode_inventories(stock),
                traits=payload.decode_names(traits, "traits"),
                aggregates=payload.decode_names(aggregates, "aggregates"),
            )
        # The lowest generation seen: had somebody written in between, the next write or look finds it out.
        return ObservedProvider(uuid=uuid, generation=generation, provider=provider)


def _check_tree(rows: list[tuple[str, str, str | None, int]], root_uuid: str) -> None:
    """
    Believe a listing only if it is one whole tree, and the one that was asked for.

    Raises:
        Unavailable: other roots, or providers without a way to the root: something on the way changed the question.
    """
    roots = [uuid for uuid, _, parent, _ in rows if parent is None]
    if rows and (
        len(roots) != 1 or root_uuid not in {row[0] for row in rows} or len(_from_the_root(rows)) != len(rows)
    ):
        raise Unavailable(
            f"the answer for the tree of {root_uuid} is not that tree ({len(rows)} providers, {len(roots)} roots): "
            f"does something between here and placement drop the query of a request?"
        )


def _is_older(rows: list[tuple[str, str, str | None, int]], modified: str, since: ObservedTree) -> bool:
    """Whether a listing is from before ``since``: a generation went back, or Last-Modified of the same providers."""
    known = since.by_uuid
    if any(uuid in known and generation < known[uuid].generation for uuid, _, _, generation in rows):
        return True
    now, before = parse_date(modified), parse_date(since.last_modified)
    return {row[0] for row in rows} == known.keys() and now is not None and before is not None and now < before


def _from_the_root(rows: list[tuple[str, str, str | None, int]]) -> list[tuple[str, str, str | None, int]]:
    """The rows, parents before children, siblings by name."""
    children: dict[str | None, list[tuple[str, str, str | None, int]]] = {}
    for row in sorted(rows, key=lambda row: row[1]):
        children.setdefault(row[2], []).append(row)
    ordered: list[tuple[str, str, str | None, int]] = []
    waiting = children.get(None, [])[:]
    while waiting:
        row = waiting.pop(0)
        ordered.append(row)
        waiting[:0] = children.get(row[0], [])
    return ordered
