"""Explain why an inventory or a trait is reported: the fact it comes from and the rule that applies."""

from collections.abc import Iterable, Mapping

from agent.command.results import ExplainedProvider, Explanation
from agent.connect.choice import Choice, open_client, open_driver, read_host, settings_for
from agent.errors import ConfigError
from agent.settings.read import Settings
from agent.state.identity import planned_identity
from agent.sync.decide.additions import add
from agent.sync.decide.features.shared_disk import DISK
from agent.sync.decide.owner import NOVA_COMPUTE
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


def explain_provider(choice: Choice, name: str, what: str | None) -> ExplainedProvider:
    """
    Explain all classes and traits of one provider of the chosen host, or only ``what``.

    Raises:
        ConfigError: the host reports no such provider (with the cause where its device is undecided), or the provider
            lacks that class or trait. Else as a survey.
    """
    settings = settings_for(choice)
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
        return ExplainedProvider(
            provider=provider.name,
            parent=provider.parent,
            left_to=NOVA_COMPUTE if _is_left_to_nova(settings, shaped, provider) else None,
            counted_in=node if provider in shaped.counted_in else None,
            reasons=found,
            conditions=tuple(
                one for one in conditions if one.provider == provider.name or not (one.provider or provider.parent)
            ),
        )


def _told(shaped: Explained, name: str) -> str:
    """Return which providers there are, and that a class comes after its provider."""
    known = list(names(shaped))
    hint = f" (a class comes after its provider: explain {known[0]} {name})" if name.isupper() else ""
    return f"it reports {', '.join(known[:20])}{hint}"


def find(shaped: Explained, name: str) -> Reasoned | None:
    """Find a provider by its name, by its suffix, or by the address of its device; None: there is no such provider."""
    for provider in (*shaped.providers, *shaped.counted_in):
        suffix = provider.name.removeprefix(f"{shaped.providers[0].name}_")
        if spelled(name) in (provider.name, suffix) or suffix == libvirt_name(name.lower()):
            return provider
    return None


def explain_stock(provider: Reasoned, added: Names, given: frozenset[str], what: str | None) -> tuple[Explanation, ...]:
    """
    Explain all classes and traits, classes first, or only ``what``.

    ``added`` is what the operator's files add, ``given`` are traits that carry this agent's mark of what it set.
    """
    found = [
        Explanation(name=name, inventory=stock, fact=reason.fact, rule=reason.rule)
        for name, (stock, reason) in provider.inventories.items()
    ]
    traits: Mapping[str, Reason] = {
        **provider.traits,
        **dict.fromkeys(added.classes | added.traits, FILES),
        **dict.fromkeys(given, GIVEN),
    }
    found += [
        Explanation(name=name, inventory=None, fact=reason.fact, rule=reason.rule)
        for name, reason in sorted(traits.items())
    ]
    return tuple(one for one in found if what in (None, one.name))


def names(shaped: Explained) -> Iterable[str]:
    """Return the names of all providers that ``find`` can find."""
    return (provider.name for provider in (*shaped.providers, *shaped.counted_in))


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
