"""The verb ``explain``: why an inventory or a trait is reported, by fact and rule, or why a host is no candidate."""

import argparse
from collections.abc import Iterator, Mapping

from agent.command.explain_request import explain_request, read_request
from agent.command.result import Report, choice_of, open_host, settings_of
from agent.connect.choice import Choice, open_client, open_driver, read_host
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import planned_identity
from agent.sync.decide.additions import add
from agent.sync.decide.features.shared_disk import DISK
from agent.sync.decide.owner import NOVA_COMPUTE
from agent.sync.json_form import Form
from agent.sync.node import conditions_left
from agent.sync.outcome import Condition
from agent.sync.provider_yaml import read_additions
from drivers.devices.inventories import libvirt_name
from drivers.devices.odd import odd_sentence
from drivers.libvirt.shape import shape, without_undecided
from drivers.reasons import Explained, Reason, Reasoned
from reportclient.names import spelled
from reportclient.ownership import Names, set_on
from reportclient.tree import ObservedTree

GIVEN = Reason("a mark of this agent stands beside it in placement", "this agent set it, for the reason below")
FILES = Reason("the operator's files", "a file below [compute] provider_config_location")


def explain(options: argparse.Namespace) -> Report:
    """Report why one provider has its classes and traits, or with --request why the host is no candidate."""
    if bool(options.name) is bool(options.request):
        raise ConfigError("explain needs either the name of a provider or --request FILE")
    if options.name:
        return _explain_provider(options)
    wishes = read_request(options.request)
    with open_host(options) as one:
        return explain_request(one.client, one.name, wishes).report


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
            why = odd_sentence(facts, name) or _told(shaped, name)
            raise ConfigError(f"this host reports no provider {name}: {why}")
        additions = read_additions(settings.operator_files.folder, required=settings.operator_files.named)
        _, added = add(shaped.tree, planned_identity(node), additions, observed=observed or ObservedTree())
        stands = observed.by_name.get(provider.name) if observed else None
        given = set_on(stands) if stands else frozenset[str]()
        found = explain_stock(provider, added.get(provider.name, Names()), given, what)
        if not found and what == DISK and settings.policy.disk.shared and provider.parent is None:
            raise ConfigError(
                f"{provider.name} has no {DISK} of its own: by [agent] shared_disk the provider of the "
                f"storage that it shares with other hosts has it (openstack resource provider list)"
            )
        if not found:
            raise ConfigError(f"{provider.name} has no {what}: see compute-node-agent explain {provider.name}")
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
    return Report(data=data, lines=_lines(data))


def _lines(data: Form) -> Iterator[str]:
    """Yield each class and trait of a provider with its fact and its rule."""
    under = f" under {data['parent']}" if data["parent"] else ""
    counted = (
        f"; its inventory is reported on {data['counted_in']} ([compute] layout = flat)" if data["counted_in"] else ""
    )
    left = f"; {data['left_to']} reports it" if data["left_to"] else ""
    yield f"{data['provider']}{under}{counted}{left}"
    for one in data["reasons"]:
        stock = one["inventory"]
        what = f": total {stock.total}, reserved {stock.reserved}, ratio {stock.allocation_ratio:g}" if stock else ""
        yield from (f"  {one['name']}{what}", f"    fact: {one['fact']}", f"    rule: {one['rule']}")
    yield from (f"  {condition.text}" for condition in data["conditions"])


def _told(shaped: Explained, name: str) -> str:
    """Return which providers there are, and that a class comes after its provider."""
    known = [provider.name for provider in (*shaped.providers, *shaped.counted_in)]
    hint = f" (a class comes after its provider: explain {known[0]} {name})" if name.isupper() else ""
    return f"it reports {', '.join(known[:20])}{hint}"


def find(shaped: Explained, name: str) -> Reasoned | None:
    """Find a provider by its name, by its suffix, or by the address of its device; None: there is no such provider."""
    for provider in (*shaped.providers, *shaped.counted_in):
        suffix = provider.name.removeprefix(f"{shaped.providers[0].name}_")
        if spelled(name) in (provider.name, suffix) or suffix == libvirt_name(name.lower()):
            return provider
    return None


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
