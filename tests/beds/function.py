"""One VF, as libvirt describes it."""

NAME = "pci_0000_81_10_1"
PF = "<capability type='phys_function'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></capability>"


def xml(more: str = PF, *, driver: str | None = "iavf", product: str = "0x154c", vendor: str = "0x8086") -> str:
    bound = f"<driver>\n    <name>{driver}</name>\n  </driver>" if driver else ""
    return (
        f"<device>\n  <name>{NAME}</name>\n  {bound}\n  <capability type='pci'>\n"
        f"    <product id='{product}'>VF</product>\n    <vendor id='{vendor}'>Intel</vendor>\n    {more}\n"
        "  </capability>\n</device>\n"
    )
