"""The command and the service: configuration, state on disk, and when a pass runs; drivers and client do the rest."""

VERSION = "0.1.0"
