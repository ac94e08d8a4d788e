"""The ways to placement, Keystone and the driver, as the configuration chooses them."""
