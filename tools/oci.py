"""
Packs the tar of a root folder as an image: one layer, in the layout of the OCI image specification 1.0.

oci.py ROOT.tar IMAGE.tar VERSION ARCHITECTURE
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

NAME = "compute-node-agent"
TYPES = "application/vnd.oci.image"
CHUNK = 1 << 20
CONFIG = {
    "User": NAME,
    "Entrypoint": ["/usr/bin/compute-node-agent"],
    "Cmd": ["run"],
    "Env": [
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "MALLOC_ARENA_MAX=1",  # as the systemd unit has it
    ],
    "WorkingDir": "/",
}


def pack(root: Path, image: Path, version: str, architecture: str) -> None:
    """Write the image; its tag is the version without the release that it was built on."""
    layer = image.with_suffix(".layer")
    whole, packed = hashlib.sha256(), hashlib.sha256()
    with (
        root.open("rb") as source,
        layer.open("wb") as target,
        gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6, mtime=0) as squeezed,
    ):
        while data := source.read(CHUNK):
            whole.update(data)
            squeezed.write(data)
    with layer.open("rb") as source:
        while data := source.read(CHUNK):
            packed.update(data)
    config = encode(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {**CONFIG, "Labels": {"org.opencontainers.image.version": version}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{whole.hexdigest()}"]},
        }
    )
    size = layer.stat().st_size
    layers = [{"mediaType": f"{TYPES}.layer.v1.tar+gzip", "digest": f"sha256:{packed.hexdigest()}", "size": size}]
    manifest = encode({"schemaVersion": 2, "config": named(f"{TYPES}.config.v1+json", config), "layers": layers})
    index = named(f"{TYPES}.manifest.v1+json", manifest)
    index["annotations"] = {"org.opencontainers.image.ref.name": f"{NAME}:{version.partition('+')[0]}"}
    with tarfile.open(image, "w") as archive:
        add(archive, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        add(archive, "index.json", encode({"schemaVersion": 2, "manifests": [index]}))
        for blob in (config, manifest):
            add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
        archive.add(layer, f"blobs/sha256/{packed.hexdigest()}")
    layer.unlink()


def named(kind: str, blob: bytes) -> dict[str, Any]:
    """A blob as another one names it."""
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def encode(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True).encode()


def add(archive: tarfile.TarFile, name: str, blob: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(blob)
    archive.addfile(member, io.BytesIO(blob))


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
