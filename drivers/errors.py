"""
What can go wrong on the host, named by what the caller must do.

DiscoveryError      the host could not be read: keep the last good facts, change nothing
    MalformedFact   something was read that is not in its documented form
    Vanished        something went away between listing and reading it: survey again
PolicyError         the configuration contradicts this host: a person must change one of them
"""


class DiscoveryError(Exception):
    """The host could not be read whole; the message is one line that says what, where and what to do next."""


class MalformedFact(DiscoveryError):
    """A file or answer is not in its documented form."""


class Vanished(DiscoveryError):
    """Something went away between listing and reading it: survey again."""


class PolicyError(Exception):
    """The configuration contradicts this host: a person must change one of them."""
