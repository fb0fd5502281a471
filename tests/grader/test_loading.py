"""A submission loads in a copy of its folder as it was handed in, under a limit of its own that says where it was reached."""

from __future__ import annotations

import pytest

from grader.sandbox import Limits, Sandbox
from grader.sandbox.supervisor import lines_of
from harness.hosting.host import slow_libraries
from harness.subject import Frame
from tests.conftest import BASE

pytestmark = pytest.mark.slow
QUICK = Limits(cpu_seconds=0.5, import_seconds=0.5, idle_seconds=0.6, memory_mib=256, output_mib=1)
ENDLESS = "import time\n\ncount = 0\nwhile True:\n    {body}\n"


@pytest.mark.parametrize(
    ("body", "text"),
    [("count += 1", "more than 0.5 s of CPU"), ("time.sleep(9)", "no progress in 0.6 s: the call waits for something")],
)
def test_a_limit_while_importing_says_where(submission, body, text):
    """Of a loop and of a sleep: the limit, the module, and the line."""
    folder = submission(experiments=ENDLESS.format(body=body))
    with Sandbox(folder, QUICK) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("experiments.fit_exponent", [1], [1])
    assert (outcome.kind, outcome.text) == (
        "timeout",
        f"{text} while importing experiments.py, at line {outcome.frames[-1].line}",
    )
    assert outcome.frames[-1].line in (4, 5)
    assert outcome.frames[-1].file == "experiments.py"


def test_a_limit_in_a_call_says_where_too(submission):
    """The innermost line of the submission's own, from helper to helper."""
    text = "def causal_mask(n_queries, n_keys=None):\n    return turn()\n\n\ndef turn():\n    while True: pass\n"
    with Sandbox(submission(attention=text), QUICK) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("attention.causal_mask", 2)
    assert outcome.text == "more than 0.5 s of CPU in one call"
    assert outcome.frames == (Frame("attention.py", 2, "return turn()"), Frame("attention.py", 6, "while True: pass"))


def test_only_lines_of_the_submissions_files_are_read(tmp_path):
    """Whatever is printed in place of a trace: other files, other folders, lines that are not there."""
    (tmp_path / "a.py").write_text("first\nsecond\n")
    names = ("/x/submission/a.py", "/etc/passwd", "/x/submission/../a.py", "/x/submission/b.py", "/x/submission/")
    said = "most recent call first):\n" + "".join(f'  File "{name}", line 2 in f\n' for name in names)
    assert lines_of(said + '  File "/x/submission/a.py", line 99 in f\n', tmp_path) == (Frame("a.py", 2, "second"),)


def test_a_submission_finds_its_report_and_may_write_there(submission):
    """report/ is there as handed in, is made where it was not, and what is written stays in the copy."""
    reads = "import os\nfrom pathlib import Path\nFOUND = sorted(os.listdir('report'))\nPath('report/x.png').write_bytes(b'1')\n"
    folder = submission(kv_cache=reads + "def kv_cache_bytes(*sizes):\n    return FOUND\n")
    for there in (["latency.png", "loglog.png", "note.md", "results.json"], []):
        with Sandbox(folder) as sandbox, sandbox.group("numpy") as subject:
            assert subject.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value == there
        assert not (folder / "report" / "x.png").exists()
        for path in (folder / "report").glob("*"):
            path.unlink()
        (folder / "report").rmdir() if (folder / "report").exists() else None


def test_matplotlib_is_loaded_once_a_worker_where_a_submission_imports_it(submission):
    """For the worker in which that file runs; a word in a comment asks for nothing."""
    text = (BASE / "experiments.py").read_text()
    assert slow_libraries(submission(), "torch") == []
    assert slow_libraries(submission(experiments=f"# import matplotlib\n{text}"), "torch") == []
    drawn = submission(experiments=f"import matplotlib.pyplot as plt\n{text}")
    assert (slow_libraries(drawn, "torch"), slow_libraries(drawn, "numpy")) == (["matplotlib.pyplot"], [])


def test_a_submission_draws_with_what_its_worker_has_loaded(submission):
    """pyplot is there before the submission is, and saves a figure with words in it."""
    text = "import sys\nTHERE = 'matplotlib.pyplot' in sys.modules\nimport matplotlib.pyplot as plt\n"
    text += "plt.loglog([1, 2], [3, 4])\nplt.title('n')\nplt.savefig('report/x.png')\n"
    folder = submission(kv_cache=text + "def kv_cache_bytes(*sizes):\n    return THERE\n")
    with Sandbox(folder) as sandbox, sandbox.group("numpy") as subject:
        outcome = subject.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1)
    assert (outcome.value, outcome.text) == (True, "")
