"""One host as nova-compute reports it with our shape: settings, survey, decision, and the change of nova's tree."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agent.settings.read import load_settings
from drivers.base import Driver, Survey
from drivers.devices.odd import odd_sentences
from drivers.facts import DiskUnread
from drivers.libvirt.connection import LiveConnection
from drivers.libvirt.driver import LibvirtDriver
from drivers.policy import Policy
from inside_nova.decide import Answer, Call, decide
from inside_nova.device_events import DeviceEvents
from inside_nova.kept_survey import KeptSurvey
from inside_nova.trees import Allocations, NovaTree, apply_plan, decode_consumers, decode_tree, take_away

LOG = logging.getLogger(__name__)
DRIVER = "libvirt.LibvirtDriver"  # ours, whatever name nova loads
RETRY_S = 30.0  # after a conflict, nova begins again at once with a call without allocations


class Host:
    """The tree of one host, made anew at each call of nova."""

    def __init__(
        self,
        driver: Driver,
        policy: Policy,
        lasting_s: float,
        lend: Callable[[], Any],
        added: Mapping[str, frozenset[str]] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Make the host; nothing is read yet.

        ``lasting_s`` is how long a survey is of use; ``lend`` returns nova's open connection to libvirt; ``added`` are
        the classes that nova's provider configuration files add, as ``take_away`` needs them. ``clock`` gives seconds.
        """
        self._clock = clock
        self._driver = driver
        self._policy = policy
        self._lasting_s = lasting_s
        self._added = added
        self._events = DeviceEvents(lend, self.outdate)
        self._surveys: dict[str, KeptSurvey] = {}
        self._starting = True
        self._given_s: float | None = None  # when nova gave allocations; None: it did not
        self._kept: tuple[str, ...] = ()
        self._odd: tuple[str, ...] = ()  # sentences on odd devices, as they were logged last

    def outdate(self) -> None:
        """Note an event of the host: the next call looks again. May be called from any thread."""
        for surveys in tuple(self._surveys.values()):
            surveys.outdate()

    def update(self, tree: NovaTree, node: str, allocations: Allocations | None) -> None:
        """
        Change nova's tree, and its allocations where it gives them, to what this host should have.

        Raises:
            AllocationsNeeded: nova must call again with the allocations.
            DiscoveryError, PolicyError, PlacementError: as ``decide`` and ``apply_plan``.
            After an error the tree is as it was, without the stock of nova's provider configuration files.
        """
        began = self._clock()
        take_away(tree, node, self._added)
        self._events.listen()
        known = self._surveys.setdefault(node, KeptSurvey(partial(self._driver.survey, node), self._lasting_s))
        survey = known.get(fresh=allocations is not None)
        read = self._clock()
        call = Call(
            node=node,
            tree=decode_tree(tree, node),
            consumers=None if allocations is None else decode_consumers(allocations),
            starting=self._starting or self._tries_again(began),
        )
        self._starting = False  # nova answers AllocationsNeeded only at its start
        if allocations is not None:
            self._given_s = began
        answer = decide(call, survey, self._policy, self._driver)
        apply_plan(answer.plan, tree, allocations)
        ended = self._clock()
        LOG.debug("shaped the tree node=%s reading_s=%.4f deciding_s=%.4f", node, read - began, ended - read)
        self._tell(node, answer)
        self._tell_odd(node, survey)

    def _tries_again(self, now_s: float) -> bool:
        """Whether this call follows so soon on one with allocations that nova must be at its start again."""
        return self._given_s is not None and now_s - self._given_s < RETRY_S

    def _tell(self, node: str, answer: Answer) -> None:
        """Log the moves that nova is to write, and once what stays without being wanted."""
        for move in answer.plan.moves:
            LOG.info(
                "an allocation is to move consumer=%s from=%s to=%s because=%s",
                move.consumer,
                move.from_provider,
                move.to_provider,
                move.because,
            )
        if answer.kept and answer.kept != self._kept:
            LOG.warning(
                "stock is gone from this host, and guests may hold it: it stays, and on children of the root it is all "
                "reserved; restart nova-compute to remove what no guest holds node=%s stock=%s",
                node,
                "; ".join(answer.kept),
            )
        self._kept = answer.kept

    def _tell_odd(self, node: str, survey: Survey) -> None:
        """Log the devices that are undecided, and a storage that does not answer, once while they stay the same."""
        disk = survey.facts.disk
        unread = [f"DISK_GB stays as it is: {disk.because}"] if isinstance(disk, DiskUnread) else []
        odd = (*odd_sentences(survey.facts, self._policy.devices).values(), *unread)
        if odd and odd != self._odd:
            LOG.warning("parts of this host are undecided node=%s parts=%s", node, "; ".join(odd))
        self._odd = odd


def open_host(
    files: Iterable[str],
    directories: Iterable[str],
    lend: Callable[[], Any],
    added: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Host:
    """
    Return this host, as nova's configuration files describe it; ``lend`` and ``added`` are as ``Host`` needs them.

    Raises:
        ConfigError: the configuration is wrong.
    """
    settings = load_settings(map(Path, files), map(Path, directories), driver=DRIVER)
    connection = LiveConnection(settings.hypervisor.libvirt_uri, borrow=lend)
    driver = LibvirtDriver(connection, settings.policy, settings.hypervisor.disk)
    return Host(driver, settings.policy, settings.service.interval_s, lend, added)
