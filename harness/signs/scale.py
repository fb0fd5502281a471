"""What the scores were multiplied by, read from the ratios of weights: by which name it goes, or what it depends on.

A factor is named where it is that option's at two problems of other sizes; one that has no name is described by what
moves it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from harness.signs import Hint, same

Sizes = dict[str, int]
Measure = Callable[[Sizes, int], float | None]
"""The factor of a problem of these sizes, its numbers drawn from a seed; None where no one factor explains the weights."""

WORDS = {
    "n": "the number of queries",
    "m": "the number of keys",
    "d": "the width of X",
    "d_v": "the width of the values",
}


def hints(measure: Measure, one: Sizes, other: Sizes) -> Iterator[Hint]:
    """The name of a factor other than 1/sqrt(d_k). `one` and `other` have no two sizes in common."""
    factors = measure(one, 0), measure(other, 0)
    if None in factors or all(map(_near, factors, map(right, (one, other)))):
        return
    says = (
        f"Two keys' weights say that scores were multiplied by {factors[0]:.4g}, where 1/sqrt(d_k) is {right(one):.4g}"
    )
    for code, words, option in options(one):
        if all(f is not None and same(f, option(sizes)) for f, sizes in zip(factors, (one, other), strict=True)):
            yield Hint(code, f"{says}: {words}.")


def options(sizes: Sizes) -> list[tuple[str, str, Callable[[Sizes], float]]]:
    """The known wrong factors: code, words, and the factor of a problem's sizes."""
    others = [name for name in sizes if name != "d_k"]
    return [
        ("scale-missing", "the raw scores", lambda sizes: 1.0),
        ("scale-by-dk", "it is 1/d_k", lambda sizes: 1 / sizes["d_k"]),
        ("scale-inverted", "it is sqrt(d_k)", lambda sizes: math.sqrt(sizes["d_k"])),
        *(("scale-by-wrong-width", f"it is 1/sqrt({name})", partial(_over_root, name)) for name in others),
    ]


def _over_root(name: str, sizes: Sizes) -> float:
    return 1 / math.sqrt(sizes[name])


def right(sizes: Sizes) -> float:
    """1/sqrt(d_k)."""
    return _over_root("d_k", sizes)


def described(measure: Measure, one: Sizes) -> Iterator[Hint]:
    """A factor that has no name: what it changes with, one thing changed at a time."""
    at_one = measure(one, 0)
    if at_one is None:
        return
    redrawn = measure(one, 1)
    if redrawn is not None and not _near(at_one, redrawn):
        seen = f"With other numbers in Q and K the scores' factor changes, from {at_one:.3g} to {redrawn:.3g}"
        yield Hint(None, f"{seen}; it should depend only on d_k.", like="scale-missing")
        return
    for name in one:
        few, many = ({**one, name: size} for size in (2, 9))
        factors = measure(few, 0), measure(many, 0)
        if name == "d_k" or factors[0] is None or factors[1] is None or _near(*factors):
            continue
        seen = f"{factors[0]:.3g} with {few[name]}, {factors[1]:.3g} with {many[name]}"
        yield Hint(
            None,
            f"The scores' factor changes with {WORDS[name]}: {seen}; it should depend only on d_k.",
            like="scale-missing",
        )
        return
    wide = {**one, "d_k": 4 * one["d_k"]}
    at_wide = measure(wide, 0)
    if at_wide is None or (_near(at_one, right(one)) and _near(at_wide, right(wide))):
        return
    if _near(at_one, at_wide):
        seen = f"The scores are multiplied by {at_one:.4g} at d_k = {one['d_k']} and at d_k = {wide['d_k']}"
        yield Hint(
            None, f"{seen}; it should be 1/sqrt(d_k), {right(one):.4g} and {right(wide):.4g}.", like="scale-missing"
        )
    else:
        seen = f"The scores are multiplied by {at_one:.4g} at d_k = {one['d_k']} and by {at_wide:.4g} at {wide['d_k']}"
        yield Hint(None, f"{seen}; 1/sqrt(d_k) is {right(one):.4g} and {right(wide):.4g}.", like="scale-missing")


def _near(a: float | None, b: float | None) -> bool:
    """Equal but for rounding, in float32 too."""
    return a is not None and b is not None and math.isclose(a, b, rel_tol=1e-3)
