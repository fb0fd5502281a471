"""report.json: everything that the Report holds, for scripts and for staff."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grader.render.files import write_atomically
from grader.report import Report


def to_data(report: Report) -> dict[str, Any]:
    """The report as plain data, in the order of the documented format. What is no finite number becomes null."""
    head = {"schema": report.schema, "score": report.score, "max_score": report.max_score, "final": report.final}
    rest = asdict(report)
    data: dict[str, Any] = _plain({**head, **{k: v for k, v in rest.items() if k not in head}})
    return data


def to_json(report: Report) -> str:
    return json.dumps(to_data(report), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def write_json(report: Report, path: Path) -> None:
    """Writes report.json in one step. Raises OSError."""
    write_atomically(path, to_json(report))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
