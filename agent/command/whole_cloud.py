"""Which hosts of a placement are candidates of a request, what the others lack, and the smallest change that helps."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod

from agent.command.result import Report
from agent.command.wording import alike, columns, counted
from reportclient.client import PlacementClient
from reportclient.errors import Forbidden, Rejected
from reportclient.request import REQUIRED, RESOURCES, Wish, amount_of, format_request
from reportclient.tree import Offer

COMMON = ("MEMORY_MB", "VCPU", "DISK_GB")  # a host has something left of one of them, as a rule
NONE, ROOM, FULL, UNITS = "have none", "have too little free", "have none free", "give no such amount"
BESIDE, REFUSED, NOT_ASKED = "not beside the rest", "placement refuses it", "too long to ask for"
_MOST = 200_000  # combinations of providers in one query: some seconds of placement's time
_TRIES = 60  # queries for a change of fewer wishes than the host that lacks least
_AMOUNTS = 8  # queries for a smaller amount

Wishes = tuple[Wish, ...]
Lacks = tuple[tuple[Wish, str], ...]  # wishes that a host cannot fulfil beside the rest, and why (empty: not known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a request with which placement has candidates."""

    without: Wishes
    instead: Mapping[Wish, Wish]  # smaller amounts for some of them
    hosts: tuple[str, ...]  # names
    smallest: bool  # whether no change of fewer wishes finds any

    def __str__(self) -> str:
        """Return what to change, and what placement has then."""
        parts = [f"with {self.instead[one]}" if one in self.instead else f"without {one}" for one in self.without]
        smallest = "the smallest" if self.smallest else "a"
        found = f"{counted(len(self.hosts), 'host')} can give it: {alike(self.hosts)}"
        return f"{smallest} change that finds a host: {' and '.join(parts)}, {found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCloud:
    """What a placement says of a request, host by host."""

    hosts: int
    candidates: tuple[str, ...]  # names of hosts
    groups: Mapping[Lacks, tuple[str, ...]] = field(default_factory=dict)  # names of the other hosts, by what they lack
    change: Change | None = None  # None: there are candidates, or no part of the request finds any
    refusal: str = ""  # why placement refuses the request, or was not asked; empty: it answered

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
        named = f": {alike(self.candidates)}" if self.candidates else ""
        yield f"{len(self.candidates)} of {counted(self.hosts, 'host')} can give all of it{named}"
        if self.refusal:
            yield f"placement did not answer all of it: {self.refusal}"
        yield from columns(
            ((str(whys.total()), str(wish), _reasons(whys)) for wish, whys in self.counts().items()),
            heads=("HOSTS", "LACK", "WHY"),
            indent="  ",
        )
        if each or len(self.groups) > 1:
            yield "by all that a host lacks:"
            rows = [
                (str(len(names)), " ".join(map(str, lacks)), name)
                for lacks, names in self._by_wishes().items()
                for name in (sorted(names) if each else [alike(sorted(names))])
            ]
            yield from columns(rows, heads=("HOSTS", "LACK", "WHICH"), indent="  ")
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
        self._sharing = client.sharing()
        self.names = {uuid: name for uuid, name in client.roots().items() if uuid not in self._sharing}
        self.trees: dict[str, Mapping[str, Offer]] = {}  # providers by uuid, by root; of hosts that were in an answer
        self._answers: dict[str, Answer] = {}

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
        if (number := self._combinations(wishes)) > _MOST:
            text = f"not asked, as it would compare {number} combinations of providers: ask on one host, without --all"
            return Answer(frozenset(), NOT_ASKED, text)
        try:
            candidates, trees = self._client.candidates(query)
        except Forbidden:
            raise
        except Rejected as error:
            return Answer(frozenset(), REFUSED, str(error))
        self.trees |= {root: trees[root] for root in trees.keys() - self._sharing}
        return Answer(frozenset().union(*candidates) - self._sharing)

    def _combinations(self, wishes: Sequence[Wish]) -> int:
        """Return how many combinations of providers placement compares on all hosts for groups with a suffix."""
        groups = {one.group for one in wishes if one.kind == RESOURCES} - {""}
        asked = [[one for one in wishes if one.group == group] for group in groups]
        return sum(
            prod(sum(_fits(one, group) for one in tree.values()) for group in asked) for tree in self.trees.values()
        )

    def why(self, root: str, wish: Wish) -> str:
        """Return why a host lacks a wish; empty: its tree does not tell."""
        tree = self.trees.get(root, {})
        if wish.kind == REQUIRED and tree and not wish.unwanted:
            return BESIDE if any(wish.names & one.traits for one in tree.values()) else NONE
        if wish.kind != RESOURCES:
            return ""
        if not tree:
            return FULL  # else ``learn`` would have found it
        free = free_of(tree, wish)
        if not free or max(free) < amount_of(wish):
            return ROOM if free else NONE
        return BESIDE if root in self.ask([wish]).hosts else UNITS


