"""The fake driver: hosts that exist only as archives, for demos, tests of scale, and tests of other projects."""
