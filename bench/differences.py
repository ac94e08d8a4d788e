"""
Every way in which the traits of our root may differ from nova's by design, with the reason.

A difference that is not here fails the bench. Each reason stands under what its group has in common.
"""

Reasons = dict[str, dict[str, str]]  # what a group has in common -> trait -> reason

PROMISES = (
    "what nova's own service promises is nova's to say; reported only where the operator lists it in "
    "[agent] root_traits"
)
WRITERS_MARK = "each writer marks its providers with a trait of its own"

NOVA_ONLY: Reasons = {
    PROMISES: {
        "COMPUTE_ACCELERATORS": "nova-compute binds the accelerator requests of Cyborg",
        "COMPUTE_DEVICE_TAGGING": "nova-compute tells guests the tags of their devices in its metadata",
        "COMPUTE_EPHEMERAL_ENCRYPTION": "nova-compute encrypts the local disks that it makes",
        "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS": "as above, with LUKS",
        "COMPUTE_NET_ATTACH_INTERFACE": "nova-compute plugs ports into running guests",
        "COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG": "as above, and tells their tags",
        "COMPUTE_REMOTE_MANAGED_PORTS": "nova-compute handles the ports of SmartNICs, where [pci] offers some",
        "COMPUTE_RESCUE_BFV": "nova-compute can rescue a guest that boots from a volume",
        "COMPUTE_SAME_HOST_COLD_MIGRATE": "nova-compute can cold-migrate a guest to its own host",
        "COMPUTE_SOCKET_PCI_NUMA_AFFINITY": "nova's NUMA code knows the PCI affinity policy socket",
        "COMPUTE_TRUSTED_CERTS": "nova-compute verifies signed images",
        "COMPUTE_VOLUME_ATTACH_WITH_TAG": "nova-compute attaches volumes of Cinder, and tells their tags",
        "COMPUTE_VOLUME_EXTEND": "nova-compute grows attached volumes of Cinder",
        "COMPUTE_VOLUME_MULTI_ATTACH": "nova-compute attaches volumes of Cinder to several guests",
    },
    WRITERS_MARK: {"OWNER_NOVA": "nova is not who writes this root"},
}

OURS_ONLY: Reasons = {
    WRITERS_MARK: {"CUSTOM_OWNER_COMPUTE_NODE_AGENT": "ours; no standard trait says so"},
}

GROWING_MEMORY = (
    "the two looks are a minute apart, and a virtual machine may be given or lose memory while it runs: "
    "node 0 then has another size at each look"
)


def reason_of(reasons: Reasons, trait: str) -> str | None:
    """Why a trait is on one side only; None when nobody has said."""
    return next((traits[trait] for traits in reasons.values() if trait in traits), None)