def free_of(tree: Mapping[str, Offer], wish: Wish) -> list[int]:
    """Return what each provider that has the class of a wish has left of it."""
    (name,) = wish.names
    return [one.free[name] for one in tree.values() if name in one.free]


def _fits(one: Offer, wishes: Iterable[Wish]) -> bool:
    return all(
        wish.names <= one.free.keys() if wish.kind == RESOURCES else wish.names.isdisjoint(one.traits) is wish.unwanted
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
        groups.setdefault(lacking[root], []).append(cloud.names[root])
    return WholeCloud(
        hosts=len(cloud.names),
        candidates=_named(cloud, answer.hosts),
        groups={lacks: tuple(groups[lacks]) for lacks in sorted(groups, key=lambda one: (len(one), -len(groups[one])))},
        change=None if answer.hosts else smallest(cloud, wishes, lacking.values()),
        refusal=answer.refusal,
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
        answer = cloud.ask((*kept, wish))
        if having := group & answer.hosts:
            waiting.append((having, (*kept, wish), rest, lacks))
        if lacking := group - answer.hosts:
            waiting.append((lacking, kept, rest, (*lacks, (wish, answer.why))))
    return found


def smallest(cloud: Cloud, wishes: Wishes, lacking: Iterable[Lacks]) -> Change | None:
    """Return the change of fewest wishes that finds a host, as placement says; None: none does."""
    lists = (tuple(wish for wish, _ in lacks) for lacks in lacking)
    without = min((one for one in lists if _left(wishes, one)), key=len, default=())
    nobodys = tuple(one for one in wishes if one.kind == RESOURCES and not cloud.ask([one]).hosts)
    others = [one for one in wishes if one not in nobodys]
    more = len(without) - len(nobodys)
    smaller = [nobodys + few for size in range(not nobodys, more) for few in combinations(others, size)]
    sure = len(smaller) <= _TRIES
    for few in smaller[:_TRIES]:
        answer = cloud.ask(_left(wishes, few))
        sure &= answer.why != NOT_ASKED
        if answer.hosts and _left(wishes, few):
            without = few
            break
    left = _left(wishes, without)
    instead = _less(cloud, left, without)
    hosts = cloud.ask((*left, *instead.values())).hosts if left else ()
    return Change(without=without, instead=instead, hosts=_named(cloud, hosts), smallest=sure) if hosts else None


def _left(wishes: Wishes, without: Wishes) -> Wishes:
    """Return the wishes without some; none where no resources are left to ask for."""
    left = tuple(one for one in wishes if one not in without)
    return left if any(one.kind == RESOURCES for one in left) else ()


def _less(cloud: Cloud, left: Wishes, without: Wishes) -> dict[Wish, Wish]:
    """Return smaller amounts of the wishes left out with which placement still finds a host, where there are any."""
    found: dict[Wish, Wish] = {}
    for wish in (one for one in without if one.kind == RESOURCES):
        kept = (*left, *found.values())
        trees = [cloud.trees.get(root, {}) for root in cloud.ask(kept).hosts]
        free = {free for tree in trees for free in free_of(tree, wish) if 0 < free < amount_of(wish)}
        smaller = [replace(wish, value=f"{min(wish.names)}:{amount}") for amount in sorted(free, reverse=True)]
        if less := next((one for one in smaller[:_AMOUNTS] if cloud.ask((*kept, one)).hosts), None):
            found[wish] = less
    return found
