"""One VF, as the kernel lists it and as libvirt describes it."""

from pathlib import Path

NAME, ADDRESS = "pci_0000_81_10_1", "0000:81:10.1"
PF = "<capability type='phys_function'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></capability>"


def xml(more: str = PF, *, driver: str | None = "iavf", product: str = "0x154c", vendor: str = "0x8086") -> str:
    bound = f"<driver>\n    <name>{driver}</name>\n  </driver>" if driver else ""
    return (
        f"<device>\n  <name>{NAME}</name>\n  {bound}\n  <capability type='pci'>\n"
        f"    <product id='{product}'>VF</product>\n    <vendor id='{vendor}'>Intel</vendor>\n    {more}\n"
        "  </capability>\n</device>\n"
    )


def made(folder: Path) -> Path:
    """Make its folder, and return it."""
    folder.mkdir()
    (folder / "vendor").write_text("0x8086\n", encoding="ascii")
    (folder / "device").write_text("0x154c\n", encoding="ascii")
    (folder / "physfn").mkdir()
    bind(folder, "iavf")
    return folder


def bind(folder: Path, driver: str) -> None:
    (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def rebind(folder: Path) -> None:
    unbind(folder)
    bind(folder, "vfio-pci")


def unbind(folder: Path) -> None:
    (folder / "driver").unlink()
