#!/bin/bash
# image.sh DIR: a disk image with Debian 12, libvirt, sample mediated devices and what the agent needs; and a QEMU that
# has an SR-IOV network card (igb, from 8.0 on). About 90 s and 3 GB; nothing is done where DIR has them already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$here/../../.." && pwd)
mkdir -p "$1"
cd "$1"
wanted=$(cat "$here/image.sh" "$project/setup.py" | sha256sum)
[ "$(cat wanted 2> /dev/null)" = "$wanted" ] && exit
rm -f wanted

quietly() {  # COMMAND...: its output is shown when it fails only
  "$@" > step.log 2>&1 || { tail -n 30 step.log >&2; echo "failed: $*" >&2; exit 1; }
}
say() { echo "[$SECONDS s] $*"; }

export DEBIAN_FRONTEND=noninteractive
packages="mmdebstrap qemu-utils qemu-system-x86 e2fsprogs xz-utils make gcc bc openssh-client"
quietly apt-get update
# shellcheck disable=SC2086
quietly apt-get install -y --no-install-recommends $packages
kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends/ { sub("linux-image-", "", $2); print $2 }')
# Where this machine takes its packages from; the repository of a suite is a word of its own in either form of file.
sources=$(find /etc/apt -name '*.list' -o -name '*.sources')
repository() {  # ENDING: the first repository whose address ends so
  # shellcheck disable=SC2086
  cat $sources | tr ' ' '\n' | sed 's|/$||' | grep -E "^https?://.*/$1\$" | head -n 1
}
mirror=$(repository debian)
security=$(repository debian-security)

say "QEMU from bookworm-backports, beside the system's own"
mkdir -p backports/{lists/partial,parts,cache/archives/partial}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] $mirror bookworm-backports main" > backports/sources.list
apt_backports=(apt-get -o "Dir::Etc::sourcelist=$PWD/backports/sources.list" -o "Dir::Etc::sourceparts=$PWD/backports/parts"
  -o "Dir::State::lists=$PWD/backports/lists" -o "Dir::Cache=$PWD/backports/cache" -o APT::Sandbox::User=root)
quietly "${apt_backports[@]}" update
(cd backports && for package in qemu-system-x86 qemu-system-common qemu-system-data seabios; do
  quietly "${apt_backports[@]}" download "$package/bookworm-backports"
done)
rm -rf qemu
for package in backports/*.deb; do dpkg-deb -x "$package" qemu; done

say "the guest's file system, kernel $kernel"
quietly mmdebstrap --variant=apt --aptopt='Apt::Install-Recommends "false"' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --include="systemd,systemd-sysv,udev,dbus,libvirt-daemon-system,libvirt-clients,libvirt-daemon-driver-qemu,libvirt0,\
qemu-system-x86,python3,openssh-server,iproute2,kmod,linux-image-$kernel,initramfs-tools,zstd,dmidecode,podman,crun" \
  bookworm root.tar "deb $mirror bookworm main" "deb $mirror bookworm-updates main" "deb $security bookworm-security main" &
tree=$!

say "the kernel's sample drivers of mediated devices"
quietly apt-get install -y --no-install-recommends "linux-headers-$kernel" linux-source-6.1 libelf-dev
rm -rf samples
mkdir samples
tar -xJf /usr/src/linux-source-6.1.tar.xz --strip-components=3 -C samples linux-source-6.1/samples/vfio-mdev
echo 'obj-m += mtty.o' > samples/Makefile
quietly make -C "/lib/modules/$kernel/build" "M=$PWD/samples" modules
rm -rf site
quietly "$project/.venv/bin/pip" install -q --target site "$project[libvirt,embedded]"

wait $tree
say "the disk"
[ -f key ] || ssh-keygen -q -t ed25519 -N '' -f key
rm -rf root
mkdir root
tar -xf root.tar -C root --numeric-owner
echo full-guest > root/etc/hostname
printf '127.0.0.1 localhost full-guest\n' > root/etc/hosts
printf '/dev/vda / ext4 defaults,noatime 0 0\n' > root/etc/fstab
mkdir -p root/root/.ssh root/opt "root/lib/modules/$kernel/extra"
cp key.pub root/root/.ssh/authorized_keys
chmod 700 root/root/.ssh
printf '[Match]\nMACAddress=52:54:00:00:00:01\n[Network]\nAddress=10.0.2.15/24\n' > root/etc/systemd/network/10-ssh.network
printf 'mtty\nvfio-pci\n' > root/etc/modules-load.d/devices.conf
echo 'options vfio_iommu_type1 allow_unsafe_interrupts=1' > root/etc/modprobe.d/vfio.conf  # no remapping here
cp samples/mtty.ko "root/lib/modules/$kernel/extra/"
printf 'user = "root"\ngroup = "root"\nsecurity_driver = "none"\nremember_owner = 0\n' >> root/etc/libvirt/qemu.conf
printf 'auth_unix_rw = "none"\nauth_unix_ro = "none"\n' >> root/etc/libvirt/libvirtd.conf
sed -i 's/^MODULES=.*/MODULES=list/' root/etc/initramfs-tools/initramfs.conf
printf 'virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n' > root/etc/initramfs-tools/modules
cp -a site root/opt/site
quietly chroot root depmod "$kernel"
quietly chroot root update-initramfs -u -k "$kernel"
quietly chroot root systemctl enable systemd-networkd ssh libvirtd.service
quietly chroot root systemctl set-default multi-user.target
quietly chroot root systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service \
  fstrim.timer systemd-timesyncd.service dpkg-db-backup.timer libvirt-guests.service systemd-networkd-wait-online.service
rm -f root/etc/libvirt/qemu/networks/autostart/default.xml
cp "root/boot/vmlinuz-$kernel" vmlinuz
cp "root/boot/initrd.img-$kernel" initrd.img
rm -rf root/var/cache/apt/archives/*.deb root/var/lib/apt/lists/*
rm -f disk.img
truncate -s 3G disk.img
quietly mke2fs -q -t ext4 -O ^has_journal -d root disk.img
rm -rf root root.tar samples
echo "$wanted" > wanted
say "done"
