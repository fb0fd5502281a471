"""A profile as one HTML file with the figures in it."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from statistics import median

from harness.profiling.figures import INK, OTHER, QUIET, TEXT
from harness.profiling.limited import SECONDS, Largest
from harness.profiling.measure import Profile

_STYLE = """:root{color-scheme:light dark;--page:#fff;--text:#1c2430;--quiet:#5d6570;--ink:#1f55a5;--other:#b3541e}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--text:#e7e9ec;--quiet:#a2abb6;--ink:#8db7ff;--other:#f0955f}}
body{font:1rem/1.55 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;background:var(--page);color:var(--text)}
h1{line-height:1.2} p{max-width:68ch;overflow-wrap:anywhere} .quiet{color:var(--quiet)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,21rem),1fr));gap:1.5rem;align-items:start;margin:1.5rem 0}
figure{margin:0} svg{width:100%;height:auto;display:block}
table{border-collapse:collapse;font-variant-numeric:tabular-nums} td,th{padding:.25rem .8rem;text-align:right}
th{border-bottom:1px solid var(--quiet)}"""

_COLOURS = {INK: "var(--ink)", OTHER: "var(--other)", QUIET: "var(--quiet)", TEXT: "var(--text)"}


def write(profile: Profile, figures: list[Path], path: Path) -> None:
    """Writes the page."""
    parts = [f'<p class="quiet">{escape(profile.hardware)}</p>', *(f"<p>{_whole(s)}</p>" for s in sentences(profile))]
    if figures:
        drawn = "".join(_inline(figure.with_suffix(".svg")) for figure in figures)
        parts.append(f'<div class="figures">{drawn}{_table(profile)}</div>')
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
    head += f"<title>Profile of attention</title><style>{_STYLE}</style>"
    path.write_text(f"{head}<h1>Profile of attention</h1>{''.join(parts)}</html>\n", encoding="utf-8")


def _whole(sentence: str) -> str:
    """A sentence in which no number is parted from what it belongs to."""
    return re.sub(r" ([=±]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", escape(sentence))


def _inline(path: Path) -> str:
    """A figure as a part of the page, which gives it its colours and its letters; its ids are its own."""
    svg = path.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    svg = re.sub(r'\bid="', f'id="{path.stem}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{path.stem}-", svg)
    for colour, variable in _COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", svg)
    return f'<figure role="img" aria-label="{escape(path.stem)}">{svg}</figure>'


def seconds_told(seconds: float) -> str:
    """In the unit that keeps it short: 2.09 s, 12.3 ms."""
    if seconds >= 0.9995:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:.0f} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 0.9995e-3 else f"{1e6 * seconds:.3g} µs"


def bytes_told(count: float) -> str:
    """In the unit that keeps it short: 1.5 GiB, 300 MiB."""
    units = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
    size, name = next(((size, name) for size, name in units if count >= size), (1.0, "bytes"))
    return f"{count / size:.3g} {name}" if count / size < 1000 else f"{count / size:.0f} {name}"


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
            f"At n = {n} a call takes {bytes_told(peak)} at its peak, as much as {tables:.1f} tables of n × n float32 "
            f"numbers; at that rate this machine's {bytes_told(profile.memory)} are full at about n = {longest}."
        )
    if profile.largest:
        told.append(_ran_out(profile.largest))
    if decoding:
        last = min(max(decoding.cached), max(decoding.recomputed))
        near = [n for n in decoding.cached if last - 10 < n <= last]
        cached, recomputed = (median(c[n] for n in near) for c in (decoding.cached, decoding.recomputed))
        told.append(
            f"At {last} tokens a step takes {seconds_told(cached)} with the cache and {seconds_told(recomputed)} without it: "
            f"{recomputed / cached:.3g} times as long. The prefill of {max(decoding.prefill)} tokens takes "
            f"{seconds_told(decoding.prefill[max(decoding.prefill)])}."
        )
    return told


def _ran_out(found: Largest) -> str:
    """Where the search for the largest n ended, and what ran out there."""
    text = f"In a process that may take {bytes_told(found.limit)} more than its libraries, the largest n is {found.n}"
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
        f"<tr><td>{n}</td><td>{seconds_told(s)}</td><td>{bytes_told(p)}</td></tr>"
        for n, s, p in zip(a.ns, a.seconds, a.peaks, strict=True)
    )
    return f"<table><tr><th>n</th><th>one call</th><th>at its peak</th></tr>{rows}</table>"
