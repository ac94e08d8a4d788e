"""Imports the HTTP libraries without their optional packages."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

UNUSED = ("chardet", "charset_normalizer", "osprofiler")
"""
Packages that others import only where they are installed, and do without where they are not.

requests guesses with the first two which characters an answer has that does not say it; JSON is UTF-8. keystoneauth1
adds the trace of a profiler to requests with the third, which brings webob; nothing here begins such a trace.
"""

_OF_REQUESTS = ".*character.detection"  # its warning where neither of the first two is there


@contextmanager
def left_out() -> Iterator[None]:
    """
    Let imports inside the block go on as if ``UNUSED`` were not installed; later imports find them again.

    ``None`` in ``sys.modules`` is the documented way to that (The import system, 5.3.1). Packages that are loaded
    already stay.
    """
    absent = [name for name in UNUSED if name not in sys.modules]
    warnings.filterwarnings("ignore", _OF_REQUESTS)
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
