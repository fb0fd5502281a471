"""The report files: the bundled report passes, and each thing that a report may not say is found."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.check import CHECKS, run

importlib.import_module("grader.checks.step9_report")
IDS = sorted(id for id in CHECKS if id.startswith("step9."))
Edit = Callable[[dict[str, Any]], Any]


def failed(folder: Path) -> list[str]:
    found = [run(CHECKS[id], folder, 0) for id in IDS]  # type: ignore[arg-type]
    assert [r.reason for r in found if r.status == "not-run"] == []
    return [r.check.id for r in found if r.status == "failed"]


def edited(folder: Path, edit: Edit) -> Path:
    path = folder / "report" / "results.json"
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))
    return folder


def test_the_bundled_report_passes(submission: Callable[..., Path]) -> None:
    """Nothing is found in a report that was measured."""
    assert failed(submission()) == []


def test_an_absent_report_fails_every_check(submission: Callable[..., Path]) -> None:
    """Without report files no check passes, and each says that the file is missing."""
    folder = submission()
    shutil.rmtree(folder / "report")
    assert failed(folder) == IDS
    failures = [run(CHECKS[id], folder, 0).failure for id in IDS]  # type: ignore[arg-type]
    assert {failure.code for failure in failures if failure is not None} == {"file-missing"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400])
def test_an_entry_that_is_not_finite_is_named_and_costs_its_own_check_alone(submission, value) -> None:
    """The other checks read past it."""
    folder = edited(submission(), lambda r: r.update(speedup_at_last_token=value))
    assert failed(folder) == ["step9.results.latencies"]
    failure = run(CHECKS["step9.results.latencies"], folder, 0).failure  # type: ignore[arg-type]
    assert failure is not None
    assert (failure.code, "speedup_at_last_token" in failure.seen) == ("not-finite", True)


def test_a_flattened_report_is_found(submission: Callable[..., Path]) -> None:
    """Report files beside the modules are read all the same."""
    folder = submission()
    for path in (folder / "report").iterdir():
        shutil.move(path, folder / path.name)
    assert failed(folder) == []


@pytest.mark.parametrize(
    ("edit", "id"),
    [
        (lambda r: r.update(exponent=r["exponent"] + 0.2), "exponent"),
        (lambda r: r.update(seconds=[0.0] * len(r["seconds"])), "exponent"),
        (lambda r: r.update(ns=r["ns"][::-1]), "exponent"),
        (lambda r: r["local_slopes"].pop(), "exponent"),
        (lambda r: r.update(local_slopes=[2.0] * len(r["local_slopes"])), "exponent"),
        (lambda r: r.update(exponent=True), "exponent"),
        (lambda r: r.update(exponent="2"), "exponent"),
        (lambda r: r.pop("exponent"), "exponent"),
        (lambda r: r.update(sdpa=[]), "sdpa"),
        (lambda r: r["sdpa"][0].update(max_abs_diff=0.4), "sdpa"),
        (lambda r: r["sdpa"][0].update(max_abs_diff=-1e-7), "sdpa"),
        (lambda r: r["sdpa"][0].pop("backend"), "sdpa"),
        (lambda r: r["sdpa"][0].update(shape=[2, 3]), "sdpa"),
        (lambda r: r["equivariance_gaps"].update(plain=0.3), "gaps"),
        (lambda r: r["equivariance_gaps"].update(causal=0.0), "gaps"),
        (lambda r: r["equivariance_gaps"].update(with_positions=1e-16), "gaps"),
        (lambda r: r.update(score_bytes=r["score_bytes"] + 1), "memory"),
        (lambda r: r.update(score_bytes=r["score_bytes"] // 2), "memory"),
        (lambda r: r.update(peak_allocated=130), "memory"),
        (lambda r: r.update(peak_reserved=-1), "memory"),
        (lambda r: r.update(largest_n=0), "memory"),
        (lambda r: r.update(limiting_resource="patience"), "memory"),
        (lambda r: r.update(hardware=" "), "memory"),
        (lambda r: r.update(speedup_at_last_token=1000.0), "latencies"),
        (lambda r: r["decode_cached_s"].pop(), "latencies"),
        (lambda r: r.update(decode_cached_s=[0.001] * len(r["decode_cached_s"])), "latencies"),
        (lambda r: r.update(prefill_s=0.0), "latencies"),
        (lambda r: r.update(cache_bytes=r["cache_bytes"] // 2), "cache"),
        (lambda r: r["decoder"].update(n_tokens=1), "cache"),
        (lambda r: r["decoder"].update(n_layers=2.5), "cache"),
        (lambda r: r.update(cache_bytes_allocated=None), "cache"),
    ],
)
def test_a_number_that_contradicts_those_beside_it_is_found(
    edit: Edit, id: str, submission: Callable[..., Path]
) -> None:
    """A wrong, absent or mistyped value fails the check that it belongs to."""
    assert f"step9.results.{id}" in failed(edited(submission(), edit))


def test_rounded_numbers_pass(submission: Callable[..., Path]) -> None:
    """Numbers rounded to three digits, as a person copies them, are consistent still."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return float(f"{value:.3g}")
        if isinstance(value, dict):
            return {name: rounded(inner) for name, inner in value.items()}
        return [rounded(inner) for inner in value] if isinstance(value, list) else value

    assert failed(edited(submission(), lambda r: r.update(rounded(r)))) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"exponent": NaN}', '{"exponent": Infinity}', "[" * 100_000, "\udcff"]
)
def test_a_file_that_is_no_result_fails_its_checks(text: str, submission: Callable[..., Path]) -> None:
    """What does not read as a JSON object of finite numbers fails, and breaks nothing."""
    folder = submission()
    (folder / "report" / "results.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert failed(folder) == [id for id in IDS if id.startswith("step9.results")]


def test_numbers_too_large_for_a_float_are_found(submission: Callable[..., Path]) -> None:
    """An integer of hundreds of digits is no measurement, and its products, which no float holds, break nothing."""
    for numbers in ({"largest_n": 10**1000}, {"memory_n": 10**200}, {"score_bytes": 10**308, "itemsize": 10**40}):
        assert failed(edited(submission(), lambda r, n=numbers: r.update(n))) == ["step9.results.memory"]


def test_blank_and_broken_pictures_are_found(submission: Callable[..., Path]) -> None:
    """A picture of one colour, bytes that are none, and one of too many pixels fail."""
    folder = submission()
    Image.new("RGB", (640, 480), "white").save(folder / "report" / "loglog.png")
    (folder / "report" / "latency.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    assert failed(folder) == ["step9.pictures.latency", "step9.pictures.loglog"]
    Image.new("1", (20_000, 20_000)).save(folder / "report" / "loglog.png")
    assert "step9.pictures.loglog" in failed(folder)


def test_a_picture_of_another_kind_is_no_png(submission: Callable[..., Path]) -> None:
    """A JPEG may take minutes to decode, a scan at a time; savefig writes a PNG."""
    path = submission() / "report" / "loglog.png"
    Image.radial_gradient("L").save(path, "JPEG", progressive=True)
    assert failed(path.parents[1]) == ["step9.pictures.loglog"]


def test_a_link_is_not_followed(submission: Callable[..., Path], tmp_path: Path) -> None:
    """A report file that is a link to somewhere else is not there."""
    folder = submission()
    note = folder / "report" / "note.md"
    note.rename(tmp_path / "elsewhere.md")
    note.symlink_to(tmp_path / "elsewhere.md")
    assert failed(folder) == ["step9.note"]


def test_a_note_of_a_few_words_is_found(submission: Callable[..., Path]) -> None:
    """A note that explains nothing fails."""
    folder = submission()
    (folder / "report" / "note.md").write_text("done\n" * 100)
    assert failed(folder) == ["step9.note"]
