"""Decide what a pass would do, and whether it may. Pure: reads and writes nothing."""
