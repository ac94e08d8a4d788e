"""Turn what a survey read into the files of a host archive."""

import json
import platform
from datetime import UTC, datetime

from agent.state.identity import FILE
from drivers.base import Survey
from drivers.host.archive import FORMAT, Document
from drivers.libvirt.prune import prune_domain
from drivers.libvirt.recorded import DOMAINS


def archive_files(survey: Survey, node: str, identity: str | None) -> dict[str, str]:
    """
    Return a host archive of a survey: file name -> text; of its guests only what the agent reads.

    ``identity`` is the host's compute_id, None without one.
    """
    files = {**survey.files, **({FILE: identity + "\n"} if identity else {})}
    guests = {name: text for name, text in files.items() if name.startswith(f"{DOMAINS}/") and name.endswith(".xml")}
    files |= {name: prune_domain(Document(text, name)) for name, text in guests.items()}
    uname = platform.uname()
    host = {
        "format": FORMAT,
        "hostname": node,
        "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "uname": {"sysname": uname.system, "release": uname.release, "machine": uname.machine},
        "files": sorted(files),
    }
    return {**files, "host.json": json.dumps(host, indent=1) + "\n"}
