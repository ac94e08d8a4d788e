"""The Python package of libvirt; None where it is not installed: a recorded host is read without it."""

from typing import Any

try:
    import libvirt as _installed
except ImportError:
    _installed = None

libvirt: Any = _installed
