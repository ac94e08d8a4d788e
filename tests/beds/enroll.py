"""
Runs in Ironic's virtual environment: puts nodes into its database through its own database layer.

Usage: enroll.py IRONIC_CONF NODES_FILE. The file holds a list of nodes, each with any fields of one and ``traits``.
"""

import json
import sys
from pathlib import Path

from ironic.common import service
from ironic.db import api
from ironic.objects.node import Node


def main() -> None:
    """Insert all of them; the API then serves them as any others."""
    service.prepare_command(["enroll", "--config-file", sys.argv[1]])
    database = api.get_instance()
    for fields in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        traits = fields.pop("traits", [])
        usual = {"driver": "fake-hardware", "network_interface": "noop", "version": Node.VERSION}
        usual |= {f"{name}_interface": "fake" for name in ("power", "deploy", "boot", "management")}
        made = database.create_node(usual | fields)
        if traits:
            database.set_node_traits(made.id, traits, "1.0")


main()
