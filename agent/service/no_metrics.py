"""In place of the metrics where nobody can read them: counts nothing."""

from collections.abc import Mapping


class NoMetrics:
    """Takes what ``Metrics`` takes."""

    def passed(self, outcome: str, seconds: float) -> None:
        """Count nothing."""

    def asked(self, source: str, seconds: float, error: str) -> None:
        """Count nothing."""

    def requested(self, method: str, code: int, seconds: float) -> None:
        """Count nothing."""

    def operated(self, source: str, operation: str, seconds: float, served: bool) -> None:
        """Count nothing."""

    def found(self, findings: dict[str, int]) -> None:
        """Set nothing."""

    def stocked(self, **sides: Mapping[str, int]) -> None:
        """Set nothing."""

    def broke(self, law: str) -> None:
        """Count nothing."""

    def held(self, stocks: Mapping[tuple[str, str], object]) -> None:
        """Set nothing."""

    def done(self, lost: int) -> None:
        """Note nothing."""
