"""Client that reads placement and carries out plans; all writes to placement go through it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from reportclient import payload
from reportclient.allocations import Allocation, Consumer
from reportclient.errors import Absent, Conflict, Forbidden, Rejected, Unavailable
from reportclient.names import SHARES
from reportclient.plan import AllocationWrite, Plan
from reportclient.transport import Transport, parse_date
from reportclient.tree import ObservedProvider, ObservedTree, Provider, Summary, went_back
from reportclient.writer import Writer, write_allocations

T = TypeVar("T")
R = TypeVar("R")
Row = tuple[str, str, str | None, int]  # uuid, name, parent's uuid and generation of a provider in a listing
ASPECTS = ("inventories", "traits", "aggregates")  # of a provider, a request each
NAMES_PER_QUERY = 100  # keeps GET /traits?name=in:... under 8 KiB


class PlacementClient:
    """
    Client of one placement, over one transport.

    ``workers`` is how many requests of one look are under way at a time; results and errors are those of one after the
    other.
    """

    def __init__(self, transport: Transport, workers: int = 1) -> None:
        self.transport = transport
        self._workers = workers
        self.went_back = False  # whether this pass found placement in an older state than the remembered one
        self._latest: dict[str, ObservedProvider] = {}  # read by this pass, which may have to read again at once
        self._listed: dict[str, int] = {}  # generation of each consumer in the last listing of allocations
        self._held: dict[str, tuple[int, tuple[Allocation, ...], dict[str, int]]] = {}  # by provider, at a generation
        self._consumers: dict[str, tuple[Consumer, set[Allocation]]] = {}  # as read, with their allocations here then

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """
        Return the results of ``work`` for each item, in the order of the items, as many at a time as there are workers.

        Items begin in their order. Those that have begun when an error comes to light come to their end.

        Raises:
            as ``work``, for the first item in order that failed; so the error does not depend on which was faster.
        """
        waiting = list(items)
        workers = min(self._workers, len(waiting))
        if workers < 2:
            return list(map(work, waiting))
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(work, waiting))

    def begin(self) -> None:
        """
        Forget all that was read; call it when a pass begins.

        Within a pass, what was read is used again while its generation stays the same. Later that proves nothing: a
        placement that was restored from a backup can reach the same generation again.
        """
        self._latest = {}
        self.went_back = False
        self._listed.clear()
        self._consumers.clear()
        self._held.clear()

    def find(self, name: str) -> str | None:
        """Return the uuid of the provider with exactly this name, None when there is none. One request."""
        rows, _ = self._list(f"the provider named {name}", name=name)
        return next((uuid for uuid, found, _, _ in rows if found == name), None)

    def generations(self, trait: str | None = None, *, uuid: str | None = None) -> dict[str, int]:
        """
        Return the generation of each root that is named by its uuid: of all, of those with a trait, or of one.

        One request, and a second one when placement refuses the trait.

        Raises:
            Unavailable: no complete answer.
        """
        query = {"required": trait} if trait else {"uuid": uuid} if uuid else {}
        try:
            rows, _ = self._list("a list of providers", **query)
        except Rejected:
            if trait and trait not in self.known_traits([trait]):
                return {}  # no provider has a trait that placement does not know
            raise
        return {uuid: generation for uuid, name, parent, generation in rows if name == uuid and parent is None}

    def providers(self, **query: str) -> list[Row]:
        """Return all providers, or those that match a query. One request."""
        rows, _ = self._list("a list of providers", **query)
        return rows

    def tree_of(self, uuid: str) -> dict[str, tuple[str, str | None]]:
        """Return (name, parent's uuid) of all providers in the tree of this one, by uuid; empty: none. One request."""
        rows, _ = self._list(f"the tree of provider {uuid}", in_tree=uuid)
        return {own: (name, parent) for own, name, parent, _ in rows}

    def root(self, uuid: str) -> ObservedProvider | None:
        """Return one provider by its uuid, without its children; None where there is none. One request, or four."""
        rows, _ = self._list(f"the provider {uuid}", uuid=uuid)
        return next((self.read(uuid, name, generation) for _, name, _, generation in rows), None)

    def named(self, name_or_uuid: str) -> ObservedProvider | None:
        """Return one provider by its name or uuid, as ``root``; one request more for a name."""
        try:
            return self.root(str(UUID(name_or_uuid)))
        except ValueError:
            uuid = self.find(name_or_uuid)
        return self.root(uuid) if uuid else None

    def used(self, uuid: str, resource_class: str) -> int:
        """Return how much of a class all consumers have on a provider. One request."""
        body, _ = self.transport.get(f"/resource_providers/{uuid}/usages")
        with payload.in_form(f"the usages of provider {uuid}"):
            return int(body["usages"].get(resource_class, 0))

    def sharing_with(self, aggregates: Collection[str]) -> tuple[ObservedProvider, ...]:
        """
        Return the providers that share their stock with all in one of these aggregates, by name.

        One request, and three for each provider; none where there is no aggregate.
        """
        if not aggregates:
            return ()
        near = f"in:{','.join(sorted(aggregates))}"
        rows, _ = self._list("the providers that share their stock", member_of=near, required=SHARES)
        rows.sort(key=lambda row: row[1])
        return self._read([(uuid, name, None, generation) for uuid, name, _, generation in rows], {})

    def read(self, uuid: str, name: str, generation: int) -> ObservedProvider:
        """Return one root as it stands, without its children. Three requests; errors as ``observe``."""
        return self._read([(uuid, name, None, generation)], {})[0]

    def observe(self, root_uuid: str, since: ObservedTree | None = None, *, whole: bool = False) -> ObservedTree:
        """
        Return the tree under a root. One request when nothing changed since ``since``.

        Providers with another generation than in ``since`` are read again, three requests each. The tree is empty when
        placement has no such root. A listing that is older than ``since`` comes from a cache, or from a restored
        database: then all providers are read again, and the first write finds what is stale by its generation.
        ``whole`` also reads providers with the same generation, except those that this pass has read: so it finds
        another history with the same generations. ``self.went_back`` then shows that placement is in an older state.

        Raises:
            Unavailable: no complete answer; never a shorter tree.
            Conflict: a provider was deleted while the tree was read.
        """
        rows, modified = self._list_tree(root_uuid)
        left = self._without_deleted(since) if since else None
        if left and _is_older(rows, modified, left):
            # An older date alone can come from a server whose clock is behind; reading again gives the same then.
            whole = True
            self._latest.clear()
        known = self._latest | {
            seen.uuid: seen
            for seen in (() if whole else since or ())
            if seen.uuid not in self._latest or seen.generation > self._latest[seen.uuid].generation
        }
        tree = ObservedTree(self._read(_from_the_root(rows), known), modified)
        self.went_back = self.went_back or (left is not None and went_back(left, tree))
        self._latest = tree.by_uuid
        return tree

    def _without_deleted(self, since: ObservedTree) -> ObservedTree:
        """Return the tree without providers that an earlier look of this pass did not find: they were made anew."""
        if not self._latest:
            return since
        return replace(since, providers=tuple(seen for seen in since if seen.uuid in self._latest))

    def glance(self, root_uuid: str, since: ObservedTree) -> ObservedTree:
        """
        Return the tree under a root with its current generations, but with the stock and traits of ``since``.

        For comparing allocations, where stock seldom changes; do not plan from this tree. One request, and three for
        each provider that is not in ``since``, or for each provider when the listing is older than ``since``.

        Raises:
            as ``observe``.
        """
        rows, modified = self._list_tree(root_uuid)
        stands = {} if _is_older(rows, modified, since) else since.by_uuid
        known = {uuid: replace(stands[uuid], generation=at) for uuid, _, _, at in rows if uuid in stands}
        return ObservedTree(self._read(_from_the_root(rows), known), modified)

    def allocations(
        self, providers: Iterable[ObservedProvider], *, as_observed: bool = False
    ) -> tuple[Allocation, ...]:
        """
        Return the allocations on these providers. One request each.

        With ``as_observed``, rows that this pass has read at the same generation are used again, until a write ends
        with a ``Conflict``: the deletion of allocations raises no provider's generation.

        Raises:
            Conflict: with ``as_observed``, a provider was written after it was observed.
        """

        def read(observed: ObservedProvider) -> tuple[tuple[Allocation, ...], dict[str, int]]:
            if as_observed and (held := self._held.get(observed.uuid)) and held[0] == observed.generation:
                return held[1:]
            body, _ = self.transport.get(f"/resource_providers/{observed.uuid}/allocations")
            with payload.in_form(f"the allocations on provider {observed.name}"):
                rows = payload.decode_allocations(body, observed.name)
                generation = int(body["resource_provider_generation"])
                listed = {str(uuid): int(one["consumer_generation"]) for uuid, one in body["allocations"].items()}
            if as_observed and generation != observed.generation:
                raise Conflict(f"provider {observed.name} was written while its allocations were read")
            self._held[observed.uuid] = generation, rows, listed
            return rows, listed

        found = self.each(read, providers)
        for _, listed in found:
            self._listed |= listed
        return tuple(row for rows, _ in found for row in rows)

    def consumers(self, uuids: Iterable[str], held: Iterable[Allocation] = ()) -> tuple[Consumer, ...]:
        """
        Return these consumers with all their allocations, here and elsewhere; consumers without any are left out.

        One request for each consumer that was not read before, or that has another generation or other amounts in the
        last answer of ``allocations``, passed as ``held``: so a plan made again after a conflict reads few of them.
        """
        rows: dict[str, set[Allocation]] = {}
        for one in held:
            rows.setdefault(one.consumer, set()).add(one)
        wanted = sorted(set(uuids))

        def read(uuid: str) -> Consumer | None:
            known = self._consumers.get(uuid)
            if known is None or (known[0].generation, known[1]) != (self._listed.get(uuid), rows.get(uuid)):
                consumer = self.consumer(uuid)
                if consumer is None:
                    return None
                known = self._consumers[uuid] = consumer, rows.get(uuid, set())
            return known[0]

        return tuple(one for one in self.each(read, wanted) if one)

    def consumer(self, uuid: str) -> Consumer | None:
        """Return one consumer with all its allocations, as they are now; None when it has none. One request."""
        body, modified = self.transport.get(f"/allocations/{uuid}")
        written = parse_date(modified)
        age_s = self.transport.now() - written.timestamp() + (self.transport.skew_s or 0) if written else None
        with payload.in_form(f"the allocations of consumer {uuid}"):
            return payload.decode_consumer(body, uuid, age_s)

    def sharing(self) -> frozenset[str]:
        """Return the uuids of all providers that share their resources with others, as storage does. One request."""
        rows, _ = self._list("the providers that share resources", required=SHARES)
        return frozenset(row[0] for row in rows)

    def usages(self, project: str, user: str | None = None) -> dict[str, dict[str, int]]:
        """
        Return what a project, or one user of it, uses, by consumer type and class. One request.

        The type is "" where placement reports no types.
        """
        query = {"project_id": project} | ({"user_id": user} if user else {})
        body, _ = self.transport.get(f"/usages?{urlencode(query, errors='replace')}")
        with payload.in_form(f"the usages of project {project}"):
            return payload.decode_usages(body)

    def candidate(self, query: str) -> dict[str, dict[str, int]] | None:
        """
        Return what each provider, by uuid, gives in one candidate for a query; None: there is none. One request.

        Raises:
            Rejected: the query is wrong, or names a class or a trait that placement does not know.
        """
        body, _ = self.transport.get(f"/allocation_candidates?limit=1&{query}")
        with payload.in_form("its allocation candidates"):
            for one in body["allocation_requests"]:
                return {uuid: dict(rows["resources"]) for uuid, rows in one["allocations"].items()}
        return None

    def candidates(self, query: str) -> tuple[list[frozenset[str]], dict[str, dict[str, Summary]]]:
        """Return all candidates for a query, as ``decode_candidates``; errors as ``candidate``. One request."""
        body, _ = self.transport.get(f"/allocation_candidates?{query}")
        with payload.in_form("its allocation candidates"):
            return payload.decode_candidates(body)

    def known_traits(self, names: Iterable[str]) -> frozenset[str]:
        """Return those of ``names`` that placement has as traits. One request per 100 names."""
        wanted = sorted(names)
        known: set[str] = set()
        for start in range(0, len(wanted), NAMES_PER_QUERY):
            query = urlencode({"name": "in:" + ",".join(wanted[start : start + NAMES_PER_QUERY])})
            body, _ = self.transport.get(f"/traits?{query}")
            with payload.in_form("its traits"):
                known |= payload.decode_names(body, "traits")
        return frozenset(known)

    def write_allocations(self, write: AllocationWrite) -> None:
        """
        Write the sets of consumers, whatever tree they are on.

        Raises:
            Conflict: a generation moved, or somebody wrote at the same moment. NoRoom: a provider cannot give it.
            Rejected, Unavailable: as a plan.
        """
        try:
            write_allocations(self.transport, write)
        except Conflict:
            self._held.clear()
            raise

    def execute(self, plan: Plan, observed: ObservedTree) -> ObservedTree:
        """
        Carry out a plan that was made from ``observed``; return the tree as far as it is known afterwards.

        Each write names the generation of the last answer, so placement refuses it after another writer's change.
        Providers whose final generation is unknown are left out: the next ``observe`` with this tree reads them.

        Raises:
            Conflict: observe and plan again.
            Rejected, Unavailable: the earlier requests of the plan took effect; the next plan goes on from there.
        """
        writer = Writer(self.transport, observed)
        try:
            for operation in plan.operations:
                writer.write(operation)
        except Conflict:
            self._held.clear()
            raise
        return writer.outcome

    def may_reshape(self) -> bool:
        """Return whether the user's role allows reshapes."""
        return self._may_post("/reshaper", "an empty reshape")

    def may_write(self) -> bool:
        """Return whether the user's role allows writes."""
        return self._may_post("/resource_providers", "a provider without a name")

    def _may_post(self, path: str, what: str) -> bool:
        """
        Return whether the user's role allows a request; ``what`` it is with an empty body.

        That changes nothing: it is malformed with the role, and forbidden without it.
        """
        try:
            self.transport.send("POST", path, {})
        except Forbidden:
            return False
        except Rejected:
            return True
        raise Unavailable(
            f"placement accepted {what}, which no known placement does: does the endpoint lead to placement?"
        )

    def _list(self, what: str, **query: str) -> tuple[list[Row], str]:
        """Return the providers that match a query, and when the last of them changed; ``what`` names them."""
        body, modified = self.transport.get(f"/resource_providers{'?' if query else ''}{urlencode(query)}")
        with payload.in_form(what):
            return payload.decode_listing(body), modified

    def _list_tree(self, root_uuid: str) -> tuple[list[Row], str]:
        rows, modified = self._list("the tree of a root", in_tree=root_uuid)
        _check_tree(rows, root_uuid)
        return rows, modified

    def _read(self, rows: Sequence[Row], known: Mapping[str, ObservedProvider]) -> tuple[ObservedProvider, ...]:
        """Return the providers of rows; three requests for each that is not ``known`` at its generation."""
        names = {uuid: name for uuid, name, _, _ in rows}
        unread = [uuid for uuid, _, _, at in rows if uuid not in known or known[uuid].generation != at]
        try:
            paths = (f"/resource_providers/{uuid}/{aspect}" for uuid in unread for aspect in ASPECTS)
            bodies = iter([body for body, _ in self.each(self.transport.get, paths)])
        except Absent as error:
            raise Conflict(f"a provider went away while it was read: {error}") from error
        read = dict(zip(unread, zip(bodies, bodies, bodies, strict=True), strict=True))
        found = []
        for uuid, name, parent, generation in rows:
            above = names.get(parent) if parent else None
            if uuid in read:
                provider = _decode(name, above, *read[uuid])
            else:
                provider = replace(known[uuid].provider, name=name, parent=above)
            # The listing's generation is the lowest one: the next write or look finds any change since the listing.
            found.append(ObservedProvider(uuid=uuid, generation=generation, provider=provider))
        return tuple(found)


def _decode(name: str, parent: str | None, stock: Any, traits: Any, aggregates: Any) -> Provider:
    """Return a provider of the answers about its ``ASPECTS``."""
    with payload.in_form(f"provider {name}"):
        return Provider(
            name=name,
            parent=parent,
            inventories=payload.decode_inventories(stock),
            traits=payload.decode_names(traits, "traits"),
            aggregates=payload.decode_names(aggregates, "aggregates"),
        )


def _check_tree(rows: list[Row], root_uuid: str) -> None:
    """
    Check that a listing is one whole tree, and the requested one.

    Raises:
        Unavailable: another root, several roots, or a provider whose ancestors are missing: something between here
            and placement changed the query.
    """
    roots = [uuid for uuid, _, parent, _ in rows if parent is None]
    if rows and (
        len(roots) != 1 or root_uuid not in {row[0] for row in rows} or len(_from_the_root(rows)) != len(rows)
    ):
        raise Unavailable(
            f"placement's answer for the tree of root provider {root_uuid} is not that tree ({len(rows)} "
            f"providers, {len(roots)} roots): does a proxy between this host and placement drop the query of a request?"
        )


def _is_older(rows: list[Row], modified: str, since: ObservedTree) -> bool:
    """Return whether a listing is older than ``since``: by a generation, or by the date if the providers are equal."""
    known = since.by_uuid
    if any(uuid in known and known[uuid].is_after(generation) for uuid, _, _, generation in rows):
        return True
    now, before = parse_date(modified), parse_date(since.last_modified)
    return {row[0] for row in rows} == known.keys() and now is not None and before is not None and now < before


def _from_the_root(rows: list[Row]) -> list[Row]:
    """Return the rows, parents before children, siblings by name; rows whose ancestors are missing are left out."""
    children: dict[str | None, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row[1]):
        children.setdefault(row[2], []).append(row)
    ordered: list[Row] = []
    waiting = children.get(None, [])[:]
    while waiting:
        row = waiting.pop(0)
        ordered.append(row)
        waiting[:0] = children.get(row[0], [])
    return ordered
