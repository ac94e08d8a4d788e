"""What a person who waits is told."""

from agent.connect.counts import Counts


def test_what_was_read_and_sent_is_told_and_of_how_much_as_far_as_that_is_known() -> None:
    counts = Counts()
    assert counts.told(0.4) == "0 s"
    counts.answered("getDomains", 0.1, True)
    counts.requested("GET", "/resource_providers", 200, 0.1)
    assert counts.told(2.0) == "1 answers of libvirt, 1 requests, 2 s"
    counts.expect(3)
    assert counts.told(2.6) == "1 answers of libvirt, 1 of 4 requests, 3 s"
    for _ in range(5):
        counts.requested("GET", "/traits", 200, 0.1)

    assert counts.told(9.0) == "1 answers of libvirt, 6 requests, 9 s"
    counts.expect(1)
    assert counts.told(9.0) == "1 answers of libvirt, 6 of 7 requests, 9 s"
