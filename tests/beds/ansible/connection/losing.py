"""A local connection that is lost while the file FLEET_LOST/HOST exists."""

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: losing
short_description: a local connection that can be lost
description: As local, but fails while a file with the name of the host is in the folder FLEET_LOST.
options: {}
"""


class Connection(Local):  # type: ignore[misc]
    """As the local one, until it is lost."""

    transport = "losing"

    def exec_command(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command on this machine; AnsibleConnectionFailure while the host is lost."""
        self._reach()
        return super().exec_command(*args, **kwargs)

    def put_file(self, *args: Any, **kwargs: Any) -> Any:
        """Copy a file; AnsibleConnectionFailure while the host is lost."""
        self._reach()
        return super().put_file(*args, **kwargs)

    def _reach(self) -> None:
        if (Path(os.environ["FLEET_LOST"]) / self._play_context.remote_addr).exists():
            raise AnsibleConnectionFailure("lost")
