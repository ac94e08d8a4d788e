"""Hosts that exist only as files: a /sys, /proc and udev database that libvirt, udev and psutil take for a machine."""
