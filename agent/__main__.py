"""Run the command as ``python -m agent``."""

from agent.command.arguments import main

if __name__ == "__main__":
    raise SystemExit(main())
