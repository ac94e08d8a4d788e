"""Which hosts of a placement are candidates of a request, what the others lack, and the smallest change that helps."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain, combinations, islice
from math import prod

from agent.command.result import Report
from agent.command.wording import alike, columns, counted
from reportclient.client import PlacementClient
from reportclient.errors import Forbidden, Rejected
from reportclient.request import IN_TREE, REQUIRED, RESOURCES, ROOT_REQUIRED, Wish, amount_of, format_request
from reportclient.tree import Summary

COMMON = ("MEMORY_MB", "VCPU", "DISK_GB")  # a host has something left of one of them, as a rule
NONE, ROOM, UNITS, BESIDE = "have none", "have too little free", "give no such amount", "not beside the rest"
HAVE, SILENT, REFUSED, NOT_ASKED = (
    "have it",
    "full, reserved, or without any",
    "placement refuses it",
    "too long to ask for",
)
CUT = (
    "placement cuts its answers ([placement] max_allocation_candidates): more hosts can give it, and what is said of "
    "others is not sure: ask on a host, without --all"
)
_OF_HOSTS = frozenset({"VCPU", "PCPU"})  # a root that has one of them is no storage
MOST = 200_000  # combinations of providers in one query, times its groups: some seconds of placement's time
_TRIES = 60  # queries for a change of fewer wishes than the host that lacks least
_AMOUNTS = 8  # queries for a smaller amount

Wishes = tuple[Wish, ...]
Lacks = tuple[tuple[Wish, str], ...]  # wishes that a host cannot fulfil beside the rest, and why (empty: not known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change of a request with which placement has candidates."""

    without: Wishes
    instead: Mapping[Wish, Wish]  # smaller amounts for some of them
    hosts: tuple[str, ...]  # names
    smallest: bool  # whether no change of fewer wishes finds any

    def __str__(self) -> str:
        """Return what to change, and what placement has then."""
        parts = [f"with {self.instead[one]}" if one in self.instead else f"without {one}" for one in self.without]
        whole = any(one.kind == RESOURCES and one not in self.instead for one in self.without)  # a part might do
        smallest = "the smallest" if self.smallest and not whole else "a"
        found = f"{counted(len(self.hosts), 'host')} can give it: {alike(self.hosts)}"
        return f"{smallest} change that finds a host: {' and '.join(parts)}, {found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCloud:
    """What a placement says of a request, host by host."""

    hosts: int
    candidates: tuple[str, ...] | None  # names of hosts; None: not known
    groups: Mapping[Lacks, tuple[str, ...]] = field(default_factory=dict)  # names of the other hosts, by what they lack
    change: Remedy | None = None  # None: there are candidates, or no part of the request finds any
    refusal: str = ""  # why the answer is not whole; empty: it is

    def counts(self) -> dict[Wish, Counter[str]]:
        """Return how many hosts lack each wish, by reason; the wish of most hosts first."""
        found: dict[Wish, Counter[str]] = {}
        for lacks, names in self.groups.items():
            for wish, why in lacks:
                found.setdefault(wish, Counter())[why] += len(names)
        return dict(sorted(found.items(), key=lambda one: -one[1].total()))

    def report(self, *, each: bool) -> Report:
        """Return it for people and programs; ``each``: with a line for each host."""
        return Report(
            data={
                "hosts": self.hosts,
                "candidates": self.candidates,
                "refusal": self.refusal,
                "wishes": [{"wish": str(wish), "hosts": dict(whys)} for wish, whys in self.counts().items()],
                "groups": [
                    {"missing": [{"wish": str(wish), "why": why} for wish, why in lacks], "hosts": names}
                    for lacks, names in self.groups.items()
                ],
                "change": self.change
                and {
                    "without": [*map(str, self.change.without)],
                    "instead": [*map(str, self.change.instead.values())],
                    "hosts": self.change.hosts,
                    "smallest": self.change.smallest,
                },
            },
            lines=self._lines(each=each),
        )

    def _lines(self, *, each: bool) -> Iterator[str]:
        known, hosts = self.candidates, counted(self.hosts, "host")
        named = f": {alike(known)}" if known else ""
        yield f"{'it is not known which' if known is None else len(known)} of {hosts} can give all of it{named}"
        if self.refusal:
            yield self.refusal
        yield from columns(
            ((str(whys.total()), str(wish), _reasons(whys)) for wish, whys in self.counts().items()),
            heads=("HOSTS", "LACK", "WHY"),
            indent="  ",
        )
        if len(self.groups) > (0 if each else 1):
            yield "by all that a host lacks:"
            rows = [
                (name if each else str(len(names)), " ".join(map(str, lacks)), "" if each else alike(sorted(names)))
                for lacks, names in self._by_wishes().items()
                for name in (sorted(names) if each else [""])
            ]
            heads = ("HOST", "LACKS", "") if each else ("HOSTS", "LACK", "WHICH")
            yield from columns(rows, heads=heads, indent="  ")
        if self.change:
            yield str(self.change)

    def _by_wishes(self) -> dict[Wishes, list[str]]:
        found: dict[Wishes, list[str]] = {}
        for lacks, names in self.groups.items():
            found.setdefault(tuple(wish for wish, _ in lacks), []).extend(names)
        return found


