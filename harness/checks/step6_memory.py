"""Step 6: bytes of the score table, memory at its peak, and the largest length that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from harness.check import Fail, check, note
from harness.checks.step5_exponent import finite
from harness.expect import Asked, ask, spell_value
from harness.subject import Call, Subject
from harness.values import Callback, Handle

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
    # none is 1, which a formula may leave out and be right
    cases=st.tuples(st.integers(3, 70_000), st.sampled_from((2, 4, 8)), st.integers(2, 128)),
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
        if isinstance(number, bool) or not isinstance(number, int | float) or not finite(number):
            raise asked.fail(f"{name} is {spell_value(number)}", "a number of bytes")
        if number < 0:
            raise asked.fail(f"{name} is {number}", "bytes above what was held before: 0 or more", "memory-not-peak")
        found.append(float(number))
    return found[0], found[1]


MIB = 2**20
Step = tuple[str, int]  # ("take", bytes), ("drop", which take) or ("wait", milliseconds)


def plan(before: list[int], at_peak: list[int], after: int, wait: int = 2) -> list[list[Step]]:
    """What an `fn` does, in pieces: takes and drops the blocks of `before`, holds those of `at_peak` for a while, drops them,
    and takes `after`. Sizes in MiB; the peak is 1 MiB above the sum of `at_peak`, and lasts ten times `wait` milliseconds."""
    first = len(before) + len(at_peak)
    # for who looks now and then
    for_a_while = [step for i in range(10) for step in (("take", MIB), ("wait", wait), ("drop", first + i))]
    return [
        *([("take", size * MIB)] for size in before),
        [("drop", i) for i in range(len(before))] or [("wait", 0)],
        *([("take", size * MIB)] for size in at_peak),
        for_a_while,
        [("drop", i) for i in range(len(before), first)],
        [("take", after * MIB)],
    ]


def patiently(judge: Callable[[int], None]) -> None:
    """Judges with a peak that lasts 20 ms, and where that fails with one of 200 ms, whose verdict stands.

    A submission's thread that looks now and then at the memory may not get its turn sooner on a busy machine.
    """
    try:
        judge(2)
    except Fail as fail:
        if fail.final:
            raise
        judge(20)


class Fn:
    """The pieces of a plan, handed out one at a time to the `fn` that asks for them.

    runs   how often it began
    took   bytes that the process had at its peak above what it had had at most when the plan began; None where that is not known
    fresh  whether it is a process of its own, in which that says what fn took
    """

    def __init__(self, subject: Subject, pieces: list[list[Step]]) -> None:
        self._subject, self._pieces, self._at = subject, pieces, 0
        self._before: int | None = None
        self.runs = 0
        self.fresh = False
        self.took: int | None = None

    def piece(self) -> list[Step]:
        clocks = self._subject.clocks()
        memory, self.fresh = clocks.memory, clocks.process != 0
        if self._at == 0:
            self.runs += 1
            self._before = memory
        if self._at == len(self._pieces):
            self._at = 0
            self.took = None if memory is None or self._before is None else memory - self._before
            return []
        self._at += 1
        return self._pieces[self._at - 1]

    def measured(self) -> Asked:
        """What measure_peak_memory gives for it."""
        fn = self._subject.ask(Call("@plan", (Callback(self.piece),), keep=True))[0].value
        return ask(self._subject, PEAK, fn)


@check("step6.peak.one-call", functions=PEAK, families="measure_peak_memory", needs="torch", public=True)
def peak_of_one_call(subject: Subject) -> None:
    """measure_peak_memory calls fn once, and gives allocated and reserved in bytes."""
    fn = Fn(subject, [[("take", MIB)]])
    asked = fn.measured()
    peak_of(asked)
    if fn.runs != 1:
        raise asked.fail(f"fn was called {fn.runs} times", "once: what it does may not be free to do again")


HELD, AT_END = 128, 8  # MiB
UNITS = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def unit_of(value: float, n_bytes: float) -> str | None:
    """The unit that these bytes are in, roughly: kB is near enough to KiB."""
    return next((name for name, size in UNITS.items() if abs(value * size / n_bytes - 1) < 0.15), None)


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

    def judge(wait: int) -> None:
        asked = Fn(subject, plan([], [HELD], AT_END, wait)).measured()
        allocated, _ = peak_of(asked)
        if allocated < HELD * MIB / 2:
            code = "wrong-unit" if unit_of(allocated, HELD * MIB) else "memory-not-peak"
            seen = f"allocated is {allocated:,.6g} where fn held {HELD} MiB for a while, and {AT_END} at its end"
            raise asked.fail(seen, f"about {HELD * MIB:,} bytes", code)

    patiently(judge)


@check(
    "step6.peak.again",
    functions=PEAK,
    families="measure_peak_memory",
    stands_on="step6.peak.not-the-end",
    needs="torch",
    public=True,
)
def peak_of_each_call(subject: Subject, rng: np.random.Generator) -> None:
    """`allocated` is of this call alone: a call that takes little after one that took much has a small peak."""
    big, small, kept = (
        int(rng.integers(least, least + 8)) for least in (160, 34, 40)
    )  # MiB, above what malloc takes of its heap

    def judge(wait: int) -> None:
        first = Fn(subject, plan([], [big], 1, wait)).measured()
        before, _ = peak_of(first)
        held = subject.ask(Call("@random", ([[kept * MIB // 8]], "float64", 0)))[0].value  # there while fn is measured
        again = Fn(subject, plan([], [small], 1, wait)).measured()
        allocated, _ = peak_of(again)
        if isinstance(held, list):
            subject.ask(Call("@drop", ([handle.id for handle in held if isinstance(handle, Handle)],)))
        if small * MIB / 2 <= allocated <= 1.5 * small * MIB:
            return
        scaled = abs(allocated * big - before * small) < 0.2 * before * small  # both are as wrong: of another unit, say
        seen = f"allocated is {allocated:,.6g} for an fn that takes {small} MiB, after one that took {big} and gave {before:,.6g}"
        raise again.fail(seen, f"about {small * MIB:,} bytes", None if scaled else "memory-not-peak")

    patiently(judge)


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
