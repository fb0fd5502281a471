"""A lab of two steps and five checks, and evidence on it: what tests of rubric, report and renderers share."""

from __future__ import annotations

import numpy as np

from grader.report import Judged, Report, build_report
from grader.rubric import Rubric, load_rubric
from harness.check import Check, CheckResult, Fail
from harness.subject import Frame


def a_check(id: str, title: str, **options: object) -> Check:
    return Check(id, int(id[4]), title, lambda subject: None, **options)  # type: ignore[arg-type]


SOFTMAX = ("attention.softmax",)
ROWS = a_check("step1.softmax.rows", "Every row sums to 1.", functions=SOFTMAX, public=True)
SHIFT = a_check("step1.softmax.shift", "A shift changes nothing.", functions=SOFTMAX, stands_on=(ROWS.id,))
AGREES = a_check("step1.sdpa.agrees", "Attention agrees.", functions=("attention.scaled_dot_product_attention",))
GREEDY = a_check("step2.generate.greedy", "Tokens are greedy.", functions=("kv_cache.generate",))
BYTES = a_check("step2.bytes", "The bytes add up.", functions=("kv_cache.kv_cache_bytes",))
CHECKS = {c.id: c for c in (ROWS, SHIFT, AGREES, GREEDY, BYTES)}

RUBRIC = "schema: 1\ntitle: A lab\npoints:\n  step1: 60\n  step2: 40\n"


def rubric(tmp_path, extra: str = "", text: str = RUBRIC) -> Rubric:
    file = tmp_path / "rubric.yaml"
    file.write_text(text + extra)
    return load_rubric(file, CHECKS)


def passed(check: Check, **options: object) -> Judged:
    return Judged(check, CheckResult(check, "passed", seconds=0.5), **options)  # type: ignore[arg-type]


def failed(check: Check, fail: Fail, *codes: tuple[str, str], shown: Fail | None = None, examples: int = 1) -> Judged:
    return Judged(check, CheckResult(check, "failed", fail, examples=examples), codes, shown=shown)


def blocked(check: Check, by: Check) -> Judged:
    return Judged(check, CheckResult(check, "blocked", reason=by.id))


def broken(check: Check, reason: str = "TypeError: oops") -> Judged:
    return Judged(check, CheckResult(check, "not-run", reason=reason))


def wrong_rows(text: str = "row 0 sums to 1.7") -> Fail:
    table = np.array([[1.0, -0.5], [np.nan, np.inf]])
    return Fail(text, "1", call="softmax(float64 array (2, 2))", inputs={"x": table}, got=table)


def stub(name: str = "softmax", line: int = 7) -> Fail:
    text = f"NotImplementedError: Write {name} at attention.py, line {line}: raise NotImplementedError"
    frame = Frame("attention.py", line, "raise NotImplementedError")
    return Fail(text, "a result", code="raised", call=f"{name}(float64 array (2, 2))", frames=(frame,))


def all_passed() -> list[Judged]:
    return [passed(c) for c in CHECKS.values()]


def report_of(tmp_path, *changed: Judged, extra: str = "", **options: object) -> Report:
    """A report where all checks passed but those given."""
    other = {j.check.id: j for j in changed}
    return build_report(  # type: ignore[arg-type]
        [other.get(j.check.id, j) for j in all_passed()], rubric(tmp_path, extra), **options
    )
