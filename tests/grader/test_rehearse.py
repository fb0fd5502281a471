"""A rehearsal reads cases, judges results as the platform keeps them, and says plainly what is missing on the machine."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile

import pytest
from click.testing import CliRunner

from grader.course import cases as known
from grader.course.cases import Case, CaseError, Verdict, differences, find
from grader.course.cli import rehearse_command
from grader.course.engine import EngineError
from grader.course.rehearse import Rehearsed, _context, compared, on_host, verdict_of
from grader.render.gradescope import to_results
from tests.grader.lab_of_two import ROWS, SHIFT, blocked, broken, failed, report_of, wrong_rows

AXIS = ("softmax-wrong-axis", "seen")
FULL = Verdict(100, 100, True, frozenset(), frozenset())


def a_fault(**more) -> Verdict:
    return Verdict(
        **{
            "score": 80,
            "max_score": 100,
            "final": True,
            "codes": frozenset({"scale-missing"}),
            "lost": frozenset({1}),
            **more,
        }
    )


@pytest.fixture
def folder(tmp_path):
    """A base, a fault laid over it, and a submission of its own."""
    for name in ("base", "fault", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / "attention.py").write_text("right")
    (tmp_path / "base" / "kv_cache.py").write_text("right too")
    (tmp_path / "fault" / "attention.py").write_text("wrong")
    (tmp_path / "fault" / "case.toml").write_text(
        'kind = "fault"\ncodes = ["scale-missing"]\nsteps = [1, 2]\nscore = 80\n'
    )
    (tmp_path / "own" / "attention.py").write_text("own")
    return tmp_path


def test_a_case_is_laid_over_the_base_and_one_without_a_page_stands_alone(folder, tmp_path):
    base, fault, own = find(folder)
    assert (base.correct, fault.correct, own.correct) == (True, False, True)
    assert (fault.codes, fault.steps, fault.score) == (("scale-missing",), (1, 2), 80)
    fault.assemble(tmp_path / "out")
    assert {p.name: p.read_text() for p in (tmp_path / "out").iterdir()} == {
        "attention.py": "wrong",
        "kv_cache.py": "right too",
    }
    (folder / "fault" / "case.toml").write_text("alone = true\nsteps = [1]\n")
    find(folder)[1].assemble(tmp_path / "bare")
    assert [p.name for p in (tmp_path / "bare").iterdir()] == ["attention.py"]
    own.assemble(tmp_path / "alone")
    assert [p.name for p in (tmp_path / "alone").iterdir()] == ["attention.py"]
    assert [c.name for c in find(folder, ["aul", "wn"])] == ["fault", "own"]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("codes = [", "case.toml: this is no TOML"),
        ("codes = 3", "case.toml, line 1: codes is 3. Mend: write a list of codes"),
        ("codes = [3]", "case.toml, line 1: codes.0 is 3. Mend: write a code in quotes"),
        ('note = "x"\ncode = ["scale-missing"]', "case.toml, line 2: code is unknown here. Mend: write codes"),
        (
            'codes = ["scale-mising"]',
            "case.toml, line 1: scale-mising is no code of this lab. Mend: write scale-missing",
        ),
        ('codes = []\nalso = ["mask-inversed"]', "case.toml, line 2: mask-inversed is no code .* mask-inverted"),
        ('steps = ["1"]', "write the number of a step"),
        ("steps = [1, 77]", "case.toml, line 1: 77 is no step of this lab"),
        ('score = "80"', "write a number"),
        ("alone = 1", "write alone = true"),
        ('kind = "falt"', "write what the case is: fault, correct or attack"),
    ],
)
def test_a_broken_page_is_told_with_its_line(folder, page, said):
    """A key, a code or a step that is none would else be expected of nothing."""
    (folder / "fault" / "case.toml").write_text(page)
    with pytest.raises(CaseError, match=said):
        find(folder)


@pytest.mark.parametrize("page", ["", 'kind = "correct"\nnote = """\ncodes = words\n"""', "score = 81"])
def test_a_page_that_says_little_is_taken(folder, page):
    (folder / "fault" / "case.toml").write_text(page)
    assert find(folder)[1].correct == ("score" not in page)


def test_an_empty_folder_and_none_are_told(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        with pytest.raises(CaseError):
            find(place)


FAULT = Case("x", known.Path(), codes=("scale-missing",), also=("scale-fixed",), steps=(1, 2), correct=False)


@pytest.mark.parametrize(
    ("case", "verdict", "said"),
    [
        (FAULT, a_fault(), None),
        (FAULT, a_fault(codes=frozenset({"scale-fixed"})), None),  # what cannot be told apart
        (FAULT, a_fault(codes=frozenset({"scale-missing", "raised", "blocked-by"})), None),
        (FAULT, a_fault(codes=frozenset({"raised"})), "not named: scale-missing"),
        (FAULT, a_fault(codes=frozenset({"scale-missing", "mask-inverted"})), "not expected: mask-inverted"),
        (FAULT, a_fault(lost=frozenset({2})), "step 1 lost no points"),
        (FAULT, a_fault(final=False), "not final"),
        (Case("x", known.Path()), FULL, None),
        (Case("x", known.Path()), a_fault(codes=frozenset()), "full marks are expected"),
        (Case("x", known.Path()), Verdict(100, 100, True, frozenset({"mask-ignored"}), frozenset()), "mask-ignored"),
        (Case("x", known.Path(), score=81.5, correct=False), a_fault(codes=frozenset(), score=80), "81.5 are expected"),
    ],
)  # fmt: skip
def test_what_differs_is_said_and_nothing_else(case, verdict, said):
    told = differences(case, verdict)
    assert told == [] if said is None else said in "; ".join(told)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (a_fault(), []),
        (a_fault(score=81.25), ["80 points in the image, and 81.25 on this host"]),
        (a_fault(final=False), ["the score is final in the image alone"]),
        (
            a_fault(codes=frozenset({"timeout"})),
            ["named in the image alone: scale-missing", "named on this host alone: timeout"],
        ),
    ],
)
def test_what_differs_between_the_image_and_this_host_is_said(host, said):
    """Beside what is not as expected, whether or not a case says what that is."""
    done = compared(Rehearsed(FAULT, 3.0, a_fault(), (), "in it"), host, "on it")
    assert (list(done.told), done.host, done.as_expected) == (said, host, not said)
    assert "in it" in done.printed and "on it" in done.printed


@pytest.mark.slow
def test_this_host_grades_a_case_by_the_autograders_rubric(folder, tmp_path):
    """With what is to be expected, or the grader's own words where it cannot."""
    (tmp_path / "rubric.yaml").write_text("schema: 1\ntitle: x\npoints: {step2: 7}\n")
    verdict, _ = on_host(find(folder, ["own"])[0], ["--rubric", str(tmp_path / "rubric.yaml")])
    assert (verdict.score, verdict.max_score, verdict.final, verdict.lost) == (0, 7, True, {2})
    case = Case("own", folder / "own")
    done = compared(Rehearsed(case, 3.0, verdict, (), ""), *on_host(case, ["--rubric", str(tmp_path / "none")]))
    assert "it could not be graded on this host: " in done.told[0] and "cannot be read" in done.told[0]


