"""A Plot as inline SVG: log axes with their decades, a fit with its interval, dots. Colours are the page's own.

Drawn twice, so that its text has the page's size on a phone and on a desk: the page shows one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from markupsafe import Markup, escape

from grader.pictures import Line, Plot

SIZES = {"narrow": (360, 236), "wide": (720, 264)}
LEFT, RIGHT, TOP, BOTTOM = 52, 18, 8, 40
MOST_TICKS = 6
DOTS = {"dots": 3.2, "mark": 4}  # kinds of line that are points, and their radius

Scale = Callable[[float], float]


def plot(picture: Plot) -> Markup:
    """The plot in both sizes, and its legend."""
    return Markup("".join(_drawn(picture, name, *size) for name, size in SIZES.items()) + _legend(picture))


def _drawn(picture: Plot, name: str, width: int, height: int) -> str:
    xs, ys = _extent(picture)
    x = _scale(xs, LEFT, width - RIGHT, picture.log_x)
    y = _scale(ys, height - BOTTOM, TOP, True)
    inside = [*_band(picture, x, y), *(svg for line in picture.lines for svg in _curve(line, x, y))]
    above = [svg for line in picture.lines for svg in _dots(line, x, y)]
    wide, high = width - LEFT - RIGHT, height - TOP - BOTTOM
    frame = f'x="{LEFT}" y="{TOP}" width="{wide}" height="{high}" viewBox="{LEFT} {TOP} {wide} {high}"'
    parts = [
        *_axes(picture, xs, ys, x, y, width, height),
        f"<svg {frame}>",
        *inside,
        "</svg>",
        *above,
    ]  # what leaves the frame is cut off
    label = escape(f"{picture.title}. {picture.about}")
    view = f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}"'
    return f'<svg class="plot {name}" {view}>{"".join(parts)}</svg>'


def _extent(picture: Plot) -> tuple[tuple[float, float], tuple[float, float]]:
    """The least and the largest x and y of what is drawn; dotted lines and the band may leave the picture."""
    points = [p for line in picture.lines if line.kind != "dotted" for p in line.points]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    dotted = [p[1] for line in picture.lines if line.kind == "dotted" for p in line.points]
    low, high = min(ys), max(ys)
    near = [v for v in dotted if low / 30 <= v <= high * 30]
    low, high = min([low, *near]), max([high, *near])
    return (min(xs), max(xs)), (low / 1.25, high * 1.25)


def _scale(of: tuple[float, float], start: float, end: float, log: bool) -> Scale:
    low, high = (math.log(v) for v in of) if log else of
    span = (high - low) or 1.0

    def place(value: float) -> float:
        at = ((math.log(value) if log else value) - low) / span
        return start + (end - start) * min(max(at, -0.5), 1.5)

    return place


def _axes(
    picture: Plot, xs: tuple[float, float], ys: tuple[float, float], x: Scale, y: Scale, width: int, height: int
) -> Iterator[str]:
    for value in _powers_of_two(*ys) if picture.unit == "B" else _decades(*ys):
        at = f"{y(value):.1f}"
        yield f'<line class="rule" x1="{LEFT}" x2="{width - RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{LEFT - 6}" y="{at}" dy=".34em" text-anchor="end">{_spelled(value, picture.unit)}</text>'
    ticks = _powers_of_two(*xs) if picture.log_x else _round_numbers(*xs)
    for value in ticks:
        at = f"{x(value):.1f}"
        yield f'<line class="rule" x1="{at}" x2="{at}" y1="{height - BOTTOM}" y2="{height - BOTTOM + 4}"/>'
        yield f'<text x="{at}" y="{height - BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
    yield f'<text x="{(LEFT + width - RIGHT) / 2}" y="{height - 4}" text-anchor="middle">{escape(picture.x)}</text>'


def _band(picture: Plot, x: Scale, y: Scale) -> Iterator[str]:
    if picture.band:
        there = [f"{x(n):.1f},{y(high):.1f}" for n, _, high in picture.band]
        back = [f"{x(n):.1f},{y(low):.1f}" for n, low, _ in reversed(picture.band)]
        yield f'<polygon class="band" points="{" ".join([*there, *back])}"/>'


def _curve(line: Line, x: Scale, y: Scale) -> Iterator[str]:
    if line.kind not in DOTS:
        points = " ".join(f"{x(n):.1f},{y(value):.1f}" for n, value in line.points)
        yield f'<polyline class="{line.kind}" points="{points}"/>'


def _dots(line: Line, x: Scale, y: Scale) -> Iterator[str]:
    if line.kind in DOTS:
        for n, value in line.points:
            yield f'<circle class="{line.kind}" cx="{x(n):.1f}" cy="{y(value):.1f}" r="{DOTS[line.kind]}"/>'


def _legend(picture: Plot) -> str:
    """Under the plot as text, so that it wraps on a phone."""
    named = [line for line in picture.lines if line.name]
    rows = "".join(f'<li><i class="key {line.kind}"></i>{escape(line.name)}</li>' for line in named)
    band = '<li><i class="key band"></i>95% interval</li>' if picture.band else ""
    return f'<ul class="legend">{rows}{band}</ul>'


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten between the two, thinned to a few; where there are fewer than two, 2 and 5 times them as well."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        found = [f * 10.0**e for e in range(first, last + 1) for f in factors if low <= f * 10.0**e <= high]
        if len(found) > 1:
            break
    return _thinned(found)


def _powers_of_two(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return _thinned([2.0**e for e in range(first, last + 1)]) or [low, high]


def _round_numbers(low: float, high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10(max(high - low, 1) / 2))
    step = next((step * f for f in (1, 2, 5, 10) if (high - low) / (step * f) <= MOST_TICKS), step * 10)
    first = math.ceil(low / step)
    return [step * i for i in range(first, int(high / step) + 1)]


def _thinned(values: Sequence[float]) -> list[float]:
    every = -(-len(values) // MOST_TICKS)
    return list(values[:: max(every, 1)])


def _spelled(value: float, unit: str) -> str:
    """A number of seconds or bytes in a unit that keeps it short."""
    if unit == "s":
        units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
    else:
        units = [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")]
    size, name = next(((s, n) for s, n in units if value >= s * 0.999), units[-1])
    return f"{value / size:.3g} {name}"
