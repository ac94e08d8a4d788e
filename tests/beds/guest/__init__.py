"""A full guest: Debian under emulation, with real SR-IOV cards on two cells, real mediated devices, real systemd."""
