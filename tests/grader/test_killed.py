"""A grader that is killed leaves a whole report: the one before, or a newer one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
RUN = "import sys; sys.argv[0] = 'attnlab'; from harness.cli import main; main()"


@pytest.mark.parametrize("writes", [0, 1, 2])
def test_the_report_is_whole_whenever_the_grader_is_killed(submission, tmp_path, writes):
    """Killed before the first step, or after it was written once or twice: valid JSON with every step's checks."""
    report = tmp_path / "report.json"
    report.write_text('{"schema": 1, "steps": []}')
    seen = {report.stat().st_ino}
    command = [
        sys.executable,
        "-c",
        RUN,
        "grade",
        str(submission()),
        "--steps",
        "1,2,7",
        "--json",
        str(report),
        "--quiet",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as grader:
        while len(seen) <= writes:
            try:
                grader.wait(0.01)
                break
            except subprocess.TimeoutExpired:
                seen.add(report.stat().st_ino)
        grader.send_signal(signal.SIGKILL)
    data = json.loads(report.read_text())
    assert data["schema"] == 1
    assert (len(data["steps"]) == 0) == (writes == 0)
    assert all(check["status"] for step in data["steps"] for check in step["checks"])
