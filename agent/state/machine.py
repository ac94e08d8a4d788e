"""
Which machine this host's identity belongs to: a file beside the agent's memory, so that a cloned disk is noticed.

Lost, damaged or of another identity, the file says nothing: the next pass writes it anew.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path

from agent.state.files import read_state, seal, unseal, write_state
from reportclient.json_text import decode_as

FILE = "machine.json"
_FORMAT = 1
_FIRMWARE = "sys/class/dmi/id/product_uuid"  # only root may read it, and everybody may see whether there is one
_RANDOM = re.compile(r".{14}4.{4}[89ab]")  # a uuid of version 4, as libvirt makes one up (its viruuid.c)
_CONTAINER = (".dockerenv", "run/.containerenv", "run/systemd/container", "run/host/container-manager")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What tells one machine from another; an empty text: unknown."""

    product: str = ""  # uuid of the mainboard, by libvirt
    machine_id: str = ""  # machine-id(5); of a container it would be the container's
    boot: str = ""  # the kernel's boot id (random(4))
    lasting: bool = False  # the product uuid was the same after a boot

    def unlike(self, before: "Machine") -> str:
        """
        Return what shows that this is another machine than before, as the rest of a sentence; empty: nothing does.

        The mainboard decides where it is known. Where the firmware's uuid is one digit throughout, libvirt makes up one
        at each of its starts: such a uuid counts once it lasted a boot. Within one boot the machine is the same.
        """
        if self.boot and self.boot == before.boot:
            return ""
        if self.product and (before.lasting or (before.product and not _RANDOM.match(before.product))):
            pair, what = (before.product, self.product), "a machine with the product uuid"
        elif self.machine_id and before.machine_id:
            pair, what = (before.machine_id, self.machine_id), "a machine with the machine-id"
        else:
            return ""
        return f"{what} {pair[0]}, and this one has {pair[1]}" if pair[0] != pair[1] else ""


def probe_machine(product: str, boot: str | None, root: Path = Path("/")) -> Machine:
    """
    Return this machine, by the uuid and boot id of a survey and the files below ``root``.

    libvirt's uuid counts only where the firmware has one: else libvirt makes one up at each of its starts.
    """
    try:
        machine_id = (root / "etc/machine-id").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        machine_id = ""  # not known is no doubt
    inside = any((root / one).exists() for one in _CONTAINER)
    return Machine(
        product=product.lower() if (root / _FIRMWARE).exists() else "",
        machine_id="" if inside else machine_id,
        boot=boot or "",
    )


def read_machine(directory: Path, identity: str) -> Machine:
    """
    Return the machine to which an identity was tied; an unknown one if no file can be trusted.

    Raises:
        StateError: the file exists and cannot be read.
    """
    path = directory / FILE
    try:
        body = unseal(read_state(path).decode(), form=_FORMAT)
        return decode_as(Machine, body) if body["identity"] == identity else Machine()
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Machine()


def tie_machine(directory: Path, identity: str, machine: Machine, *, anew: bool = False) -> None:
    """
    Tie an identity to a machine; what is not known of it now stays as it was tied before, but not where it is ``anew``.

    Raises:
        StateError: the file cannot be read or written; the old one stays.
    """
    before = Machine() if anew else read_machine(directory, identity)
    again = bool(machine.product and before.boot and machine.boot) and machine.boot != before.boot  # in another boot
    told = Machine(
        product=machine.product or before.product,
        machine_id=machine.machine_id or before.machine_id,
        boot=machine.boot,
        lasting=machine.product in ("", before.product) and (before.lasting or again),
    )
    if told == before:
        return
    body = {"identity": identity, **asdict(told)}
    write_state(directory / FILE, seal(body, form=_FORMAT))
