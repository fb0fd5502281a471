"""What a look at the files says, before anything of a submission runs."""

import shutil

import pytest

from harness import loader


def findings(folder):
    return [(f.code, f.module) for f in loader.inspect(folder).findings]


def test_a_complete_submission_has_no_findings(submission):
    """The bundled correct submission is found whole."""
    assert findings(submission()) == []


def test_files_are_found_one_folder_down_among_junk(submission, tmp_path):
    """An upload nested one folder deep, with __MACOSX and editor files, is found all the same."""
    upload = tmp_path / "upload"
    shutil.copytree(submission(), upload / "my lab")
    (upload / "__MACOSX" / "my lab").mkdir(parents=True)
    (upload / "__MACOSX" / "my lab" / "._attention.py").write_bytes(b"\0\1")
    (upload / "my lab" / "attention.py~").write_text("old")
    (upload / "my lab" / ".DS_Store").write_bytes(b"\0")
    found = loader.inspect(upload)
    assert (found.root.name, found.findings) == ("my lab", ())
    assert not any("._" in f or f.endswith("~") for f in found.files)


def test_a_missing_file_is_told_with_the_nearest_name(submission):
    """attentoin.py beside a missing attention.py is pointed out."""
    folder = submission(attention=None, attentoin="x = 1\n")
    (finding,) = loader.inspect(folder).findings_of("attention")
    assert (finding.code, finding.nearest) == ("file-missing", "attentoin.py")


def test_a_missing_name_is_told_with_the_nearest_name(submission):
    """soft_max in place of softmax is pointed out; the other names are missing too, and each is told."""
    folder = submission(attention="def soft_max(x, axis=-1):\n    return x\n")
    found = {f.module: f.nearest for f in loader.inspect(folder).findings}
    assert found["attention.softmax"] == "soft_max"
    assert set(found) == {
        f"attention.{name}"
        for name in "softmax project scaled_dot_product_attention self_attention causal_mask sinusoidal_positions".split()
    }


@pytest.mark.parametrize(
    "text",
    ["softmax = lambda x, axis=-1: x\n", "if True:\n    def softmax(x, axis=-1):\n        return x\n", "from helper import softmax\n",
     "from helper import *\n", "try:\n    from fast import softmax\nexcept ImportError:\n    softmax = None\n"],
)  # fmt: skip
def test_a_name_bound_in_any_way_counts(submission, text):
    """A lambda, a conditional definition, an import or a star import all offer the name."""
    assert "attention.softmax" not in [f.module for f in loader.inspect(submission(attention=text)).findings]


def test_a_syntax_error_is_told_with_its_line(submission):
    """The line of the file is in the finding."""
    (finding,) = loader.inspect(submission(attention="x = 1\ndef softmax(:\n")).findings_of("attention")
    assert (finding.code, finding.line) == ("import-failed", 2)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00x", b"x = '\xe9'\n", b"\0\0\0", b"(" * 100_000])
def test_a_file_that_is_no_python_text_is_a_finding(submission, data):
    """Other encodings, null bytes and absurd nesting are told, not raised."""
    folder = submission()
    (folder / "attention.py").write_bytes(data)
    assert [f.code for f in loader.inspect(folder).findings_of("attention")] == ["import-failed"]


def test_an_import_of_an_attention_library_is_told_before_anything_runs(submission):
    """torch in attention.py is named with its line; torch in experiments.py is what the lab asks for."""
    folder = submission()
    (folder / "attention.py").write_text((folder / "attention.py").read_text() + "\nimport torch.nn.functional as F\n")
    (finding,) = loader.inspect(folder).findings
    assert (finding.code, finding.module) == ("forbidden-library", "attention")


def test_what_is_installed_inside_the_folder_is_not_the_students(tmp_path, monkeypatch):
    """With a virtual environment in the lab's own folder, NumPy's lines in it are not taken for the student's."""
    monkeypatch.setattr(loader.sys, "prefix", str(tmp_path / ".venv"))
    assert loader.is_own(tmp_path, str(tmp_path / "attention.py"))
    assert loader.is_own(tmp_path, str(tmp_path / "parts" / "softmax.py"))
    assert not loader.is_own(tmp_path, str(tmp_path / ".venv" / "lib" / "site-packages" / "numpy" / "__init__.py"))
    assert not loader.is_own(tmp_path, f"{tmp_path}-other/attention.py")
