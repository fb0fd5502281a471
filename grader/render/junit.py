"""JUnit XML, as continuous integration's test tabs read it: a suite a step, a case a check.

Failed is a failure, blocked is skipped, and what the grader could not judge is an error: nobody's fault but its own.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from grader.render.files import write_atomically
from grader.render.words import check_lines, mistake_lines, of_students, values
from grader.report import CheckReport, Report, StepReport

_TAGS = {"failed": "failure", "blocked": "skipped", "not-run": "error"}


def to_junit(report: Report) -> str:
    root = ET.Element(
        "testsuites", {"name": _text(report.title), **_counts([c for s in report.steps for c in s.checks])}
    )
    for mistake in of_students(report):
        ET.SubElement(_properties(root), "property", name="mistake", value=_text(" ".join(mistake_lines(mistake))))
    for step in report.steps:
        _suite(root, step)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def write_junit(report: Report, path: Path) -> None:
    """Writes the XML in one step. Raises OSError."""
    write_atomically(path, to_junit(report))


def _properties(root: ET.Element) -> ET.Element:
    found = root.find("properties")
    return ET.SubElement(root, "properties") if found is None else found


def _suite(root: ET.Element, step: StepReport) -> None:
    name = _text(f"Step {step.number}: {step.title}")
    suite = ET.SubElement(root, "testsuite", {"name": name, **_counts(list(step.checks))})
    for check in step.checks:
        case = ET.SubElement(
            suite, "testcase", name=_text(check.title), classname=check.id, time=f"{check.seconds:.3f}"
        )
        if check.status in _TAGS:
            said = [_text(line) for line in check_lines(check)]
            about = ET.SubElement(case, _TAGS[check.status], message=said[0], type=_code(check))
            about.text = "\n".join([*said[1:], _text(values(check))]).strip()


def _code(check: CheckReport) -> str:
    return next((d.code for d in check.faults), check.status)


def _counts(checks: list[CheckReport]) -> dict[str, str]:
    count = {status: sum(c.status == status for c in checks) for status in _TAGS}
    return {
        "tests": str(len(checks)),
        "failures": str(count["failed"]),
        "errors": str(count["not-run"]),
        "skipped": str(count["blocked"]),
        "time": f"{sum(c.seconds for c in checks):.3f}",
    }


def _text(text: str) -> str:
    """Without the few characters that XML 1.0 has no way to write."""
    return "".join(
        c if c in "\t\n\r" or (c >= " " and not "\ud800" <= c <= "\udfff" and c not in "\ufffe\uffff") else "�"
        for c in text
    )
