"""
Write the manual pages, and the completions for bash and zsh, from the command line's own parsers.

usage: manual.py FOLDER: makes FOLDER/man8/*.8, FOLDER/bash/compute-node-agent and FOLDER/zsh/_compute-node-agent.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage

from agent import VERSION
from agent.command.arguments import parsers
from agent.command.verbs import VERBS

PROGRAM = "compute-node-agent"
MANUAL = "OpenStack placement"
CODES = (
    ("0", "done, or nothing to do"),
    ("1", "error"),
    ("2", "wrong use of the command"),
    ("3", "differences or findings"),
    ("4", "refused: the plan is unsafe, cannot place all that a guest has, or is not the approved plan; or a second "
          "writer was found"),
)  # fmt: skip
UPGRADE_CODES = (("0", "ready"), ("1", "ready, with a warning"), ("2", "not ready"))  # those of nova-status
FILES = (
    ("/etc/compute-node-agent/compute-node-agent.conf", "the configuration, where no --config-file is given"),
    ("/var/lib/compute-node-agent", "the state directory of the service"),
)
# bash splits words at colons, and names of providers have PCI addresses: the words are put together again.
BASH = r"""
_compute_node_agent_providers() {
  compgen -W "$(compute-node-agent discover --format json 2> /dev/null | sed -n 's/^  "\(.*\)": {$/\1/p')" -- "$1"
}
"""
BASH_END = r"""
_compute_node_agent() {
  if declare -F _get_comp_words_by_ref > /dev/null; then
    local cur words cword
    _get_comp_words_by_ref -n : cur words cword
    local -a COMP_WORDS=("${words[@]}")
    local COMP_CWORD=$cword
    _shtab_compute_node_agent
    __ltrim_colon_completions "$cur"
  else
    _shtab_compute_node_agent
  fi
}
complete -o bashdefault -F _compute_node_agent compute-node-agent
"""
ZSH = r"""
_compute_node_agent_providers() {
  local -a names
  names=(${(f)"$(compute-node-agent discover --format json 2> /dev/null | sed -n 's/^  "\(.*\)": {$/\1/p')"})
  compadd -a names
}
"""
PROVIDERS = {"bash": "_compute_node_agent_providers", "zsh": "_compute_node_agent_providers"}
NAMES_OF_PROVIDERS = ("name",)  # destinations of arguments that take one


def main() -> None:
    """Write all of it."""
    folder = Path(sys.argv[1])
    parser, verbs = parsers()
    for name in ("man8", "bash", "zsh"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for one in (parser, *verbs.values()):
        _tell_what_completes(one)
    bash = shtab.complete(parser, shell="bash", preamble={"bash": BASH, "zsh": ZSH})
    (folder / "bash" / PROGRAM).write_text(bash.rpartition("complete -o")[0] + BASH_END.lstrip(), encoding="utf-8")
    zsh = shtab.complete(parser, shell="zsh", preamble={"bash": BASH, "zsh": ZSH})
    (folder / "zsh" / f"_{PROGRAM}").write_text(zsh, encoding="utf-8")
    (folder / "man8" / f"{PROGRAM}.8").write_text(_overview(parser), encoding="utf-8")
    for name, one in verbs.items():
        (folder / "man8" / f"{PROGRAM}-{name}.8").write_text(_page_of(name, one), encoding="utf-8")


def _tell_what_completes(parser: argparse.ArgumentParser) -> None:
    """Tell the completions which arguments take a file, a folder, or a provider."""
    for action in parser._actions:
        found: object = None
        if action.metavar in ("FILE", "ARCHIVE"):
            found = shtab.FILE
        elif action.metavar == "DIR":
            found = shtab.DIRECTORY
        elif action.dest in NAMES_OF_PROVIDERS:
            found = PROVIDERS
        if found:
            action.complete = found  # type: ignore[attr-defined]


def _page_of(name: str, parser: argparse.ArgumentParser) -> str:
    """Return the page of one verb."""
    verb = VERBS[name]
    parser.man_short_description = verb.help  # type: ignore[attr-defined]
    parser.epilog = None
    page = _dressed(Manpage(parser))
    page.prog = f"{PROGRAM}-{name}"
    _add(page, "exit status", _listed(UPGRADE_CODES if name == "upgrade" else CODES))
    _add(page, "examples", f".EX\n{_plain(f'{PROGRAM} {name} {verb.example}')}\n.EE")
    _add(page, "see also", f".BR {PROGRAM} (8)")
    return str(page)


def _overview(parser: argparse.ArgumentParser) -> str:
    """Return the page of the whole command."""
    whole = argparse.ArgumentParser(prog=PROGRAM, description=parser.description, usage=f"{PROGRAM} VERB [OPTION ...]")
    whole.add_argument("--version", action="version", version=VERSION, help="show the version")
    whole.man_short_description = "report a hypervisor or bare-metal nodes to OpenStack placement"  # type: ignore[attr-defined]
    page = _dressed(Manpage(whole))
    _add(page, "verbs", _listed((name, verb.help) for name, verb in VERBS.items()))
    _add(page, "exit status", _listed(CODES))
    _add(page, "files", _listed(FILES))
    _add(page, "see also", ",\n".join(f".BR {PROGRAM}-{name} (8)" for name in VERBS).replace(",\n", "\n"))
    return str(page)


def _dressed(page: Manpage) -> Manpage:
    page.section, page.manual, page.source = 8, MANUAL, f"{PROGRAM} {VERSION}"
    return page


def _add(page: Manpage, heading: str, content: str) -> None:
    page.add_section(heading, "=", content)


def _listed(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f".TP\n.B {_plain(name)}\n{_plain(text)}" for name, text in rows)


def _plain(text: str) -> str:
    """Return a text as roff that shows it letter by letter."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{shown}" if shown[:1] in ".'" else shown


if __name__ == "__main__":
    main()
