"""Several recorded hosts in one run, as a rehearsal at a desk: each has its plan, and one that fails stops no other."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agent.command.exits import Exit
from agent.command.picture.subjects import Subject
from agent.command.plan_results import Foreseen, Rehearsal, Rehearsed
from agent.command.plan_tables import print_rehearsal
from agent.command.result import Act, Report
from agent.errors import USER_ERRORS
from agent.sync.json_form import encode
from agent.sync.outcome import Status

_GRAVITY = (Exit.DONE, Exit.DIFFERENCES, Exit.REFUSED, Exit.ERROR)  # of many hosts the gravest ending counts


_WHOLE = ("before", "after", "requests")  # parts of a plan that a rehearsal leaves out


def rehearse(act: Act, options: argparse.Namespace, archives: Sequence[Path]) -> Report:
    """Carry out a verb that writes nothing for each of these archives, under one configuration."""
    plans: list[Rehearsed] = []
    endings = [Exit.DONE]
    remarks: list[str] = []
    subjects: list[Subject] = []
    for archive in archives:
        one = argparse.Namespace(**{**vars(options), "host": archive})
        try:
            report = act(one)
        except USER_ERRORS as error:
            plans.append(_failed(archive, error))
            endings.append(Exit.ERROR)
            continue
        options.settings = one.settings  # read once for all
        assert report is not None
        plans += [_rehearsed(archive, one) for one in report.each or (report.data,) if isinstance(one, Foreseen)]
        endings.append(Exit(report.exit))
        remarks += [f"{archive}: {line}" for line in report.remarks]
        subjects += report.subjects
    return Report(
        data=Rehearsal(tuple(plans), Counter(one.outcome.value for one in plans)),
        table=print_rehearsal,
        exit=max(endings, key=_GRAVITY.index),
        remarks=remarks,
        subjects=subjects,
    )


def _rehearsed(archive: Path, shown: Foreseen) -> Rehearsed:
    return Rehearsed(
        archive=archive,
        node=shown.node,
        outcome=shown.outcome,
        notes=shown.notes,
        digest=shown.forecast.shown.digest,
        guests=len({move.consumer for move in shown.forecast.shown.plan.moves}),
        form={name: value for name, value in encode(shown).items() if name not in _WHOLE},
    )


def _failed(archive: Path, error: Exception) -> Rehearsed:
    form = {"node": None, "outcome": Status.FAILED.value, "notes": [str(error)]}
    return Rehearsed(archive=archive, node=None, outcome=Status.FAILED, notes=(str(error),), form=form)
