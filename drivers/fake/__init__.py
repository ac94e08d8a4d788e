"""The fake driver: a host that exists only as an archive, for demos, and tests of other projects."""
