"""
Which machine this host's identity belongs to: a file beside the agent's memory, so that a cloned disk is noticed.

Lost, damaged or of another identity, the file says nothing: the next pass writes it anew.
"""

from dataclasses import dataclass
from pathlib import Path

from agent.errors import StateError
from agent.state.files import read_whole, replace_durably, seal, unseal

FILE = "machine.json"
_FORMAT = 1
_FIRMWARE = "sys/class/dmi/id/product_uuid"  # only root may read it, and everybody may see whether there is one
_CONTAINER = (".dockerenv", "run/.containerenv", "run/systemd/container", "run/host/container-manager")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What tells one machine from another; an empty text: unknown."""

    product: str = ""  # uuid of the mainboard, by libvirt
    machine_id: str = ""  # machine-id(5); of a container it would be the container's
    boot: str = ""  # the kernel's boot id (random(4))

    def unlike(self, before: "Machine") -> str:
        """
        Return what shows that this is another machine than before, as the rest of a sentence; empty: nothing does.

        The mainboard decides where it is known. Within one boot the machine is the same: there libvirt, which makes up
        a uuid at each of its starts where the firmware's is not valid, has only been started again.
        """
        if self.boot and self.boot == before.boot:
            return ""
        if self.product and before.product:
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
        body = unseal(read_whole(path).decode(), form=_FORMAT)
        if body.pop("identity") != identity:
            return Machine()
        return Machine(**{name: str(value) for name, value in body.items()})
    except FileNotFoundError:
        return Machine()
    except OSError as error:
        raise StateError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Machine()


def tie_machine(directory: Path, identity: str, machine: Machine, *, anew: bool = False) -> None:
    """
    Tie an identity to a machine; what is not known of it now stays as it was tied before, but not where it is ``anew``.

    Raises:
        StateError: the file cannot be read or written; the old one stays.
    """
    before = Machine() if anew else read_machine(directory, identity)
    told = Machine(
        product=machine.product or before.product,
        machine_id=machine.machine_id or before.machine_id,
        boot=machine.boot,
    )
    if told == before:
        return
    body = {"identity": identity, "product": told.product, "machine_id": told.machine_id, "boot": told.boot}
    try:
        replace_durably(directory / FILE, seal(body, form=_FORMAT))
    except OSError as error:
        raise StateError(f"cannot write {directory / FILE}: {error.strerror}: set [agent] state_directory") from error
