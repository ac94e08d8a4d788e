"""The verb ``explain``: why an inventory or a trait is reported, by fact and rule, or why a host is no candidate."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from agent.command.candidacy import Givers, Missing, bind, combinations, is_sure, missing
from agent.command.result import Report, choice_of, open_host, placement_of, settings_of
from agent.command.whole_cloud import MOST, ask_all, groups_of
from agent.command.wording import counted, written_amounts
from agent.connect.choice import Choice, open_client, open_driver, open_nova, read_host
from agent.errors import ConfigError
from agent.nova.aliases import parse_aliases, without_rule
from agent.nova.client import NovaSilent
from agent.nova.flavors import NovaRequest, request_of
from agent.settings.read import Settings
from agent.state.identity import planned_identity
from agent.sync.decide.additions import add
from agent.sync.decide.features.hold import ON_HOLD
from agent.sync.decide.features.shared_disk import DISK
from agent.sync.decide.owner import NOVA_COMPUTE
from agent.sync.json_form import Form
from agent.sync.node import conditions_left
from agent.sync.outcome import Condition
from agent.sync.provider_yaml import read_additions
from agent.sync.request_file import read_request
from drivers.devices.inventories import libvirt_name
from drivers.devices.odd import odd_sentence
from drivers.facts import HostFacts
from drivers.libvirt.absent import why_absent
from drivers.libvirt.shape import shape, without_undecided
from drivers.reasons import Explained, Reason, Reasoned
from reportclient.allocations import usages
from reportclient.client import PlacementClient
from reportclient.errors import Forbidden, Rejected, few
from reportclient.names import spelled
from reportclient.ownership import Names, set_on
from reportclient.request import RESOURCES, Wish, format_request, parse_request
from reportclient.room import room_for
from reportclient.tree import Inventory, ObservedTree

GIVEN = Reason("a mark of this agent stands beside it in placement", "this agent set it, for the reason below")
FILES = Reason("the operator's files", "a file below [compute] provider_config_location")
UNTOLD = "not known, as other providers share with this host what the request asks for"
_MOST_OF_ONE = 4096  # combinations of providers in a query about one host: about a second of placement's time


def explain(options: argparse.Namespace) -> Report:
    """Report why one provider has its classes and traits, or with --request why a host is no candidate."""
    if bool(options.name) is bool(options.request or options.flavor):
        raise ConfigError("explain needs either the name of a provider, or --request FILE, or --flavor NAME")
    if options.name:
        return _explain_provider(options)
    asked = _of_flavor(options) if options.flavor else None
    wishes = parse_request(asked.query) if asked else read_request(options.request)
    if options.all:
        report = ask_all(placement_of(options)[0], wishes).report(each=options.each)
    else:
        with open_host(options) as one:
            explained = explain_request(one.client, one.name, wishes)
            standing = None if explained.candidate else one.client.find(one.name)
            said = conditions_left(one.settings, standing, one.where) if standing else ()
            held = dict.fromkeys(each.text for each in said if each.kind == ON_HOLD)  # of a whole host once
            report = replace(explained.report, remarks=[*held])
    if asked is None:
        return report
    data = {**report.data, "query": asked.query, "notes": asked.notes}
    remarks = (*asked.notes, *report.remarks)
    return replace(report, data=data, lines=(f"asked: {asked.query}", *report.lines), remarks=remarks)


def _of_flavor(options: argparse.Namespace) -> NovaRequest:
    """
    Return what nova asks for with the flavor and the image that the options name.

    Raises:
        ConfigError: nova is not configured, does not answer, or has no such flavor or image; or an alias of it cannot
            be read, or placement would refuse what nova asks.
    """
    nova = open_nova(settings_of(options), choice_of(options))
    if nova is None:
        raise ConfigError(
            "--flavor asks nova for the flavor: set a login in [nova]; docs/allocations.md has its rights"
        )
    try:
        flavor = nova.flavor(options.flavor)
        image = nova.image(options.image) if options.image else {}
    except NovaSilent as error:
        raise ConfigError(str(error)) from error
    if flavor is None or image is None:
        what = f"flavor {options.flavor}" if flavor is None else f"image {options.image}"
        raise ConfigError(f"{nova.where} shows no {what}: see openstack {what.partition(' ')[0]} list --all")
    settings = settings_of(options)
    try:
        aliases = parse_aliases(settings.apis.aliases)
        asked = request_of(flavor, image, aliases)
    except ValueError as error:
        raise ConfigError(f"flavor {options.flavor}: {error}") from error
    try:
        parse_request(asked.query)
    except ValueError as error:
        raise ConfigError(
            f"flavor {options.flavor}: placement refuses what nova asks ({asked.query}): {error}"
        ) from error
    unruled = () if options.all else without_rule(flavor.extra_specs, aliases, settings.policy.devices.rules)
    return replace(asked, notes=(*asked.notes, *unruled))


def _explain_provider(options: argparse.Namespace) -> Report:
    """
    Explain all classes and traits of one provider of the chosen host, or only ``options.what``.

    Raises:
        ConfigError: the host reports no such provider (with the cause where its device is undecided), or the provider
            lacks that class or trait. Else as a survey.
    """
    choice, settings, name, what = choice_of(options), settings_of(options), options.name, options.what
    with open_driver(settings, choice) as driver:
        node, survey = read_host(driver, choice)
        asked = choice.embedded or settings.apis.placement_chosen
        observed, conditions = _standing(settings, choice, node) if asked else (None, ())
        facts = without_undecided(survey.facts, settings.policy, observed)
        shaped = shape(facts, settings.policy, observed)
        provider = find(shaped, name)
        if provider is None:
            why = odd_sentence(facts, name) or _kept(observed, conditions, name) or _told(shaped, name)
            raise ConfigError(f"this host reports no provider {name}: {why}")
        additions = read_additions(settings.operator_files.folder, required=settings.operator_files.named)
        _, added = add(shaped.tree, planned_identity(node), additions, observed=observed or ObservedTree())
        stands = observed.by_name.get(provider.name) if observed else None
        given = set_on(stands) if stands else frozenset[str]()
        found = [
            {
                **one,
                "in_placement": stands.provider.inventories.get(one["name"]) if stands else None,
                "is_absent": bool(stands and one["inventory"] and one["name"] not in stands.provider.inventories),
            }
            for one in explain_stock(provider, added.get(provider.name, Names()), given, what)
        ]
        if not found:
            raise ConfigError(f"{provider.name} has no {what}: {_why_none(settings, shaped, facts, what)}")
        data: Form = {
            "provider": provider.name,
            "parent": provider.parent,  # None for a root
            "left_to": NOVA_COMPUTE if _is_left_to_nova(settings, shaped, provider) else None,  # None: we report it
            "counted_in": node if provider in shaped.counted_in else None,  # reports its inventory, in the layout flat
            "reasons": found,
            "conditions": [
                one for one in conditions if one.provider == provider.name or not (one.provider or provider.parent)
            ],
        }
    return Report(data=data, lines=_lines(data), remarks=() if provider.parent else survey.facts.disk_unread)


def _why_none(settings: Settings, shaped: Explained, facts: HostFacts, what: str) -> str:
    """Return why a provider lacks a class or a trait: another has it, or what it would come from is missing."""
    every = (*shaped.providers, *shaped.counted_in)
    if having := [one.name for one in every if what in one.inventories or what in one.traits]:
        return f"it is on {few(having)}"
    if what == DISK and settings.policy.disk.shared:
        return "by [agent] shared_disk the storage's own provider has it: openstack resource provider list"
    if what == DISK and facts.disk_unread:
        return facts.disk_unread[0]
    return why_absent(facts, settings.policy, what)


def _lines(data: Form) -> Iterator[str]:
    """Yield each class and trait of a provider with its fact and its rule."""
    under = f" under {data['parent']}" if data["parent"] else ""
    home = data["counted_in"]
    counted = f"; its inventory is reported on {home} ([compute] layout = flat)" if home else ""
    left = f"; {data['left_to']} reports it" if data["left_to"] else ""
    yield f"{data['provider']}{under}{counted}{left}"
    for one in data["reasons"]:
        stock, stands = one["inventory"], one["in_placement"]
        yield f"  {one['name']}{f': {_told_stock(stock)}' if stock else ''}"
        if stands and not (stock and stands.equals(stock)):
            yield f"    in placement: {_told_stock(stands)}"
        if one["is_absent"]:
            yield "    in placement: this provider has none: compute-node-agent plan says whether a pass adds it"
        yield from (f"    fact: {one['fact']}", f"    rule: {one['rule']}")
    yield from (f"  {condition.text}" for condition in data["conditions"])


def _told_stock(stock: Inventory) -> str:
    limits = {
        f", at most {stock.max_unit} to one consumer": stock.max_unit < stock.total,
        f", at least {stock.min_unit}": stock.min_unit > 1,
        f", in steps of {stock.step_size}": stock.step_size > 1,
    }
    some = "".join(text for text, counts in limits.items() if counts)
    return f"total {stock.total}, reserved {stock.reserved}, ratio {stock.allocation_ratio:g}{some}"


def _kept(observed: ObservedTree | None, conditions: Iterable[Condition], name: str) -> str:
    """Return why placement has a provider that this host does not report; empty: it has none of this name."""
    root = observed.root.name if observed and observed.root else ""
    for seen in observed or ():
        if _is_called(name, seen.name, root):
            said = [one.text for one in conditions if one.provider == seen.name]
            return f"placement has it: {'; '.join(said) or 'compute-node-agent plan says what becomes of it'}"
    return ""


def _told(shaped: Explained, name: str) -> str:
    """Return which providers there are, and that a class comes after its provider."""
    known = [provider.name for provider in (*shaped.providers, *shaped.counted_in)]
    hint = f" (a class comes after its provider: explain {known[0]} {name})" if name.isupper() else ""
    return f"it reports {', '.join(known[:20])}{hint}"


def find(shaped: Explained, name: str) -> Reasoned | None:
    """Find a provider by its name, by its suffix, or by the address of its device; None: there is no such provider."""
    every = (*shaped.providers, *shaped.counted_in)
    return next((one for one in every if _is_called(name, one.name, every[0].name)), None)


def _is_called(name: str, provider: str, root: str) -> bool:
    """Return whether a person means a provider by its name, by its suffix, or by the address of its device."""
    suffix = provider.removeprefix(f"{root}_")
    return spelled(name) in (provider, suffix) or suffix == libvirt_name(name.lower())


def explain_stock(provider: Reasoned, added: Names, given: frozenset[str], what: str | None) -> list[Form]:
    """
    Explain all classes and traits, classes first, or only ``what``; the ``inventory`` of a trait is None.

    ``added`` is what the operator's files add, ``given`` are traits that carry this agent's mark of what it set.
    """
    traits: Mapping[str, Reason] = {
        **provider.traits,
        **dict.fromkeys(added.classes | added.traits, FILES),
        **dict.fromkeys(given, GIVEN),
    }
    found = [
        *((name, *one) for name, one in provider.inventories.items()),
        *((name, None, one) for name, one in sorted(traits.items())),
    ]
    return [
        {"name": name, "inventory": stock, "fact": reason.fact, "rule": reason.rule}
        for name, stock, reason in found
        if what in (None, name)
    ]


def _standing(settings: Settings, choice: Choice, node: str) -> tuple[ObservedTree | None, tuple[Condition, ...]]:
    """Read what placement holds of a node (None: it has no provider of this name), and what its last pass said."""
    client, where = open_client(settings, choice)
    found = client.find(node)
    return (client.observe(found), conditions_left(settings, found, where)) if found else (None, ())


def _is_left_to_nova(settings: Settings, shaped: Explained, provider: Reasoned) -> bool:
    """Return whether the configured role leaves a provider to nova-compute."""
    if settings.beside_nova:
        return provider.parent is None or provider.name in shaped.holdings.backing.novas
    return settings.audits_only


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRequest:
    """Whether a host is among the allocation candidates of a request."""

    node: str
    candidate: bool | None  # None: not known
    gives: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by provider and class; empty: it is none
    slots: int | None = None  # how many such guests fit; None: not known
    missing: tuple[Missing, ...] = ()  # without these wishes the host would be a candidate
    refusal: str = ""  # why placement refuses the request, or to be asked about one host; empty: it does not

    @property
    def report(self) -> Report:
        """Who gives what for the request, or what is missing."""
        missing = [{"wish": str(one.wish), "why": one.why} for one in self.missing]
        known = {"candidate": self.candidate, "gives": self.gives, "slots": self.slots, "refusal": self.refusal}
        return Report(data={"node": self.node, "missing": missing, **known}, lines=self._lines())

    def _lines(self) -> Iterator[str]:
        verdict = {
            True: "is a candidate",
            False: "is no candidate",
            None: "may be a candidate: placement has none without what other hosts share",
        }[self.candidate]
        if self.candidate is None and self.refusal:
            verdict = "may be a candidate: this placement cannot be asked about one host"
        yield f"{self.node} {verdict}"
        if self.refusal:
            yield f"placement refuses what was asked: {self.refusal}"
        yield from (f"  {name} gives {written_amounts(resources)}" for name, resources in self.gives.items())
        if self.slots:
            yield f"  room for {counted(self.slots, 'such guest')}, one after the other"
        elif self.candidate and self.slots is None:
            yield "  how many such guests fit is not known: other providers share what it asks for, or too many give it"
        yield from (f"  {one.wish}: {one.why}" for one in self.missing)


def explain_request(client: PlacementClient, node: str, wishes: tuple[Wish, ...]) -> ExplainedRequest:
    """
    Ask placement whether the tree of a node is among the candidates of a request, and if not, for which parts it is.

    Raises:
        ConfigError: placement has no such tree.
        Unavailable: no complete answer of placement.
    """
    standing = client.find(node)
    if standing is None:
        raise ConfigError(f"placement has no provider {node}: run compute-node-agent sync first")
    givers = _givers(client, client.observe(standing), wishes)
    if (number := combinations(wishes, givers)) * groups_of(wishes) > MOST:
        raise ConfigError(f"placement would compare {number} combinations of providers: ask for fewer groups at once")
    foreign = any(givers.is_foreign(one) for one in wishes)
    try:
        gives = None if foreign else _candidate(client, givers, wishes)
    except Forbidden:
        raise
    except Rejected as error:
        if not _is_refused(client, wishes):  # placement refuses what names the tree: in_tree came with 1.31
            return ExplainedRequest(node=node, candidate=None, refusal=str(error))
        lacks = missing(partial(_ask, client, givers), givers, wishes)  # one may be a name that placement does not know
        return ExplainedRequest(node=node, candidate=False, missing=lacks, refusal=str(error))
    if gives is not None:
        names = {one.uuid: one.name for one in givers.every}
        told = {names.get(uuid, uuid): gives[uuid] for uuid in gives}
        fit = room_for(givers.tree, givers.used, wishes, givers.shared)
        return ExplainedRequest(node=node, candidate=True, gives=told, slots=fit)
    lacks = missing(partial(_ask, client, givers), givers, wishes)
    return ExplainedRequest(node=node, candidate=False if is_sure(wishes, givers) else None, missing=lacks)


def _is_refused(client: PlacementClient, wishes: Sequence[Wish]) -> bool:
    """Return whether placement refuses a request as it stands; then nobody is a candidate, whatever the host has."""
    try:
        client.candidate(format_request(wishes))
    except Forbidden:
        raise
    except Rejected:
        return True
    return False


def _givers(client: PlacementClient, tree: ObservedTree, wishes: Iterable[Wish]) -> Givers:
    """Read what can give to a request for the host of this tree."""
    aggregates = frozenset().union(*(one.provider.aggregates for one in tree))
    sharing = tuple(one for one in client.sharing_with(aggregates) if one.uuid not in tree.by_uuid)
    classes = frozenset().union(*(one.names for one in wishes if one.kind == RESOURCES))
    holders = (one for one in (*tree, *sharing) if classes & one.provider.inventories.keys())
    return Givers(tree.providers, sharing, usages(client.allocations(holders)))


def _candidate(client: PlacementClient, givers: Givers, wishes: Sequence[Wish]) -> dict[str, dict[str, int]] | None:
    """Return what each provider gives in one candidate of this host; empty for wishes that ask for nothing."""
    queries = [query for query in map(format_request, bind(wishes, givers)) if query]
    found = (client.candidate(query) for query in queries)
    return next((one for one in found if one is not None), None) if queries else {}


def _ask(client: PlacementClient, givers: Givers, wishes: Sequence[Wish]) -> str | None:
    """Ask for a part of a request, as ``missing`` does; the host is a candidate for a part without resources."""
    if (number := combinations(wishes, givers)) > _MOST_OF_ONE:
        return f"placement was not asked for it with the rest: it would compare {number} combinations of providers"
    try:
        if _candidate(client, givers, wishes) is not None:
            return None
        return "" if is_sure(wishes, givers) else UNTOLD
    except Forbidden:
        raise
    except Rejected as error:
        return f"placement refuses it: {str(error).partition('): ')[2] or error}"  # without the query, which is shown
