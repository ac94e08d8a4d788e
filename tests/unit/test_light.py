"""What the service of a hypervisor does not load."""

import json
import subprocess
import sys

SERVICE = ("agent.service.loop", "agent.connect.keystone", "drivers.libvirt.driver", "drivers.host.udev")
FOR_OTHERS = {
    "yaml": "files that operators write",
    "jsonschema": "the same",
    "openstack": "Ironic",
    "agent.bare_metal.run": "bare-metal nodes",
    "drivers.ironic.driver": "bare-metal nodes",
    "placement": "the embedded placement",
    "rich": "terminals",
}


def test_a_service_loads_nothing_that_is_of_other_uses() -> None:
    program = f"import sys, json, {', '.join(SERVICE)}; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))

    assert {*SERVICE} <= loaded
    assert not loaded & FOR_OTHERS.keys()
