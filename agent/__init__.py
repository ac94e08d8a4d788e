"""The service around drivers and report client: configuration, state on disk, decisions about when, the command."""

VERSION = "0.1.0"
