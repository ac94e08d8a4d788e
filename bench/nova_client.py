"""
Runs in nova's virtual environment: reports a root with nova's own SchedulerReportClient, and counts its requests.

Usage: nova_client.py URL REPORT_FILE CYCLES. REPORT_FILE holds ``{"uuid", "name", "inventories", "traits"}``. A cycle
does what ``ResourceTracker._update_to_placement`` does. Prints a list: per cycle, its requests as ``METHOD path``.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import requests
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session
from keystoneauth1.token_endpoint import Token
from nova import conf, context
from nova.scheduler.client.report import SchedulerReportClient


class CountingSession(requests.Session):
    """Remembers every request that leaves this process."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send as always."""
        self.seen.append(f"{request.method} {request.path_url}")
        return super().send(request, **kwargs)


def main() -> None:
    """Report as often as was asked for."""
    url, report, cycles = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), int(sys.argv[3])
    conf.CONF([], project="nova", default_config_files=[])
    session = CountingSession()
    session.headers["X-Roles"] = "admin,service"  # what noauth2 goes by; nova's own user has both
    keystone = Session(auth=Token(url, "admin"), session=session)
    adapter = Adapter(keystone, service_type="placement", endpoint_override=url, raise_exc=False)
    client = SchedulerReportClient(adapter)
    print(json.dumps([_cycle(client, session, report) for _ in range(cycles)]), flush=True)
    os._exit(0)


def _cycle(client: SchedulerReportClient, session: CountingSession, report: dict[str, Any]) -> list[str]:
    session.seen = []
    admin = context.get_admin_context()
    tree = client.get_provider_subtree_and_ensure_root(admin, report["uuid"], name=report["name"])
    client.get_allocations_for_provider_tree(admin, report["name"])
    tree.update_inventory(report["name"], report["inventories"])
    tree.update_traits(report["name"], tree.data(report["name"]).traits | set(report["traits"]))
    client.update_from_provider_tree(admin, tree)
    return session.seen


main()
