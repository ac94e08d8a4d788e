"""Events of libvirt's node devices on a connection that nova opened."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from drivers.libvirt.library import libvirt

LOG = logging.getLogger(__name__)


class DeviceEvents:
    """
    Events of node devices on a connection that belongs to somebody else, who may replace it.

    The owner runs libvirt's event loop, of which a process has only one.
    """

    def __init__(self, lend: Callable[[], Any], changed: Callable[[], None]) -> None:
        """``lend`` returns the owner's present connection; ``changed`` is called for each event, in any thread."""
        self._lend, self._changed = lend, changed
        self._connection: Any = None
        self._numbers: list[int] = []

    def listen(self) -> None:
        """
        Register at the present connection if it is a new one, and report a change: earlier events may be missed.

        A connection without such events is logged; then nothing is reported until there is another connection.
        """
        lent = self._lend()
        if lent is self._connection:
            return
        self._release()
        self._connection = lent
        self._changed()
        kinds = (libvirt.VIR_NODE_DEVICE_EVENT_ID_LIFECYCLE, libvirt.VIR_NODE_DEVICE_EVENT_ID_UPDATE)
        try:
            for kind in kinds:
                self._numbers.append(lent.nodeDeviceEventRegisterAny(None, kind, self._on_event, None))
        except libvirt.libvirtError as error:
            LOG.warning("libvirt reports no events of devices, so changes are seen later reason=%s", error)
            self._release()

    def close(self) -> None:
        """Report nothing any more."""
        self._release()
        self._connection = None

    def _release(self) -> None:
        """Deregister: a connection that broke stays open as long as a callback is registered."""
        for number in self._numbers:
            with suppress(libvirt.libvirtError):
                self._connection.nodeDeviceEventDeregisterAny(number)
        self._numbers = []

    def _on_event(self, *_: object) -> None:
        self._changed()
