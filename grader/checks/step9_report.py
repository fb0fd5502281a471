"""The report files: read as data, plausible, and consistent with themselves. The words of note.md are a person's to judge.

A check here is given the submission's folder. No number is held against a machine: only against the numbers beside it.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import warnings
from pathlib import Path
from typing import Any

from PIL import Image

from harness.check import Fail, check, step
from reference import experiments
from reference.decoder import kv_cache_bytes

step(9, "Report files", "7.9, deliverable")

MOST_BYTES = {"results.json": 2**20, "note.md": 2**20, "loglog.png": 16 * 2**20, "latency.png": 16 * 2**20}
PNG = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 50_000_000
MOST_POINTS = 100_000
RESOURCES = ("cpu_memory", "gpu_memory", "time", "other")
SHORTEST_NOTE = 150  # characters: three explanations take more


# -- files ---------------------------------------------------------------------------------------------------------------


def _find(folder: Path, name: str) -> Path:
    """The file in report/, or beside the modules in a flattened upload. Raises Fail."""
    for path in (folder / "report" / name, folder / name):
        if path.is_file() and not path.is_symlink() and not path.parent.is_symlink():
            size = path.stat().st_size
            if not 0 < size <= MOST_BYTES[name]:
                raise Fail(f"{name} has {size} bytes", f"1 to {MOST_BYTES[name]} bytes")
            return path
    raise Fail(f"report/{name} is not there", "the four report files", code="file-missing")


def _text(folder: Path, name: str) -> str:
    try:
        return _find(folder, name).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Fail(f"{name} is not UTF-8: {error}", "UTF-8 text") from None


def read_results(folder: Path) -> dict[str, Any]:
    """results.json as a dict. Raises Fail for what is not one."""
    try:
        found = json.loads(_text(folder, "results.json"))
    except (ValueError, RecursionError) as error:
        raise Fail(f"results.json does not read as JSON: {error}"[:300], "a JSON object") from None
    if type(found) is not dict:
        raise Fail(f"results.json holds a {type(found).__name__}", "a JSON object")
    return found


class Results:
    """The values of results.json by their names. Every reading checks the exact type, and raises Fail."""

    def __init__(self, values: dict[str, Any], inside: str = "") -> None:
        self._values, self._inside = values, inside

    def fail(self, seen: str, expected: str) -> Fail:
        return Fail(f"results.json: {seen}", expected)

    def get(self, name: str) -> Any:
        if name not in self._values:
            raise self.fail(f"{self._inside}{name} is missing", "every name that the contract lists")
        return self._values[name]

    def number(self, name: str, above: float = -math.inf, whole: bool = False) -> float:
        return self._number(self.get(name), self._inside + name, above, whole)

    def numbers(self, name: str, above: float = -math.inf, whole: bool = False) -> list[float]:
        value = self.get(name)
        if type(value) is not list or not 0 < len(value) <= MOST_POINTS:
            raise self.fail(f"{name} is {_shown(value)}", "a list of numbers")
        return [self._number(item, f"{name}[{i}]", above, whole) for i, item in enumerate(value)]

    def _number(self, value: Any, name: str, above: float, whole: bool) -> float:
        if type(value) not in (int, float):
            raise self.fail(f"{name} is {_shown(value)}", "a number")
        if not _finite(value):
            raise Fail(f"results.json: {name} is {_shown(value)}", "a finite number", code="not-finite")
        if not value > above:
            raise self.fail(f"{name} is {_shown(value)}", f"a number above {above:g}")
        if whole and value != int(value):
            raise self.fail(f"{name} is {_shown(value)}", "a whole number")
        return float(value) if type(value) is float else value

    def text(self, name: str) -> str:
        value = self.get(name)
        if type(value) is not str or not value.strip():
            raise self.fail(f"{name} is {_shown(value)}", "a text")
        return value

    def inner(self, name: str) -> Results:
        value = self.get(name)
        if type(value) is not dict:
            raise self.fail(f"{name} is {_shown(value)}", "an object")
        return Results(value, f"{name}.")


def _finite(value: float) -> bool:
    """No number of a measurement fills 64 bits, and of larger ones a product can no longer be written as a float."""
    return abs(value) < 2**63 if type(value) is int else math.isfinite(value)


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return json.dumps(value)[:60]


def _results(folder: Path) -> Results:
    return Results(read_results(folder))


def _near(value: float, wanted: float, relative: float, absolute: float) -> bool:
    return abs(value - wanted) <= absolute + relative * abs(wanted)


# -- what they say -------------------------------------------------------------------------------------------------------


@check("step9.results.exponent", needs="files")
def exponent(folder: Path) -> None:
    """The exponent and the local slopes are those of the lengths and times beside them."""
    results = _results(folder)
    ns, seconds = results.numbers("ns", above=0, whole=True), results.numbers("seconds", above=0)
    if len(ns) != len(seconds) or len(ns) < 3:
        raise results.fail(f"{len(ns)} lengths and {len(seconds)} times", "as many, and 3 at least")
    if any(b <= a for a, b in itertools.pairwise(ns)):
        raise results.fail("ns does not grow", "lengths in growing order")
    slopes, given = experiments.local_slopes(ns, seconds), results.numbers("local_slopes")
    if len(given) != len(slopes):
        raise results.fail(f"{len(given)} local slopes", f"{len(slopes)}: one between neighbouring lengths")
    for i, (slope, wanted) in enumerate(zip(given, slopes, strict=True)):
        if not _near(slope, wanted, 0.02, 0.02):
            raise results.fail(f"local_slopes[{i}] is {slope:.4g}", f"{wanted:.4g}, from ns and seconds")
    fitted, wanted = results.number("exponent"), experiments.fit_exponent(ns, seconds)
    if not _near(fitted, wanted, 0.01, 0.01):
        raise results.fail(f"exponent is {fitted:.4g}", f"{wanted:.4g}, the least-squares fit of ns and seconds")


@check("step9.results.sdpa", needs="files")
def sdpa(folder: Path) -> None:
    """The comparison with torch's SDPA has a shape, a small difference and a backend in every row."""
    results = _results(folder)
    rows = results.get("sdpa")
    if type(rows) is not list or not 0 < len(rows) <= MOST_POINTS or any(type(row) is not dict for row in rows):
        raise results.fail(f"sdpa is {_shown(rows)}", "a list of the dicts of compare_with_sdpa")
    for i, values in enumerate(rows):
        row = Results(values, f"sdpa[{i}].")
        if len(row.numbers("shape", above=0, whole=True)) != 4:
            raise results.fail(f"sdpa[{i}].shape is {_shown(row.get('shape'))}", "batch, heads, n, d")
        row.text("backend")
        difference = row.number("max_abs_diff")
        # looser than a right answer needs, down to bfloat16: what is above it is a disagreement in any dtype
        if not 0 <= difference <= 0.05:
            raise results.fail(f"sdpa[{i}].max_abs_diff is {difference:.3g}", "0 to rounding: about 1e-5 in float32")


