"""Connects to placement, Ironic and the driver, as configuration and command line choose them."""
