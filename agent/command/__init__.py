"""The command: parse the arguments of a verb, run it, and print its result."""
