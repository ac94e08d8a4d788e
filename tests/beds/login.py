"""A libvirtd that asks who comes, by SASL or by certificates, as that of kolla-ansible does."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.libvirtd import serving
from beds.process import LOOPBACK, free_port
from beds.tls import Certificates

NAME, PASSWORD = "nova", "secret-of-the-host"
SASL_CONF = """\
mech_list: {mechanism}
sasldb_path: {database}
"""
AUTH_CONF = """\
[credentials-default]
authname={name}
password={password}

[auth-libvirt-default]
credentials=default
"""
LISTENING = """\
listen_addr = "{address}"
listen_tcp = {tcp}
listen_tls = {tls}
{kind}_port = "{port}"
auth_tcp = "sasl"
auth_tls = "{auth_tls}"
"""
KEYS = """\
key_file = "{key}"
cert_file = "{certificate}"
ca_file = "{ca}"
"""


@contextmanager
def asking(directory: Path, mechanism: str = "", certificates: Certificates | None = None) -> Iterator[str]:
    """
    The URI, on loopback, of a libvirtd that lets in who has the password by this SASL mechanism.

    With ``certificates`` it is TLS, and who comes needs one of the same authority (``client_keys``).
    """
    directory.mkdir()
    database, port = directory / "passwords.db", free_port()
    subprocess.run(
        ("saslpasswd2", "-p", "-c", "-a", "libvirt", "-f", str(database), NAME), input=PASSWORD, text=True, check=True
    )
    config = SASL_CONF.format(mechanism=mechanism, database=database)
    (directory / "libvirt.conf").write_text(config, encoding="utf-8")
    kind = "tls" if certificates else "tcp"
    listening = LISTENING.format(
        address=LOOPBACK,
        tcp=int(kind == "tcp"),
        tls=int(kind == "tls"),
        kind=kind,
        port=port,
        auth_tls="sasl" if mechanism else "none",
    )
    if certificates:
        listening += KEYS.format(key=certificates.key, certificate=certificates.certificate, ca=certificates.ca)
    with serving(directory / "libvirtd", listening=listening, environment={"SASL_CONF_PATH": str(directory)}):
        yield f"qemu+{kind}://{LOOPBACK}:{port}/system"


def auth_conf(path: Path, password: str = PASSWORD) -> Path:
    """Write a file that tells the name and a password to every libvirtd (libvirt.org/auth.html)."""
    path.write_text(AUTH_CONF.format(name=NAME, password=password), encoding="utf-8")
    return path


def client_keys(folder: Path, certificates: Certificates) -> Path:
    """Make a folder for ``pkipath`` in the URI, as libvirt names its files (libvirt.org/kbase/tlscerts.html)."""
    folder.mkdir()
    names = ("cacert.pem", "clientcert.pem", "clientkey.pem")
    for name, path in zip(names, (certificates.ca, certificates.certificate, certificates.key), strict=True):
        (folder / name).symlink_to(path)
    return folder
