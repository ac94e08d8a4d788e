"""The command: a verb's arguments, what it runs, and what it prints."""