def _reasons(whys: Mapping[str, int]) -> str:
    """Return the known reasons, each with the number of its hosts unless it is the only one."""
    return ", ".join(f"{number} {why}" if len(whys) > 1 else why for why, number in whys.items() if why)


@dataclass(frozen=True, slots=True)
class Answer:
    """Which hosts have candidates for some wishes, or why that is not known."""

    hosts: frozenset[str]  # uuids of roots; a provider that only shares with hosts is none
    why: str = ""  # REFUSED or NOT_ASKED; empty: placement answered
    refusal: str = ""  # the whole of the reason


class Cloud:
    """Placement's answers about all its hosts, each query once."""

    def __init__(self, client: PlacementClient) -> None:
        self._client = client
        rows = {uuid: (name, parent) for uuid, name, parent, _ in client.providers()}
        self._roots = {uuid: _root_of(uuid, rows) for uuid in rows}
        self._sharing = {
            uuid: one
            for uuid, one in ((uuid, client.root(uuid)) for uuid in client.sharing())
            if one and not (_OF_HOSTS & one.provider.inventories.keys())
        }
        self._near: dict[str, frozenset[str]] = {}  # hosts, by the provider that shares with them
        self.shared = frozenset().union(*(one.provider.inventories for one in self._sharing.values()))  # classes
        roots = {*self._roots.values()} - self._sharing.keys()
        self.names = {uuid: rows[uuid][0] for uuid in roots}
        self.trees: dict[str, Mapping[str, Summary]] = {}  # providers by uuid, by root; of hosts that were in an answer
        self._answers: dict[str, Answer] = {}  # by query, or by a wish for a trait alone
        self._counts: dict[str, int] = {}  # of candidates, by query

    def learn(self, classes: Iterable[str]) -> None:
        """Read the trees of the hosts that have something left of one of these classes, until all are known."""
        for name in classes:
            if self.names.keys() - self.trees.keys():
                self.ask([Wish(RESOURCES, "", f"{name}:1")])

    def ask(self, wishes: Sequence[Wish]) -> Answer:
        """
        Return the hosts that have candidates for some wishes; all for wishes that ask for no resources.

        Raises:
            Forbidden: the user may not ask. Unavailable: no complete answer.
        """
        query = format_request(wishes)
        if not query:
            return Answer(frozenset(self.names))
        if query not in self._answers:
            self._answers[query] = self._send(query, wishes)
        return self._answers[query]

    def _send(self, query: str, wishes: Sequence[Wish]) -> Answer:
        if (number := self._combinations(wishes)) * groups_of(wishes) > MOST:
            text = f"placement would compare {number} combinations of providers: ask on one host, without --all"
            return Answer(frozenset(), NOT_ASKED, text)
        try:
            candidates, trees = self._client.candidates(query)
        except Forbidden:
            raise
        except Rejected as error:
            return Answer(frozenset(), REFUSED, f"placement refuses it: {error}")
        self._counts[query] = len(candidates)
        self.trees |= {root: trees[root] for root in trees.keys() & self.names.keys()}
        found: set[str] = set()
        for roots in candidates:
            own = roots & self.names.keys()
            found |= own or {host for one in roots & self._sharing.keys() for host in self._hosts_near(one)}
        return Answer(frozenset(found))

    def _hosts_near(self, sharing: str) -> frozenset[str]:
        """Return the hosts with which a provider shares: those with any provider in one of its aggregates."""
        aggregates = self._sharing[sharing].provider.aggregates
        if sharing not in self._near:
            near = self._client.providers(member_of=f"in:{','.join(sorted(aggregates))}") if aggregates else []
            self._near[sharing] = frozenset(self._roots.get(uuid, uuid) for uuid, *_ in near) & self.names.keys()
        return self._near[sharing]

    def asks_of_hosts(self, wishes: Iterable[Wish]) -> bool:
        """Return whether wishes ask for anything that no other provider shares."""
        return any(one.kind == RESOURCES and one.names.isdisjoint(self.shared) for one in wishes)

    def ask_beside(self, kept: Wishes, wish: Wish) -> Answer:
        """
        Return the hosts that can give a wish beside those that they gave before.

        What storage shares has not the traits of a host, and a host that is full is in no answer: beside that alone,
        traits are judged by the providers that have them.
        """
        if self.asks_of_hosts((*kept, wish)):
            return self.ask((*kept, wish))
        if wish.kind == RESOURCES:
            return self.ask([one for one in (*kept, wish) if one.kind == RESOURCES])
        if wish.kind == ROOT_REQUIRED or (wish.kind == REQUIRED and not wish.unwanted):
            return self._by_traits(wish)
        return Answer(frozenset(self.names))

    def _by_traits(self, wish: Wish) -> Answer:
        """
        Return the hosts of which a provider, or the root, has a trait, whatever they have left.

        Raises:
            Forbidden: the user may not ask. Unavailable: no complete answer.
        """
        if str(wish) not in self._answers:
            self._answers[str(wish)] = self._having(wish)
        return self._answers[str(wish)]

    def _having(self, wish: Wish) -> Answer:
        try:
            having = {uuid for uuid, *_ in self._client.providers(required=wish.value.removeprefix("!"))}
        except Forbidden:
            raise
        except Rejected as error:
            return Answer(frozenset(), REFUSED, f"placement refuses it: {error}")
        if wish.kind == ROOT_REQUIRED:
            return Answer(frozenset(root for root in self.names if (root in having) is not wish.unwanted))
        return Answer(frozenset(self._roots.get(uuid, uuid) for uuid in having) & self.names.keys())

    def is_cut(self, wishes: Wishes, roots: Sequence[str]) -> bool:
        """
        Return whether placement has one of these hosts as a candidate if it is asked about that one alone.

        An answer that is shorter than another one is whole. Of many hosts those at equal distances are asked about.
        """
        groups = [one.group for one in wishes if self.asks_of_hosts([one])]
        if not groups or any(one.kind == IN_TREE for one in wishes):
            return False
        if self._counts.get(format_request(wishes), 0) < max(self._counts.values(), default=0):
            return False
        asked = roots[:: max(1, -(-len(roots) // _TRIES))]
        return any(self.ask((*wishes, Wish(IN_TREE, groups[0], root))).hosts for root in asked)

    def _combinations(self, wishes: Sequence[Wish]) -> int:
        """Return how many combinations of providers placement compares on all hosts."""
        groups = {one.group for one in wishes if one.kind == RESOURCES}
        asked = [[one for one in wishes if one.group == group] for group in groups - {""}]
        asked += [[one] for one in wishes if one.kind == RESOURCES and not one.group]
        return sum(
            prod(sum(_fits(one, part) for one in tree.values()) for part in asked) for tree in self.trees.values()
        )

    def why(self, root: str, wish: Wish) -> str:
        """Return why a host lacks a wish; empty: its tree does not tell."""
        tree = self.trees.get(root, {})
        if wish.kind == REQUIRED and not wish.unwanted:
            return BESIDE if any(wish.names & one.traits for one in tree.values()) else NONE
        if wish.kind == ROOT_REQUIRED:
            return HAVE if wish.unwanted else NONE
        if wish.kind != RESOURCES:
            return ""
        if not tree:
            return SILENT  # it was in no answer
        free = free_of(tree, wish)
        if not free or max(free) < amount_of(wish):
            return ROOM if free else NONE
        return BESIDE if root in self.ask([wish]).hosts else UNITS


def _root_of(uuid: str, rows: Mapping[str, tuple[str, str | None]]) -> str:
    """Return the root above a provider, by name and parent of each; itself where its parents are not listed."""
    while (parent := rows[uuid][1]) in rows and parent is not None:
        uuid = parent
    return uuid


def groups_of(wishes: Iterable[Wish]) -> int:
    """Return how many groups of a request ask for resources."""
    return len({one.group for one in wishes if one.kind == RESOURCES})


def free_of(tree: Mapping[str, Summary], wish: Wish) -> list[int]:
    """Return what each provider that has the class of a wish has left of it."""
    (name,) = wish.names
    return [one.free[name] for one in tree.values() if name in one.free]


def _fits(one: Summary, wishes: Iterable[Wish]) -> bool:
    return all(
        wish.names <= one.free.keys() if wish.kind == RESOURCES else wish.agrees_with(one.traits)
        for wish in wishes
        if wish.kind in (RESOURCES, REQUIRED)
    )


def ask_all(client: PlacementClient, wishes: Wishes) -> WholeCloud:
    """
    Ask placement which of all its hosts are candidates of a request, and which parts of it the others lack.

    Raises:
        Forbidden: the user may not ask. Unavailable: no complete answer of placement.
    """
    cloud = Cloud(client)
    cloud.learn(dict.fromkeys([*COMMON, *(min(one.names) for one in wishes if one.kind == RESOURCES)]))
    answer = cloud.ask(wishes)
    lacking = split(cloud, wishes, cloud.names.keys() - answer.hosts)
    groups: dict[Lacks, list[str]] = {}
    for root in sorted(lacking, key=cloud.names.__getitem__):
        groups.setdefault(lacking[root], []).append(root)
    is_cut = cloud.is_cut(wishes, [root for roots in groups.values() for root in roots])
    known = not (is_cut or answer.why == NOT_ASKED)
    return WholeCloud(
        hosts=len(cloud.names),
        candidates=None if answer.why == NOT_ASKED else _named(cloud, answer.hosts),
        groups={
            lacks: _named(cloud, groups[lacks])
            for lacks in sorted(groups, key=lambda one: (len(one), -len(groups[one])))
        },
        change=smallest(cloud, wishes, lacking.values()) if known and not answer.hosts else None,
        refusal=CUT if is_cut else answer.refusal,
    )


def _named(cloud: Cloud, roots: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(cloud.names.__getitem__, roots)))


def split(cloud: Cloud, wishes: Wishes, hosts: Set[str]) -> dict[str, Lacks]:
    """
    Return what each of these hosts lacks: the wishes without which it is a candidate, in their order.

    Wish after wish, hosts that can give it beside what they gave before part from those that cannot.
    """
    found: dict[str, Lacks] = {}
    waiting: list[tuple[Set[str], Wishes, Wishes, Lacks]] = [(hosts, (), wishes, ())]
    while waiting:
        group, kept, untried, lacks = waiting.pop()
        if not untried:
            found |= {root: tuple((one, why or cloud.why(root, one)) for one, why in lacks) for root in group}
            continue
        wish, rest = untried[0], untried[1:]
        answer = cloud.ask_beside(kept, wish)
        if having := group & answer.hosts:
            waiting.append((having, (*kept, wish), rest, lacks))
        if lacking := group - answer.hosts:
            waiting.append((lacking, kept, rest, (*lacks, (wish, answer.why))))
    return found


def smallest(cloud: Cloud, wishes: Wishes, lacking: Iterable[Lacks]) -> Remedy | None:
    """Return the change of fewest wishes that finds a host, as placement says; None: none does."""
    lists = [tuple(wish for wish, _ in lacks) for lacks in lacking]
    without = min([one for one in lists if _left(cloud, wishes, one)] or lists, key=len, default=())
    nobodys = tuple(one for one in wishes if one.kind == RESOURCES and not cloud.ask([one]).hosts)
    others = [one for one in wishes if one not in nobodys]
    sizes = range(not nobodys, len(without) - len(nobodys))
    smaller = [nobodys + few for few in islice(chain(*(combinations(others, size) for size in sizes)), _TRIES + 1)]
    sure = len(smaller) <= _TRIES
    for few in smaller[:_TRIES]:
        answer = cloud.ask(_left(cloud, wishes, few))
        sure &= answer.why != NOT_ASKED
        if answer.hosts and _left(cloud, wishes, few):
            without = few
            break
    left = tuple(one for one in wishes if one not in without)
    instead = _less(cloud, left, without)
    changed = (*left, *instead.values())
    hosts = cloud.ask(changed).hosts if cloud.asks_of_hosts(changed) else ()
    return Remedy(without=without, instead=instead, hosts=_named(cloud, hosts), smallest=sure) if hosts else None


def _left(cloud: Cloud, wishes: Wishes, without: Wishes) -> Wishes:
    """Return the wishes without some; none where nothing is left to ask of a host."""
    left = tuple(one for one in wishes if one not in without)
    return left if cloud.asks_of_hosts(left) else ()


def _less(cloud: Cloud, left: Wishes, without: Wishes) -> dict[Wish, Wish]:
    """Return smaller amounts of the wishes left out with which placement still finds a host, where there are any."""
    found: dict[Wish, Wish] = {}
    for wish in (one for one in without if one.kind == RESOURCES):
        kept = (*left, *found.values())
        hosts = cloud.ask(kept).hosts if cloud.asks_of_hosts(kept) else cloud.names
        trees = [cloud.trees.get(root, {}) for root in hosts]
        free = {free for tree in trees for free in free_of(tree, wish) if free > 0}
        amounts = sorted((amount for amount in free if amount < amount_of(wish)), reverse=True)
        smaller = [replace(wish, value=f"{min(wish.names)}:{amount}") for amount in amounts[:_AMOUNTS]]
        less = next((one for one in smaller if cloud.ask((*kept, one)).hosts), None)
        if less := less or _by_halves(cloud, kept, wish, min(amount_of(wish), max(free, default=0) + 1)):
            found[wish] = less
    return found


def _by_halves(cloud: Cloud, kept: Wishes, wish: Wish, most: int) -> Wish | None:
    """Return an amount of a wish below ``most`` with which placement finds a host, by halves: units have limits too."""
    few, found = 0, None
    while few + 1 < most:
        amount = (few + most) // 2
        less = replace(wish, value=f"{min(wish.names)}:{amount}")
        few, most, found = (amount, most, less) if cloud.ask((*kept, less)).hosts else (few, amount, found)
    return found
