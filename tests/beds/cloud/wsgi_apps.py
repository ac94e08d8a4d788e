"""
The applications of Glance and nova for gunicorn, by ``APP``: ``glance`` or ``nova``.

Both parse ``sys.argv`` as their own command line, and meet gunicorn's there.
"""

import importlib
import os
import sys

MODULES = {"glance": "glance.wsgi.api", "nova": "nova.wsgi.osapi_compute"}

sys.argv[:] = [f"{os.environ['APP']}-api"]
application = importlib.import_module(MODULES[os.environ["APP"]]).application
