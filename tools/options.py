"""Write docs/options.md from the table of options (``make sample``); a unit test checks that it is current."""

from collections.abc import Iterable
from pathlib import Path

from oslo_config import cfg

from agent.settings.options import LOGINS, MDEV_OPTIONS, OPTIONS, OWN_GROUPS

PAGE = Path(__file__).parent.parent / "docs/options.md"
HEAD = """\
# The options

`make sample` makes this page from `agent/settings/options.py`, and the sample in `etc/compute-node-agent`.
Those of the groups {own} are the agent's own, and so are `[compute] layout`, `[pci] discover` and
`[pci] link_bandwidth`. The others are nova's, with nova's meaning; [nova's options](novas-options.md) lists all of
nova's that change what is reported.
The groups {logins} have the options of a login as well, see [Keystone](keystone.md).
Options of the log, such as `debug`, `log_file` and `rate_limit_burst`, are those of oslo.log; the sample lists them.

"""


def document() -> str:
    """Return the page: a table of the options of each group."""
    groups = {**OPTIONS, "mdev_TYPE": MDEV_OPTIONS}
    own, logins = (", ".join(f"`[{name}]`" for name in names) for names in (OWN_GROUPS, LOGINS))
    return HEAD.format(own=own, logins=logins) + "\n".join(_section(*group) for group in groups.items())


def _section(group: str, options: Iterable[cfg.Opt]) -> str:
    rows = (f"| `{one.name}` | {_default(one)} | {_meaning(one)} |" for one in options)
    return "\n".join((f"## [{group}]\n", "| option | default | meaning |", "| --- | --- | --- |", *rows, ""))


def _default(option: cfg.Opt) -> str:
    default = option.default
    if default is None or default in ("", []):
        return ""
    if isinstance(default, list):
        default = ", ".join(default)
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _meaning(option: cfg.Opt) -> str:
    text = " ".join((option.help or "").split())
    if choices := getattr(option.type, "choices", None):
        text += f" One of {', '.join(map(str, choices))}."
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
