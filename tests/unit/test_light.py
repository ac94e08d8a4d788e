"""What the service of a hypervisor does not load."""

import json
import subprocess
import sys

SERVICE = (
    "agent.command.carry_out",
    "agent.command.run_verb",
    "agent.service.loop",
    "agent.connect.keystone",
    "drivers.libvirt.driver",
    "drivers.host.udev",
)
FOR_OTHERS = {
    "agent.audit.heal",  # where a policy allows repairs
    "agent.bare_metal.run",
    "agent.service.metrics",
    "agent.sync.archive",
    "agent.sync.decide.undoing",
    "agent.sync.journal",  # for conversions
    "charset_normalizer",  # for answers of unknown characters
    "difflib",  # where a name is misspelt
    "drivers.host.unpack",
    "drivers.ironic.driver",
    "jsonschema",  # for files that operators write, as yaml
    "openstack",  # for Ironic
    "osprofiler",
    "placement",  # the embedded one
    "prometheus_client",  # where a port or a file for metrics is configured
    "psutil",  # before something is written
    "rich",  # for terminals
    "tarfile",  # for a case
    "webob",  # of osprofiler
    "yaml",
}


LEAVING_OUT = "import sys, json\nfrom agent.command.left_out import left_out\nwith left_out():"


def _output(program: str) -> str:
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_service_loads_nothing_that_is_of_other_uses() -> None:
    loaded = set(json.loads(_output(f"{LEAVING_OUT} import {', '.join(SERVICE)}\nprint(json.dumps([*sys.modules]))")))

    assert {*SERVICE} <= loaded
    assert not loaded & FOR_OTHERS


def test_what_is_left_out_at_the_start_is_found_later() -> None:
    program = f"{LEAVING_OUT} import requests\nimport charset_normalizer\nprint(charset_normalizer.__name__)"

    assert _output(program) == "charset_normalizer\n"


def test_answers_in_utf_8_are_read_without_the_packages_that_are_left_out() -> None:
    answer = 'answer = requests.Response(); answer._content = \'{"a": "\u00fc"}\'.encode()'
    told = f"{LEAVING_OUT} import requests\n{answer}\nprint(json.dumps([answer.text, answer.json()]))"

    assert json.loads(_output(told)) == ['{"a": "\u00fc"}', {"a": "\u00fc"}]