def test_the_platforms_file_is_read_as_the_report_that_it_came_from(tmp_path):
    """Points, codes of failed checks, lost steps, whether it is final."""
    verdict = verdict_of(to_results(report_of(tmp_path, failed(ROWS, wrong_rows(), AXIS), blocked(SHIFT, ROWS))))
    assert verdict == Verdict(60.0, 100.0, True, frozenset({"softmax-wrong-axis", "blocked-by"}), frozenset({1}))
    assert not verdict_of(to_results(report_of(tmp_path, broken(ROWS)))).final


def test_an_image_of_a_zip_is_made_of_its_own_files_with_their_modes(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name, mode in (("setup.sh", 0o755), ("run_autograder", 0o755), ("grader/x.py", 0o644)):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            file.writestr(info, name)
    with tarfile.open(fileobj=io.BytesIO(_context(tmp_path / "a.zip", "some:base", {"PROXY": "x"}).read())) as packed:
        modes = {m.name: m.mode for m in packed.getmembers()}
        text = packed.extractfile("Dockerfile").read().decode()
    assert modes == {
        "Dockerfile": 0o644,
        "source/setup.sh": 0o755,
        "source/run_autograder": 0o755,
        "source/grader/x.py": 0o644,
    }
    assert text.startswith("FROM some:base\nARG PROXY\n") and "setup.sh" in text
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as file:
        file.writestr("folder/setup.sh", "")
    with pytest.raises(EngineError, match="at its top"):
        _context(tmp_path / "b.zip", "some:base", {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["image", "{tmp}/none"], "is no folder"),
        (["image", "{tmp}", "--only", "nothing"], "holds no case whose name has nothing"),
        (["image", "{tmp}", "--build-arg", "x"], "NAME=VALUE"),
        (["image", "{tmp}"], "no container engine answers"),
        (["{tmp}/none.zip", "{tmp}"], "none.zip is not there: attnlab release gradescope"),
    ],
)
def test_what_is_missing_is_a_sentence_and_exit_2(folder, monkeypatch, words, said):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/no.sock")
    done = CliRunner().invoke(rehearse_command, [w.format(tmp=folder) for w in words])
    assert done.exit_code == 2 and said in " ".join(done.output.split())
    assert "Traceback" not in done.output


def test_without_the_docker_package_the_command_that_installs_it_is_told(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "docker", None)
    done = CliRunner().invoke(rehearse_command, ["image", str(folder)])
    assert done.exit_code == 2 and "python -m pip install 'attnlab-grader[docker]'" in " ".join(done.output.split())


def test_results_that_were_refused_are_not_final():
    assert not verdict_of(json.loads('{"score": 3, "tests": [], "extra_data": {"refused": true}}')).final
