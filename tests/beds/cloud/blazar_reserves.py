"""
Runs in Blazar's virtual environment: reserves units of a host by Blazar's own code for placement.

Usage: blazar_reserves.py BLAZAR_CONF HOST RESERVATION_UUID AMOUNT.
"""

import sys

import blazar.config
import blazar.utils.openstack.keystone  # noqa: F401 - these two have the options of the login
from blazar.utils.openstack.placement import BlazarPlacementClient
from oslo_config import cfg

config, host, reservation, amount = sys.argv[1:]
cfg.CONF(["--config-file", config], project="blazar")
client = BlazarPlacementClient()
if client.get_resource_provider(f"blazar_{host}") is None:
    client.create_reservation_provider(host)
client.create_reservation_class(reservation)
client.update_reservation_inventory(host, reservation, int(amount))
