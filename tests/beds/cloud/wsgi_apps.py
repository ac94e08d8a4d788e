"""
The applications of Glance, nova and Neutron for gunicorn, by ``APP``: ``glance``, ``nova`` or ``neutron``.

They parse ``sys.argv`` as their own command line, and meet gunicorn's there.
"""

import importlib
import os
import sys

MODULES = {"glance": "glance.wsgi.api", "nova": "nova.wsgi.osapi_compute", "neutron": "neutron.wsgi.api"}

sys.argv[:] = [f"{os.environ['APP']}-api"]
application = importlib.import_module(MODULES[os.environ["APP"]]).application
