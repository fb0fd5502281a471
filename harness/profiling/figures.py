"""The three figures of a profile, as PNG files, and as SVG for the page. Matplotlib is needed here alone.

A series has one colour here, on the grader's page and in make_report.py: blue is what a submission does with a cache, or does at
all, and brown what is recomputed, or a limit.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import median
from typing import Any

from harness.profiling.limited import Largest
from harness.profiling.measure import Attention, Decoding, Profile

INK, QUIET, OTHER = "#1f55a5", "#5d6570", "#b3541e"
TEXT = "#1c2430"
MIB = 2.0**20


def draw(profile: Profile, folder: Path) -> list[Path]:
    """Writes the figures there is something to draw for, and gives their paths. Raises ImportError without Matplotlib."""
    drawn = []
    if profile.attention and len(profile.attention.ns) > 1:
        drawn.append(_save(folder / "loglog.png", _loglog, profile.attention))
        drawn.append(_save(folder / "memory.png", _memory, profile.attention, profile.largest))
    if profile.decoding:
        drawn.append(_save(folder / "latency.png", _latency, profile.decoding))
    return drawn


def _save(path: Path, draw: Any, *data: Any) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    # As wide as a phone shows it, so that its words keep their size there
    style = {"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.size": 11, "axes.titlesize": 12}
    style |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT)
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(4.7, 6.4 if draw is _latency else 4.0), dpi=180, layout="constrained")
        draw(figure, *data)
        figure.savefig(path, facecolor="white")
        figure.savefig(path.with_suffix(".svg"), transparent=True, metadata={"Date": None})
    return path


def _legend(axes: Any) -> None:
    axes.legend(frameon=False, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _loglog(figure: Any, attention: Attention) -> None:
    axes = figure.add_subplot()
    ns, seconds = attention.ns, attention.seconds
    found = attention.growth
    if found:
        middle = (math.exp(sum(map(math.log, values)) / len(values)) for values in (ns, seconds))
        at, of = middle
        line = [of * (n / at) ** found.exponent for n in ns]
        edges = [sorted(of * (n / at) ** e for e in (found.low, found.high)) for n in ns]
        axes.fill_between(ns, [e[0] for e in edges], [e[1] for e in edges], color=INK, alpha=0.12, lw=0)
        label = f"fit: n to the {found.exponent:.2f}\n({found.low:.2f} to {found.high:.2f}, 95%)"
        axes.plot(ns, line, color=INK, lw=1.5, label=label)
    axes.plot(ns, [seconds[-1] * (n / ns[-1]) ** 2 for n in ns], ":", color=QUIET, label="n²")
    axes.plot(ns, seconds, "o", color=INK, label="median seconds of one call")
    axes.set(xscale="log", yscale="log", xlabel="n (queries and keys)", ylabel="seconds", title="Time of attention")
    axes.set_xticks(ns, [str(n) for n in ns], minor=False)
    axes.minorticks_off()
    _legend(axes)


def _memory(figure: Any, attention: Attention, found: Largest | None) -> None:
    axes = figure.add_subplot()
    ns = attention.ns
    axes.plot(ns, [peak / MIB for peak in attention.peaks], "o-", color=INK, label="peak of one call, as traced")
    axes.plot(ns, [4 * n * n / MIB for n in ns], ":", color=QUIET, label="one n × n table of float32")
    if found:
        label = f"limit: {found.limit / 2**20:.0f} MiB,\nwhich hold up to n = {found.n}"
        axes.axhline(found.limit / MIB, color=OTHER, lw=1, label=label)
        axes.plot([found.n], [found.limit / MIB], "o", color=OTHER)
    axes.set(xscale="log", yscale="log", xlabel="n (queries and keys)", ylabel="MiB", title="Memory of attention")
    axes.set_xticks(ns, [str(n) for n in ns], minor=False)
    axes.minorticks_off()
    _legend(axes)


def _latency(figure: Any, decoding: Decoding) -> None:
    steps, whole = figure.subplots(2, 1, height_ratios=(3, 2))
    curves = ((decoding.recomputed, OTHER, "recomputed: forward"), (decoding.cached, INK, "cached: decode_step"))
    for curve, color, label in curves:
        seconds = list(curve.values())
        steps.plot(list(curve), seconds, color=color, lw=0.6, alpha=0.35)
        steps.plot(
            list(curve), [median(seconds[max(i - 4, 0) : i + 5]) for i in range(len(seconds))], color=color, label=label
        )
    steps.set(yscale="log", xlabel="tokens so far", ylabel="seconds for one token", title="Decode")
    _legend(steps)
    whole.plot(list(decoding.prefill), list(decoding.prefill.values()), "o-", color=INK)
    whole.set(xlabel="tokens of the prompt", ylabel="seconds for all of it", title="Prefill", ylim=(0, None))
    whole.spines[["top", "right"]].set_visible(False)
