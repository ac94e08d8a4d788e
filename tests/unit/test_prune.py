"""A guest's XML in a case or a host archive: what the agent reads of it, and nothing else."""

from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from drivers.errors import MalformedFact
from drivers.host.archive import Document
from drivers.libvirt.domains import parse_guest
from drivers.libvirt.prune import prune_domain

REAL = sorted(Path(__file__).parents[1].glob("hosts/*/archive/libvirt/domains/*.xml"))
SECRETS = """
<domain type='kvm' id='7' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>instance-1</name><uuid>4a5f7e9c-0d27-4e43-8f6f-2a3b1c9d8e70</uuid><title>hidden</title>
  <description>hidden</description>
  <metadata>
    <n:instance xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.1'><n:name>hidden</n:name>
      <n:owner><n:user uuid='u'/><n:project uuid='p'/></n:owner></n:instance>
    <o:note xmlns:o='http://other.example/'>hidden</o:note>
  </metadata>
  <memory unit='KiB'>1048576</memory><vcpu>2</vcpu>
  <sysinfo type='fwcfg'><entry name='opt/com.coreos/config'>hidden</entry></sysinfo>
  <sysinfo type='smbios'><oemStrings><entry>hidden</entry></oemStrings></sysinfo>
  <os><type>hvm</type><cmdline>password=hidden</cmdline><kernel>/hidden</kernel></os>
  <launchSecurity type='sev'><policy>0x1</policy><session>hidden</session><dhCert>hidden</dhCert></launchSecurity>
  <devices>
    <disk type='network'><source protocol='https' name='x' query='token=hidden'><host name='h'/></source></disk>
    <disk type='nvme'><source type='pci'><address domain='0' bus='1' slot='0' function='0'/>
      <encryption format='luks'><secret type='passphrase' uuid='hidden'/></encryption></source></disk>
    <hostdev type='scsi'><source protocol='iscsi' name='hidden'><auth username='hidden'/></source></hostdev>
    <hostdev type='pci'><source><address domain='0' bus='2' slot='0' function='0'/></source>
      <rom file='/hidden'/></hostdev>
    <graphics type='vnc' passwd='hidden'/>
    <serial type='tcp'><source host='hidden'/></serial>
  </devices>
  <qemu:commandline><qemu:env name='P' value='hidden'/></qemu:commandline>
</domain>
"""


@pytest.mark.parametrize(
    "text", [SECRETS, *(path.read_text() for path in REAL)], ids=["secrets", *(["real"] * len(REAL))]
)
def test_a_pruned_guest_is_the_same_guest(text: str) -> None:
    whole = Document(text, "guest.xml")

    pruned = Document(prune_domain(whole), "guest.xml")

    one, other = (parse_guest(document, "u", "running") for document in (pruned, whole))
    assert (one, one.machine) == (other, other.machine)
    assert one.name == fromstring(text).findtext("name")
    assert prune_domain(pruned) == pruned.text


def test_a_pruned_guest_has_no_secret() -> None:
    pruned = prune_domain(Document(SECRETS, "guest.xml"))

    assert "hidden" not in pruned
    assert "instance-1" in pruned


def test_what_is_no_domain_is_refused() -> None:
    with pytest.raises(MalformedFact, match=r"guest\.xml"):
        prune_domain(Document("<network/>", "guest.xml"))


def test_a_guest_of_elements_in_elements_without_end_is_refused() -> None:
    deep = f"<domain><cpu>{'<a>' * 50_000}{'</a>' * 50_000}</cpu></domain>"

    with pytest.raises(MalformedFact, match=r"guest\.xml has elements that are nested too deeply"):
        prune_domain(Document(deep, "guest.xml"))
