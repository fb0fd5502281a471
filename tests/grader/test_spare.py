"""A file that is slow to load loads once for all groups, and no group finds anything that another has left."""

from __future__ import annotations

import pytest

from grader import served
from grader.grade import grade
from grader.rubric import load_rubric
from grader.sandbox import Limits, Sandbox
from tests.conftest import BASE

pytestmark = pytest.mark.slow
SLOW = """
import os, threading, time
_until = time.process_time() + 0.3
while time.process_time() < _until:
    pass
LOADED_BY, SEEN = os.getpid(), []
"""
TELLS = """
def kv_cache_bytes(*sizes):
    SEEN.append(1)
    if sizes[0] == 2:
        open("left.txt", "w").close()
    return [LOADED_BY, os.getpid(), len(SEEN), sorted(os.listdir(".")), _holds()]
"""
NOTHING = "def _holds():\n    return 0\n"
SHARED = "import mmap\nROOM = mmap.mmap(-1, 8)\ndef _holds():\n    ROOM[0] += 1\n    return ROOM[0]\n"
PIPE = "ENDS = os.pipe()\ndef _holds():\n    return 0\n"
THREAD = "threading.Thread(target=threading.Event().wait, daemon=True).start()\ndef _holds():\n    return 0\n"


def told(sandbox: Sandbox, groups: int, size: int = 1) -> list[list]:
    found = []
    for _ in range(groups):
        with sandbox.group("numpy") as subject:
            subject.load("kv_cache")
            found.append(subject.call("kv_cache.kv_cache_bytes", size, 1, 1, 1, 1).value)
    return found


def test_a_slow_file_loads_once_for_all_groups(submission):
    """Every group is a process of its own, in the state that loading left."""
    with Sandbox(submission(kv_cache=SLOW + NOTHING + TELLS)) as sandbox:
        loaded, process, count, files, _ = (set(map(str, part)) for part in zip(*told(sandbox, 4), strict=True))
    assert (len(loaded), len(process), count) == (1, 4, {"1"})
    assert len(files) == 1


def test_a_quick_file_loads_in_every_group(submission):
    """No process is kept where a fresh one is as quick."""
    quick = SLOW.replace("0.3", "0.0")
    with Sandbox(submission(kv_cache=quick + NOTHING + TELLS)) as sandbox:
        assert len({loaded for loaded, *_ in told(sandbox, 3)}) == 3
        assert sandbox.spares == {}


@pytest.mark.parametrize("holds", [SHARED, PIPE, THREAD], ids=["shared memory", "a pipe", "a thread"])
def test_what_is_more_than_memory_loads_afresh(submission, holds):
    """A process whose copy would share something with it, or lack something, is not copied."""
    with Sandbox(submission(kv_cache=SLOW + holds + TELLS)) as sandbox:
        found = told(sandbox, 3)
    assert len({loaded for loaded, *_ in found}) == 3
    assert len({held for *_, held in found}) == 1


def test_a_file_that_a_group_writes_is_not_there_for_the_next(submission):
    """Where the folder is no longer as loading left it, the next group loads afresh, in a folder of its own."""
    with Sandbox(submission(kv_cache=SLOW + NOTHING + TELLS)) as sandbox:
        first, second = told(sandbox, 2, size=2)
        assert "left.txt" in first[3] and "left.txt" in second[3]
        (third,) = told(sandbox, 1)
    assert "left.txt" not in third[3]
    assert len({first[0], second[0], third[0]}) == 3


def test_groups_that_live_at_once_are_processes_of_their_own(submission):
    """What one is asked changes nothing in the other, and the end of one does not end the other."""
    with Sandbox(submission(kv_cache=SLOW + NOTHING + TELLS)) as sandbox:
        told(sandbox, 1)
        with sandbox.group("numpy") as outer:
            before = outer.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value
            (inner,) = told(sandbox, 1)
            after = outer.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value
    assert (before[2], inner[2], after[2]) == (1, 1, 2)
    assert before[:2] == after[:2] and inner[1] != after[1]


def test_what_is_lent_reaches_a_file_that_has_loaded(submission):
    """Under every name that it is bound to; what is not lent stays the submission's own."""
    attention = (BASE / "attention.py").read_text() + "\n\ndef softmax(x, axis=-1):\n    return 'own'\n"
    borrows = "import attention\nfrom attention import softmax as s\nTABLE = {'s': s}\n"
    asks = "def kv_cache_bytes(*sizes, f=s):\n    g = [s, f, TABLE['s'], attention.softmax]\n"
    asks += "    return [LOADED_BY, [h if isinstance(h := f(np.zeros(2)), str) else h.tolist() for f in g]]\n"
    folder = submission(attention=attention, kv_cache="import numpy as np\n" + SLOW + borrows + asks)
    with Sandbox(folder) as sandbox:
        own = told(sandbox, 1)[0]
        with sandbox.group("numpy", served.stand_ins()) as subject:
            lent = subject.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value
        again = told(sandbox, 1)[0]
    assert (own[1], lent[1], again[1]) == (["own"] * 4, [[0.5, 0.5]] * 4, ["own"] * 4)
    assert own[0] == lent[0] == again[0]


