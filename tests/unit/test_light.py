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
    "agent.bare_metal.run",
    "drivers.ironic.driver",
    "jsonschema",  # for files that operators write, as yaml
    "openstack",  # for Ironic
    "placement",  # the embedded one
    "rich",  # for terminals
    "yaml",
}


def test_a_service_loads_nothing_that_is_of_other_uses() -> None:
    program = f"import sys, json, {', '.join(SERVICE)}; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))

    assert {*SERVICE} <= loaded
    assert not loaded & FOR_OTHERS
