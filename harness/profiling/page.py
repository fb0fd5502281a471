"""A profile as one HTML file with the figures in it."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from statistics import median

from harness.profiling.limited import SECONDS, Largest
from harness.profiling.measure import Profile

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1c2430}
img{max-width:100%} table{border-collapse:collapse;font-variant-numeric:tabular-nums} td,th{padding:.2rem .8rem;text-align:right}
th{border-bottom:1px solid #9aa5b1} .quiet{color:#5b6773}"""


def write(profile: Profile, figures: list[Path], path: Path) -> None:
    """Writes the page."""
    parts = [f'<p class="quiet">{escape(profile.hardware)}</p>', *(f"<p>{escape(s)}</p>" for s in sentences(profile))]
    for figure in figures:
        data = base64.b64encode(figure.read_bytes()).decode()
        parts.append(f'<p><img alt="{escape(figure.stem)}" src="data:image/png;base64,{data}"></p>')
    parts.append(_table(profile))
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Profile of attention</title><style>{_STYLE}</style>'
    path.write_text(f"{head}<h1>Profile of attention</h1>{''.join(parts)}</html>\n", encoding="utf-8")


def sentences(profile: Profile) -> list[str]:
    """What the figures show, in plain sentences."""
    told = list(profile.problems)
    attention, decoding = profile.attention, profile.decoding
    if attention and attention.growth:
        told.append(attention.growth.told().replace("CPU time", "Time", 1))
    if attention and attention.left_out:
        told.append(attention.left_out)
    if attention and attention.peaks and attention.peaks[-1] and profile.memory:
        n, peak = attention.ns[-1], attention.peaks[-1]
        tables = peak / (4 * n * n)
        longest = int(n * (profile.memory / peak) ** 0.5)
        told.append(
            f"At n = {n} a call takes {peak / 2**20:.0f} MiB at its peak, as much as {tables:.1f} tables of n × n float32 "
            f"numbers; at that rate this machine's {profile.memory / 2**30:.0f} GiB are full at about n = {longest}."
        )
    if profile.largest:
        told.append(_ran_out(profile.largest))
    if decoding:
        last = min(max(decoding.cached), max(decoding.recomputed))
        near = [n for n in decoding.cached if last - 10 < n <= last]
        cached, recomputed = (median(c[n] for n in near) for c in (decoding.cached, decoding.recomputed))
        told.append(
            f"At {last} tokens a step takes {1e3 * cached:.3g} ms with the cache and {1e3 * recomputed:.3g} ms without it: "
            f"{recomputed / cached:.0f} times as long. The prefill of {max(decoding.prefill)} tokens takes "
            f"{1e3 * decoding.prefill[max(decoding.prefill)]:.3g} ms."
        )
    return told


def _ran_out(found: Largest) -> str:
    """Where the search for the largest n ended, and what ran out there."""
    text = (
        f"In a process that may take {found.limit / 2**20:.0f} MiB more than its libraries, the largest n is {found.n}"
    )
    if found.resource == "memory":
        tables = found.limit / (4 * found.n**2)
        return f"{text}: at n = {found.beyond} memory runs out. {tables:.1f} tables of that n are as much as the limit."
    if found.resource == "time":
        return f"{text}: at n = {found.beyond} a call takes more than {SECONDS:g} s, and memory has not run out."
    return f"{text} or more: nothing ran out up to there."


def _table(profile: Profile) -> str:
    if not profile.attention:
        return ""
    a = profile.attention
    rows = "".join(
        f"<tr><td>{n}</td><td>{1e3 * s:.3g}</td><td>{p / 2**20:.3g}</td></tr>"
        for n, s, p in zip(a.ns, a.seconds, a.peaks, strict=True)
    )
    return f"<table><tr><th>n</th><th>ms for one call</th><th>MiB at the peak</th></tr>{rows}</table>"
