"""The verb ``run``: run the service, which sets up its log as configured."""

import argparse
from dataclasses import replace

from agent.command.result import choice_of
from agent.service.loop import run_service


def run(options: argparse.Namespace) -> None:
    """Run the service until a signal ends it; errors as ``run_service``."""
    run_service(replace(choice_of(options), service=True), options.verbose)
