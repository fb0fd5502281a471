"""Step 6: bytes of the score table, memory at its peak, and the largest length that fits."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from harness.check import Fail, check, note
from harness.expect import Asked, ask, spell_value
from harness.subject import Call, Subject
from harness.values import Callback

BYTES, PEAK, LARGEST = "experiments.score_bytes", "experiments.measure_peak_memory", "experiments.largest_n"


def whole(asked: Asked) -> int:
    """The result as a whole number; one that is held in a float earns a note."""
    number = asked.number()
    if number != int(number):
        raise asked.fail(f"the result is {number:g}", "a whole number of bytes")
    value = asked.value
    if isinstance(value, float):
        note("wrong-dtype", f"{asked.text.split('(')[0]} gives a float: right, and a count of bytes is an int.")
    return int(value) if isinstance(value, int) else int(number)


@check(
    "step6.bytes.one-score",
    cases=st.tuples(st.integers(1, 70_000), st.sampled_from((1, 2, 4, 8)), st.integers(1, 128)),
    examples=15,
    functions=BYTES,
    families="score_bytes",
    needs="torch",
    public=True,
)
def bytes_of_scores(subject: Subject, case: tuple[int, int, int]) -> None:
    """Every query has a score for every key in every head, and each takes itemsize bytes."""
    n, itemsize, heads = case
    asked = ask(subject, BYTES, n, itemsize=itemsize, heads=heads)
    scores = sum(n for _ in range(heads)) * n
    if whole(asked) != scores * itemsize:
        raise asked.fail(f"{whole(asked)} bytes", f"bytes of {heads} tables of {n} × {n} scores, {itemsize} bytes each")


@check(
    "step6.bytes.defaults",
    functions=BYTES,
    families="score_bytes",
    stands_on="step6.bytes.one-score",
    needs="torch",
    public=True,
)
def bytes_by_default(subject: Subject) -> None:
    """Left unsaid, an item takes 2 bytes and there is one head."""
    for n in (1, 1_000, 131_072):
        asked = ask(subject, BYTES, n)
        if whole(asked) != 2 * n * n:
            raise asked.fail(f"{whole(asked)} bytes", "itemsize=2, heads=1 where they are not given")


def peak_of(asked: Asked) -> tuple[float, float]:
    """`allocated` and `reserved` of a measurement, as finite numbers that are not negative. Raises Fail."""
    value = asked.value
    if not isinstance(value, dict):
        raise asked.fail(f"the result is {spell_value(value)}", "a dict with allocated and reserved")
    found = []
    for name in ("allocated", "reserved"):
        if name not in value:
            raise asked.fail(f"there is no {name!r} in the result", "allocated and reserved")
        number = value[name].item() if getattr(value[name], "ndim", None) == 0 else value[name]
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise asked.fail(f"{name} is {spell_value(number)}", "a number of bytes")
        if number < 0:
            raise asked.fail(f"{name} is {number}", "bytes above what was held before: 0 or more")
        found.append(float(number))
    return found[0], found[1]


@check("step6.peak.one-call", functions=PEAK, families="measure_peak_memory", needs="torch", public=True)
def peak_of_one_call(subject: Subject) -> None:
    """measure_peak_memory calls fn once, and gives allocated and reserved in bytes."""
    calls = 0

    def steps() -> list[tuple[str, int]]:
        nonlocal calls
        calls += 1
        return [("take", 2**20)]

    fn = subject.ask(Call("@plan", (Callback(steps),), keep=True))[0].value
    asked = ask(subject, PEAK, fn)
    peak_of(asked)
    if calls != 1:
        raise asked.fail(f"fn was called {calls} times", "once: what it does may not be free to do again")


MIB = 2**20
HELD, AT_END = 128 * MIB, 8 * MIB


@check(
    "step6.peak.not-the-end",
    functions=PEAK,
    families="measure_peak_memory",
    stands_on="step6.peak.one-call",
    needs="torch",
    public=True,
)
def peak_and_not_the_end(subject: Subject) -> None:
    """What fn held for a while and freed again counts: `allocated` is the peak, not what is left at the end."""
    steps = [("take", HELD), ("drop", 0), ("take", AT_END)]
    before = subject.clocks().memory
    fn = subject.ask(Call("@plan", (Callback(lambda: steps),), keep=True))[0].value
    asked = ask(subject, PEAK, fn)
    allocated, _ = peak_of(asked)
    after = subject.clocks().memory
    # a peak that the process had before hides this one from the system's account, which is a right one to go by
    if before is None or after is None or after - before < HELD / 4 or allocated >= (after - before) / 2:
        return
    code = "memory-not-peak" if abs(allocated - AT_END) < AT_END / 4 else None
    seen = f"allocated is {allocated / MIB:.0f} MiB where fn held {HELD // MIB} MiB, and {AT_END // MIB} at its end"
    raise asked.fail(seen, f"about {HELD // MIB} MiB", code)


MOST_CALLS = 400  # no search that asks a number of times like log n, or its square, comes near


class Fits:
    """fits(n): true up to `threshold`. Counts its calls, and ends a search that does not end."""

    def __init__(self, threshold: int, most: int = MOST_CALLS, raises: bool = False) -> None:
        self.threshold, self.most, self.raises = threshold, most, raises
        self.asked: list[int | float] = []

    def __call__(self, n: Any) -> bool:
        if not isinstance(n, int | float) or isinstance(n, bool):
            raise ValueError(f"fits was called with {spell_value(n)}")
        self.asked.append(n)
        if len(self.asked) > self.most:
            raise ValueError(f"fits was called {self.most} times already")
        if n > self.threshold and self.raises:
            raise MemoryError("there is no room")
        return bool(n <= self.threshold)


def _search(subject: Subject, fits: Fits, start: int, limit: int, wanted: int) -> None:
    asked = ask(
        subject,
        LARGEST,
        Callback(fits),
        start=start,
        limit=limit,
        shown=f"largest_n(fits, start={start}, limit={limit})",
    )
    if len(fits.asked) > fits.most:
        raise asked.fail(
            f"fits was called more than {fits.most} times", "a number of calls that grows with log n", "search-linear"
        )
    if asked.outcome.kind == "raised" and fits.raises and asked.outcome.type.endswith("MemoryError"):
        raise asked.fail(
            "the MemoryError that fits raised came out", "an n that does not fit, as if false", "search-memoryerror"
        )
    past = [n for n in fits.asked if n > limit]
    if past:
        raise asked.fail(f"fits was asked about {past[0]}", f"nothing above the limit, {limit}", "search-bounds")
    if asked.number() != wanted:
        fit = f"n up to {fits.threshold} fits" if fits.threshold >= start else f"not even {start} fits"
        raise asked.fail(f"{asked.number():g}", f"{wanted}: {fit}")


_bounds = st.tuples(st.integers(1, 40), st.integers(0, 200), st.integers(0, 200))  # start, and what lies above it


@check(
    "step6.largest.threshold",
    cases=_bounds,
    examples=12,
    functions=LARGEST,
    families="largest_n",
    needs="torch",
    public=True,
)
def threshold(subject: Subject, case: tuple[int, int, int]) -> None:
    """largest_n finds the largest n that fits."""
    start, fitting, room = case
    fits = Fits(start + fitting)
    _search(subject, fits, start, start + fitting + 1 + room, start + fitting)


@check(
    "step6.largest.limit",
    cases=_bounds,
    examples=6,
    functions=LARGEST,
    families="largest_n",
    stands_on="step6.largest.threshold",
    needs="torch",
    public=True,
)
def limit(subject: Subject, case: tuple[int, int, int]) -> None:
    """Where everything fits the answer is the limit itself, and nothing above it is tried."""
    start, above, beyond = case
    fits = Fits(3 * (start + above) + beyond)
    _search(subject, fits, start, start + above, start + above)


@check(
    "step6.largest.nothing",
    cases=_bounds,
    examples=6,
    functions=LARGEST,
    families="largest_n",
    stands_on="step6.largest.threshold",
    needs="torch",
    public=True,
)
def nothing(subject: Subject, case: tuple[int, int, int]) -> None:
    """Where not even start fits the answer is 0."""
    start, above, below = case
    fits = Fits(max(start - 1 - below % 3, 0))
    _search(subject, fits, start, start + above, 0)


@check(
    "step6.largest.memory-error",
    cases=_bounds,
    examples=6,
    functions=LARGEST,
    families="largest_n",
    stands_on="step6.largest.threshold",
    needs="torch",
    public=True,
)
def memory_error(subject: Subject, case: tuple[int, int, int]) -> None:
    """A MemoryError from fits means that this n does not fit."""
    start, fitting, room = case
    fits = Fits(start + fitting, raises=True)
    _search(subject, fits, start, start + fitting + 1 + room, start + fitting)


@check(
    "step6.largest.few-calls",
    functions=LARGEST,
    families="largest_n",
    needs="torch",
    public=True,
)
def few_calls(subject: Subject) -> None:
    """fits is called a number of times that grows with log n, not with n."""
    for largest in (52_345, 2**19 - 1):
        fits = Fits(largest)
        _search(subject, fits, 128, 2**20, largest)
        allowed = 4 * 20 + 16  # doubling and halving take at most 2 log2(limit); as much again is left for style
        if len(fits.asked) > allowed:
            shown = f"largest_n(fits, start=128, limit={2**20}), the largest n that fits being {largest}"
            raise Fail(f"fits was called {len(fits.asked)} times", f"at most {allowed}", call=shown)
