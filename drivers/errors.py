"""What can go wrong on the host, named by what the caller must do."""


class DiscoveryError(Exception):
    """The host could not be read whole: change nothing; the message is one line: what, where and what to do next."""


class MalformedFact(DiscoveryError):
    """A file or answer is not in its documented form."""


class Vanished(DiscoveryError):
    """Something went away between listing and reading it: survey again."""


class PolicyError(Exception):
    """The configuration contradicts this host: a person must change one of them."""