def test_what_cannot_be_put_into_a_loaded_file_is_lent_to_a_fresh_one(submission):
    """A function that is not attention.py's own text, which other files may call as their own, is left alone."""
    attention = (BASE / "attention.py").read_text() + "\n\nfrom helper import softmax\n"
    asks = "import attention, helper\ndef kv_cache_bytes(*sizes):\n"
    asks += "    return [LOADED_BY, [f(1) if isinstance(f(1), str) else 'lent' for f in (attention.softmax, helper.softmax)]]\n"
    folder = submission(attention=attention, kv_cache=SLOW + asks)
    (folder / "helper.py").write_text("def softmax(x, axis=-1):\n    return 'own'\n")
    with Sandbox(folder) as sandbox:
        own = told(sandbox, 1)[0]
        with sandbox.group(
            "numpy", {"attention": {"softmax": served.stand_ins()["attention"]["causal_mask"]}}
        ) as subject:
            lent = subject.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value
    assert own[1] == ["own", "own"]
    assert lent[1] == ["lent", "own"]
    assert lent[0] != own[0]


KINDS = {
    "a closure": "def made(k):\n    def causal_mask(n_queries, n_keys=None):\n        return k\n    return causal_mask\ncausal_mask = made('own')\n",
    "a partial": "from functools import partial\ncausal_mask = partial(lambda word, n_queries, n_keys=None: word, 'own')\n",
    "an object": "class Mask:\n    def __call__(self, n_queries, n_keys=None):\n        return 'own'\ncausal_mask = Mask()\n",
    "a wrapped one": "from functools import wraps\ndef as_is(f):\n    @wraps(f)\n    def g(*a, **k):\n        return f(*a, **k)\n"
    "    return g\n@as_is\ndef causal_mask(n_queries, n_keys=None):\n    return 'own'\n",
    "a cached one": "from functools import cache\n@cache\ndef causal_mask(n_queries, n_keys=None):\n    return 'own'\n",
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_function_is_made_of_can_be_lent(submission, kind):
    """Put into the loaded file where it can be; else a file loads once for all groups that are lent the same."""
    asks = "from attention import causal_mask as m\ndef kv_cache_bytes(*sizes):\n    return [LOADED_BY, m(2) if isinstance(m(2), str) else 'lent']\n"
    folder = submission(attention=(BASE / "attention.py").read_text() + "\n\n" + KINDS[kind], kv_cache=SLOW + asks)
    with Sandbox(folder) as sandbox:
        own = [told(sandbox, 1)[0]]
        lent = []
        for _ in range(3):
            with sandbox.group("numpy", served.stand_ins()) as subject:
                lent.append(subject.call("kv_cache.kv_cache_bytes", 1, 1, 1, 1, 1).value)
        own += told(sandbox, 1)
    assert [word for _, word in (*own, *lent)] == ["own", "own", "lent", "lent", "lent"]
    assert len({by for by, _ in own}) == len({by for by, _ in lent}) == 1
    assert (own[0][0] == lent[0][0]) == (kind != "a cached one")


def test_loading_has_a_limit_of_its_own(submission):
    """What takes longer than a call may is no fault while a file loads, whatever hung before."""
    with Sandbox(submission(kv_cache=SLOW + NOTHING + TELLS), Limits(cpu_seconds=0.1, import_seconds=20)) as sandbox:
        sandbox.timeouts = 5
        assert told(sandbox, 1)[0][2] == 1


def test_own_experiments_at_import_cost_no_points(submission):
    """Prints, a plot that is saved, a try-out and an experiment of half a second, at the end of experiments.py: full marks, one load."""
    extra = """
import sys, time
from pathlib import Path
print(compare_with_sdpa([(2, 2, 16, 8)]))
Path("report/x.png").write_bytes(b"plot")
print(scaled_dot_product_attention(np.ones((3, 4)), np.ones((3, 4)), np.ones((3, 4)))[0])
_until = time.process_time() + 0.5
while time.process_time() < _until:
    pass
"""
    folder = submission(experiments=(BASE / "experiments.py").read_text() + extra)
    report = grade(folder, rubric=load_rubric(), steps={4, 6})
    assert [step.score for step in report.steps if step.number in (4, 6)] == [10, 8]
