"""The fake driver: hosts that exist only as archives, for demos, scale tests and other people's tests."""
