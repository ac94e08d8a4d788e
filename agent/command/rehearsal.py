"""Several recorded hosts in one run, as a rehearsal at a desk: each has its plan, and one that fails stops no other."""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from agent.command.exits import Exit
from agent.command.picture.subjects import Subject
from agent.command.plan_tables import print_rehearsal
from agent.command.result import Act, Report
from agent.command.verb_forms import FailedHostForm, RehearsalForm, RehearsedForm
from agent.errors import USER_ERRORS
from agent.sync.json_form import encode
from agent.sync.outcome import Status

_GRAVITY = (Exit.DONE, Exit.DIFFERENCES, Exit.REFUSED, Exit.ERROR)  # of many hosts the gravest ending counts


_WHOLE = ("before", "after", "requests")  # parts of a plan that a rehearsal leaves out


def rehearse(act: Act, options: argparse.Namespace, archives: Sequence[Path]) -> Report:
    """Carry out a verb that writes nothing for each of these archives, under one configuration."""
    plans: list[RehearsedForm | FailedHostForm] = []
    endings = [Exit.DONE]
    remarks: list[str] = []
    subjects: list[Subject] = []
    for archive in archives:
        one = argparse.Namespace(**{**vars(options), "host": archive})
        try:
            report = act(one)
        except USER_ERRORS as error:
            plans.append({"archive": str(archive), "node": None, "outcome": Status.FAILED.value, "notes": [str(error)]})
            endings.append(Exit.ERROR)
            continue
        options.settings = one.settings  # read once for all
        assert report is not None
        plans.append(cast("RehearsedForm", {**_without_trees(encode(report.data)), "archive": str(archive)}))
        endings.append(Exit(report.exit))
        remarks += [f"{archive}: {line}" for line in report.remarks]
        subjects += report.subjects
    data: RehearsalForm = {"plans": plans, "summary": dict(Counter(one["outcome"] for one in plans))}
    return Report(
        data=data,
        table=print_rehearsal,
        exit=max(endings, key=_GRAVITY.index),
        remarks=remarks,
        subjects=subjects,
    )


def _without_trees(data: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in data.items() if name not in _WHOLE}
