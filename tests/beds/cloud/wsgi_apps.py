"""
The applications of Glance, nova, Neutron and Cyborg for gunicorn, by ``APP``: their names in small letters.

They parse ``sys.argv`` as their own command line, and meet gunicorn's there.
"""

import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Any

MOVED, EVENTLET_WENT = 33, 34  # from these novas on: the module of its API; its API wants threads by itself


def application_of(app: str) -> Any:
    """What each release has of them: a module that makes it, or a function that does."""
    if app == "glance":
        return import_module("glance.common.wsgi_app").init_app()
    if app == "cyborg":
        return below("/accelerator", import_module("cyborg.api.wsgi_app").init_application())
    release = int(version("nova").partition(".")[0]) if app == "nova" else EVENTLET_WENT
    if release < EVENTLET_WENT:
        os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "yes"  # else gunicorn's threads become eventlet's
    if release < MOVED:
        return import_module("nova.api.openstack.compute.wsgi").init_application()
    return import_module({"nova": "nova.wsgi.osapi_compute", "neutron": "neutron.wsgi.api"}[app]).application


def below(folder: str, application: Any) -> Any:
    """The application below a folder of the server, as the links in Cyborg's answers have it."""

    def mounted(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"].removeprefix(folder)
        return application(environ | {"SCRIPT_NAME": folder, "PATH_INFO": path}, start_response)

    return mounted


sys.argv[:] = [f"{os.environ['APP']}-api"]
if config := os.environ.get("CYBORG_CONFIG"):
    sys.argv += ["--config-file", config]
application = application_of(os.environ["APP"])
