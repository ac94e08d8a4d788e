"""A clock for tests."""


class Clock:
    """A monotonic clock that stands until it is set; in seconds."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