@check("step9.results.gaps", needs="files")
def gaps(folder: Path) -> None:
    """The shuffle's gap is rounding alone; positions and a causal mask make it plain."""
    results = _results(folder)
    found = results.inner("equivariance_gaps")
    plain = found.number("plain")
    if not 0 <= plain <= 5e-3:  # float16's rounding; float64's is about 1e-16
        raise results.fail(f"equivariance_gaps.plain is {plain:.3g}", "0 to rounding: tokens alone have no order")
    for name in ("with_positions", "causal"):
        gap = found.number(name)
        if not gap > max(1e-6, 10 * plain):
            raise results.fail(f"equivariance_gaps.{name} is {gap:.3g}", "a gap far above rounding's")


@check("step9.results.memory", needs="files")
def memory(folder: Path) -> None:
    """The score table's bytes follow from its length, the measured peak is in bytes, and what ran out is named."""
    results = _results(folder)
    n, itemsize = results.number("memory_n", above=0, whole=True), results.number("itemsize", above=0, whole=True)
    table, one_head = results.number("score_bytes", above=0, whole=True), n * n * itemsize
    if table % one_head:
        raise results.fail(f"score_bytes is {table:,.0f}", f"{one_head:,.0f} for one head: memory_n² × itemsize")
    for name in ("peak_allocated", "peak_reserved"):
        peak = results.number(name, above=0)
        # in any form of attention the output is held: d_v values for every query, and a row of d_v has one at least
        if peak < n * itemsize:
            seen = f"{name} is {peak:,.0f}, for outputs that take {n * itemsize:,.0f} bytes at least"
            raise results.fail(seen, "bytes, with the output of memory_n queries among them")
    results.number("largest_n", above=0, whole=True)
    resource = results.text("limiting_resource")
    if resource not in RESOURCES:
        raise results.fail(f"limiting_resource is {_shown(resource)}", f"one of {', '.join(RESOURCES)}")
    results.text("hardware")


