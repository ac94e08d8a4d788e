"""The tables and the plots of docs/scale.md, from what was simulated."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.scenarios import BEGIN_S, SEARCHED, Converted, Seen
from simulator.sizing import BEFORE_SIZE, Answer, Sized

BATCHES = ("1", "5", "10%", "100%")  # ansible/roles, fleet_batches
MINUTE_S, DAY_MIN = 60, 24 * 60
SMOOTH_S = 5  # of the curves
HAPPENS_MIN = {"placement was away": 3 * 60, "all agents restart": 9 * 60}  # on the day that is drawn
CONVERTS_MIN = 13 * 60
COLORS = ("#0b5fa5", "#c2410c", "#15803d", "#7c3aed", "#57534e")


def tables(found: Answer, real: Mapping[str, Mapping[str, float]], simulated: Mapping[str, Mapping[str, float]]) -> str:
    """Return all tables as Markdown, each below a marker that the page includes it by."""
    parts = {
        "needs": _table(
            ("hosts", "layout", "requests a second", "placement workers", "of them busy", "database cores busy",
             "Keystone workers", "of them busy", "hosts a search sees", "a boot's search and claim, s"),
            map(_needs, (*found.sizes, found.numa)),
        ),
        "incidents": _table(
            ("hosts", "layout", "what happens", "all well after, s", "most requests in a second",
             "slowest of 100 boots, s", "failed passes"),
            (row for one in (*found.sizes, found.numa) for row in _incidents(one)),
        ),
        "before": _table(
            (f"{BEFORE_SIZE:,} hosts, the same services", "all well after, s", "failed passes", "Keystone busy"),
            _compared(found),
        ),
        "conversion": _table(
            ("hosts at a time", "hosts an hour", f"hours for {BEFORE_SIZE:,}",
             "requests a second, all", "placement busy", "slowest of 100 boots, s", "attempts begun again"),
            map(_converted, found.converted),
        ),
        "validation": _table(("run", "figure", "real", "simulated", "apart"), _validated(real, simulated)),
    }  # fmt: skip
    return "".join(f"<!-- {name} -->\n\n{text}\n<!-- end of {name} -->\n\n" for name, text in parts.items())


def _needs(one: Sized) -> Sequence[object]:
    rest, setup = one.rest, one.setup
    return (
        f"{setup.hosts:,}", setup.layout, _mean(rest), setup.workers, f"{rest.busy:.0%}", f"{rest.database:.1f}",
        setup.keystone_workers, f"{rest.keystone:.0%}", f"{min(setup.hosts, SEARCHED):,}", f"{rest.boot_s(0.5):.2f}",
    )  # fmt: skip


def _incidents(one: Sized) -> Iterable[Sequence[object]]:
    for what, seen in (("placement was away for a minute", one.placement), ("all agents restart", one.fleet)):
        yield (
            f"{one.setup.hosts:,}", one.setup.layout, what, _well(seen), f"{seen.most:,}", f"{seen.boot_s(0.99):.1f}",
            f"{seen.failures:,}",
        )  # fmt: skip


def _compared(found: Answer) -> Iterable[Sequence[object]]:
    rows = (
        ("all agents restart, as the agent was", found.before[0]),
        (f"the tokens of {BEFORE_SIZE:,} logins end, as the agent was", found.before[1]),
        ("all agents restart, as it is", found.now[0]),
        (f"the tokens of {BEFORE_SIZE:,} logins are renewed, as it is", found.now[1]),
        *(
            (f"all start without a token, as after a power cut, {seen.setup.keystone_workers} Keystone workers", seen)
            for seen in found.cold
        ),
    )
    for what, seen in rows:
        yield what, _well(seen), f"{seen.failures:,}", f"{seen.keystone:.0%}"


def _converted(one: Converted) -> Sequence[object]:
    hosts, seen = BEFORE_SIZE, one.seen
    return (
        one.forks, f"{one.hosts_an_hour:,.0f}", f"{hosts / one.hosts_an_hour:.1f}", _mean(seen), f"{seen.busy:.0%}",
        f"{seen.boot_s(0.99):.1f}", f"{one.again} of {one.attempts:,}",
    )  # fmt: skip


def _validated(
    real: Mapping[str, Mapping[str, float]], simulated: Mapping[str, Mapping[str, float]]
) -> Iterable[Sequence[object]]:
    for run, figures in simulated.items():
        for name, found in figures.items():
            value = real[run][name]
            yield run, name, f"{value:g}", f"{found:.4g}", f"{found / value - 1:+.0%}"


def _mean(seen: Seen) -> str:
    return f"{sum(seen.requests.values()) / seen.ended_s:,.0f}"


def _well(seen: Seen) -> str:
    return "not within an hour" if seen.well_s is None else f"{seen.well_s:,.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] + ["---:"] * (len(head) - 1), *rows)]
    return "\n".join(lines) + "\n"


def draw(found: Answer, folder: Path) -> None:
    """
    Draw the plots as SVG files.

    Raises:
        OSError: the folder cannot be written.
    """
    mpl.rcParams |= {"svg.hashsalt": "scale", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    plots = {"needs": _draw_needs, "restart": _draw_restart, "day": _draw_day}
    for name, plot in plots.items():
        figure = Figure(figsize=(8, 3.8), layout="constrained")
        plot(figure, found)
        figure.savefig(folder / f"scale-{name}.svg", metadata={"Date": None})


def _draw_needs(figure: Figure, found: Answer) -> None:
    axes = figure.subplots()
    hosts = [one.setup.hosts for one in found.sizes]
    lines = {
        "placement workers": [one.setup.workers for one in found.sizes],
        "Keystone workers": [one.setup.keystone_workers for one in found.sizes],
        "hundreds of requests a second": [
            sum(one.rest.requests.values()) / one.rest.ended_s / 100 for one in found.sizes
        ],
    }
    for (label, values), color, marker in zip(lines.items(), COLORS, "os^", strict=False):
        axes.loglog(hosts, values, marker=marker, color=color, label=label)
    axes.set(xlabel="hosts", title="What a cloud needs for its agents, and for its boots")
    axes.set_xticks(hosts, [f"{one:,}" for one in hosts])
    axes.set_yticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes.set_ylabel("workers, or hundreds of requests")
    axes.minorticks_off()
    _finish(axes)


def _draw_restart(figure: Figure, found: Answer) -> None:
    left, right = figure.subplots(1, 2)
    for name, seen, color in (("as it was", found.before[0], COLORS[1]), ("as it is", found.now[0], COLORS[0])):
        seconds = range(int(BEGIN_S) - 60, min(int(BEGIN_S) + 600, int(seen.ended_s) - SMOOTH_S))
        at = [one - BEGIN_S for one in seconds]
        name += f": well after {seen.well_s:.0f} s" if seen.well_s else ": not within an hour"
        left.plot(at, _smooth(seen.logins, seconds), color=color, label=name)
        right.plot(at, _smooth(seen.requests, seconds), color=color, label=name)
    left.set(title="logins and validations a second", xlabel="seconds since all restarted")
    right.set(title="requests to placement a second", xlabel="seconds since all restarted")
    figure.suptitle(f"All {BEFORE_SIZE:,} agents restart at once")
    _finish(left)
    _finish(right)


def _draw_day(figure: Figure, found: Answer) -> None:
    axes = figure.subplots()
    for one, color in zip(reversed(found.sizes[::2]), COLORS, strict=False):
        axes.semilogy([minute / 60 for minute in range(DAY_MIN)], _day(one, found), color=color,
                      label=f"{one.setup.hosts:,} hosts")  # fmt: skip
    marks = {**HAPPENS_MIN, f"conversion, {found.converted[1].forks} at a time": CONVERTS_MIN}
    for what, minute in marks.items():
        axes.axvline(minute / 60, color="#a8a29e", linewidth=0.8, linestyle=":")
        axes.annotate(what, (minute / 60 + 0.15, 1.02), xycoords=("data", "axes fraction"), fontsize=8, color="#57534e")
    axes.set(xlabel="hour", ylabel="requests a second, by minute", xlim=(0, 24), ylim=(5, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks(range(0, 25, 3))
    _finish(axes)


def _day(one: Sized, found: Answer) -> list[float]:
    """Return requests a second by minute: the windows in the places where they happen, and rest between them."""
    rest = sum(one.rest.requests.values()) / one.rest.ended_s
    minutes = [rest] * DAY_MIN
    for what, seen in zip(HAPPENS_MIN, (one.placement, one.fleet), strict=True):
        for minute in range(int(BEGIN_S), int(seen.ended_s) - MINUTE_S, MINUTE_S):
            at = HAPPENS_MIN[what] + (minute - int(BEGIN_S)) // MINUTE_S
            minutes[at] = sum(seen.requests.get(minute + second, 0) for second in range(MINUTE_S)) / MINUTE_S
    converted = found.converted[1]
    more = sum(converted.seen.requests.values()) / converted.seen.ended_s
    same = next(size.rest for size in found.sizes if size.setup.hosts == BEFORE_SIZE)
    more -= sum(same.requests.values()) / same.ended_s
    for minute in range(CONVERTS_MIN, min(DAY_MIN, CONVERTS_MIN + int(60 * one.setup.hosts / converted.hosts_an_hour))):
        minutes[minute] = rest + more
    return minutes


def _smooth(by_second: Mapping[int, int], seconds: Iterable[int], over_s: int = SMOOTH_S) -> list[float]:
    return [sum(by_second.get(second + more, 0) for more in range(over_s)) / over_s for second in seconds]


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
