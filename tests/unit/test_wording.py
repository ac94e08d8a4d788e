"""The words that tables and pictures share."""

from agent.command.wording import alike, families, grouped


def test_up_to_three_things_alike_are_named_and_of_more_the_ends() -> None:
    assert alike(["a", "b", "c"]) == "a, b, c"
    assert alike(["a", "b", "c", "d"]) == "a, b … d (4 alike)"


def test_things_of_one_key_are_together_and_those_without_a_key_alone() -> None:
    assert grouped([("x", 1), (None, 2), ("y", 3), (None, 4), ("x", 5)]) == [[1, 5], [2], [3], [4]]


def test_traits_are_grouped_by_the_longest_prefix_that_is_known() -> None:
    traits = ["HW_CPU_X86_AVX", "HW_CPU_X86_SSE", "HW_NUMA_ROOT", "CUSTOM_GOLD", "OWNER_NOVA"]

    assert families(traits) == [
        ("", "OWNER_NOVA"),
        ("CUSTOM_", "GOLD"),
        ("HW_", "NUMA_ROOT"),
        ("HW_CPU_X86_… ", "AVX SSE"),
    ]