@check("step9.results.latencies", needs="files")
def latencies(folder: Path) -> None:
    """The speed-up is that of the last token's two latencies, which are times of single steps."""
    results = _results(folder)
    cached, recomputed = (results.numbers(f"decode_{how}_s", above=0) for how in ("cached", "recomputed"))
    if len(cached) != len(recomputed):
        raise results.fail(f"{len(cached)} cached and {len(recomputed)} recomputed steps", "as many of both")
    results.number("prefill_s", above=0)
    given, wanted = results.number("speedup_at_last_token", above=0), recomputed[-1] / cached[-1]
    near = [r / c for r, c in zip(recomputed[-16:], cached[-16:], strict=True)]
    smoothed = (statistics.median(near), sum(recomputed[-16:]) / sum(cached[-16:]))  # one step alone is noisy
    if not any(_near(given, value, 0.03, 0.06) for value in (wanted, *smoothed)):
        raise results.fail(f"speedup_at_last_token is {given:.4g}", f"{wanted:.4g}: recomputed over cached, last token")
    if len(cached) > 3 and len(set(cached)) == 1:
        raise results.fail("every cached step took the same time", "one time a step, not an average repeated")


@check("step9.results.cache", needs="files")
def cache(folder: Path) -> None:
    """The cache's bytes follow from the decoder by the formula, and what was allocated for it was measured."""
    results = _results(folder)
    decoder = results.inner("decoder")
    names = ("n_layers", "n_kv_heads", "d_head", "n_tokens", "itemsize")
    wanted = kv_cache_bytes(*(int(decoder.number(name, above=0, whole=True)) for name in names))
    given = results.number("cache_bytes", above=0, whole=True)
    if given != wanted:
        raise results.fail(
            f"cache_bytes is {given:,.0f}", f"{wanted:,}: 2 · layers · K/V heads · d_head · tokens · bytes"
        )
    results.number("cache_bytes_allocated", above=0)


# -- pictures and words --------------------------------------------------------------------------------------------------


def _picture(folder: Path, name: str) -> None:
    path = _find(folder, name)
    if not path.read_bytes().startswith(PNG):
        raise Fail(f"{name} is no PNG, whatever its name says", "a PNG, as savefig writes it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=("PNG",)) as image:
                width, height = image.size
                if width * height > MOST_PIXELS or min(width, height) < 32:
                    raise Fail(f"{name} is {width} × {height}", "a plot that a page can show")
                bands = image.convert("RGBA").getextrema()
    except (Fail, MemoryError):
        raise
    except Exception as error:  # whatever a decoder says of bytes that are no picture
        raise Fail(f"{name} does not open as a picture: {type(error).__name__}", "a PNG") from None
    if all(highest - lowest < 16 for lowest, highest in bands):  # type: ignore[misc]
        raise Fail(f"{name} is blank", "a plot")


@check("step9.pictures.loglog", needs="files")
def loglog(folder: Path) -> None:
    """loglog.png is a picture, and not a blank one."""
    _picture(folder, "loglog.png")


@check("step9.pictures.latency", needs="files")
def latency(folder: Path) -> None:
    """latency.png is a picture, and not a blank one."""
    _picture(folder, "latency.png")


@check("step9.note", needs="files")
def note_text(folder: Path) -> None:
    """note.md has the explanations, for a person to read."""
    words = "".join(_text(folder, "note.md").split())
    if len(words) < SHORTEST_NOTE or len(set(words)) < 12:
        raise Fail(
            f"note.md has {len(words)} characters",
            f"at least {SHORTEST_NOTE}: what steps 4, 5 and 6 ask to be explained",
        )
