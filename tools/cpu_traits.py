"""
Compare libvirt's CPU map (/usr/share/libvirt/cpu_map) with the traits HW_CPU_X86_ of os-traits, both ways.

Exit code 1 if a trait has neither a feature of libvirt's nor a reason, or if a feature of ours is not in libvirt's map.
With a nova beside (``--nova``, run by nova's Python) it also lists the traits that nova's own table never gives.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import parse

import os_traits

from drivers.libvirt.traits import CPU_FEATURES

PREFIX = "HW_CPU_X86_"
CPU_MAP = Path("/usr/share/libvirt/cpu_map/x86_features.xml")
WITHOUT = {  # traits that no feature of libvirt's gives, and why
    "AMD_SEV": "of the provider for SEV",
    "AMD_SEV_ES": "of the provider for SEV-ES",
    "AMD_SEV_SNP": "of the provider for SEV-SNP",
    "INTEL_TDX": "of the provider for TDX",
    "ASF": "AMD never made a CPU with it",
    "SGX": "the feature alone is of no use: a guest needs memory for enclaves, which nova gives to none",
}


def features(path: Path = CPU_MAP) -> frozenset[str]:
    """Return the names of all x86 features that libvirt knows; aliases are QEMU's names, which libvirt refuses."""
    return frozenset(str(one.get("name")) for one in parse(path).getroot().iter("feature"))


def traits() -> frozenset[str]:
    """Return os-traits' names of x86 CPU traits, without the prefix."""
    return frozenset(name.removeprefix(PREFIX) for name in os_traits.get_traits(PREFIX))


def unexplained() -> Iterator[str]:
    """Yield a sentence on each trait that has neither a feature nor a reason, and on each of ours that is none."""
    given = {name for names in CPU_FEATURES.values() for name in names}
    yield from (
        f"{name} has no feature of libvirt's, and no reason here" for name in sorted(traits() - given - {*WITHOUT})
    )
    yield from (f"{name} is no trait of os-traits" for name in sorted((given | {*WITHOUT}) - traits()))


def main() -> int:
    """Print both directions, and what does not fit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nova", action="store_true", help="compare with nova's own table too")
    asked = parser.parse_args()
    known = features()
    for name in sorted(known):
        print(f"{name}: {', '.join(CPU_FEATURES.get(name, ())) or 'os-traits has no name for it'}")
    for name, why in WITHOUT.items():
        print(f"{PREFIX}{name}: {why}")
    if asked.nova:
        from nova.virt.libvirt.utils import CPU_TRAITS_MAPPING

        novas = {
            feature: (given,) if isinstance(given, str) else given for feature, given in CPU_TRAITS_MAPPING.items()
        }
        possible = {name for feature, given in novas.items() if feature in known for name in given}
        ours = {f"{PREFIX}{name}" for given in CPU_FEATURES.values() for name in given}
        print("nova never gives:", ", ".join(sorted(ours - possible)))
        print("nova alone gives:", ", ".join(sorted(possible - ours)) or "none")
    wrong = [*unexplained(), *(f"{one} is not in libvirt's map" for one in sorted(CPU_FEATURES.keys() - known))]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
