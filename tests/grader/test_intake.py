"""What is handed in becomes a clean copy; what cannot be taken is told, and nothing else is lost."""

from __future__ import annotations

import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from grader import intake


def files(path: Path) -> tuple[set[str], list[str]]:
    with intake.staged(path) as submission:
        return set(submission.files), [f.text for f in submission.findings]


def zipped(path: Path, folder: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(f for f in folder.rglob("*") if f.is_file()):
            archive.write(file, prefix + file.relative_to(folder).as_posix())
    return path


@pytest.mark.parametrize("prefix", ["", "lab/", "a/b/"])
def test_a_zip_gives_what_its_folder_gives(submission, tmp_path, prefix):
    """Nested or not, the same files and no findings."""
    folder = submission()
    assert files(zipped(tmp_path / "up.zip", folder, prefix)) == files(folder)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tar_gives_what_its_folder_gives(submission, tmp_path, mode):
    """Packed or not."""
    folder = submission()
    with tarfile.open(tmp_path / "up.tar", mode) as archive:
        archive.add(folder, "lab")
    assert files(tmp_path / "up.tar") == files(folder)


def test_a_flattened_upload_gets_its_report_folder_back(submission):
    """Report files at the top level are found all the same."""
    folder = submission()
    whole = files(folder)
    for file in list((folder / "report").iterdir()):
        file.rename(folder / file.name)
    (folder / "report").rmdir()
    assert files(folder) == whole


def test_the_given_model_is_the_judges_own(submission):
    """An edited or missing model.py changes nothing."""
    folder = submission(model="raise RuntimeError\n")
    with intake.staged(folder) as staged:
        assert "class Decoder" in (staged.root / "model.py").read_text()


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil.py", "a/../../evil.py", "..\\evil.py", "C:\\evil.py", "x" * 300 + ".py", "a/" * 20 + "b.py"])
def test_a_name_that_leads_out_is_left_out_and_told(submission, tmp_path, name):
    """The entry is named with the cause, everything else is graded, and no file appears outside."""
    path = zipped(tmp_path / "up.zip", submission())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(zipfile.ZipInfo(name), "x = 1")
    found, findings = files(path)
    assert found == files(submission())[0]
    assert len(findings) == 1 and "was left out" in findings[0]


def test_links_are_left_out_and_told(submission, tmp_path):
    """Symbolic links in folders, zips and tars, and hard links in tars, are no files."""
    folder = submission()
    (folder / "secret.py").symlink_to("/etc/passwd")
    assert [text for text in files(folder)[1]] == ["'secret.py' was left out: it is a link."]
    path = zipped(tmp_path / "up.zip", submission())
    info = zipfile.ZipInfo("secret.py")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "/etc/passwd")
    assert files(path)[1] == ["'secret.py' was left out: it is a link."]
    with tarfile.open(tmp_path / "up.tar", "w") as archive:
        archive.add(submission(), "lab")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            link = tarfile.TarInfo("lab/secret.py")
            link.type, link.linkname = kind, "/etc/passwd"
            archive.addfile(link)
    assert len(files(tmp_path / "up.tar")[1]) == 2


def test_a_bomb_is_read_no_further_than_the_cap(submission, tmp_path):
    """A megabyte that unpacks to a gigabyte is told and left out, whatever its header says."""
    path = zipped(tmp_path / "up.zip", submission())
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb.bin", "w") as file:
        for _ in range(64):
            file.write(bytes(2**20))
    found, findings = files(path)
    assert "bomb.bin" not in found and "larger than" in findings[0]


def test_too_many_files_are_told(submission, tmp_path):
    """The cap on the number of files holds, and what came before it is graded."""
    path = zipped(tmp_path / "up.zip", submission())
    with zipfile.ZipFile(path, "a") as archive:
        for i in range(intake.MAX_FILES):
            archive.writestr(f"data/{i}.txt", "x")
    found, findings = files(path)
    assert "attention.py" in found and "more than" in findings[0]


@pytest.mark.parametrize("make", ["missing", "text"])
def test_what_is_no_submission_at_all_is_an_error(tmp_path, make):
    """Neither folder nor archive: the argument is unusable."""
    path = tmp_path / "x.zip"
    if make == "text":
        path.write_text("not a zip")
    with pytest.raises(intake.IntakeError, match=r"x\.zip"), intake.staged(path):
        pass


def test_an_empty_folder_is_graded_with_findings(tmp_path):
    """Every file is told to be missing."""
    assert [text for text in files(tmp_path)[1]] == ["attention.py is missing.", "kv_cache.py is missing.", "experiments.py is missing."]


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_damaged_archive_is_a_finding_or_an_error_that_says_so(submission, tmp_path, kind):
    """Bytes flipped or cut anywhere: never any other exception."""
    whole = tmp_path / f"whole.{kind}"
    if kind == "zip":
        zipped(whole, submission())
    else:
        with tarfile.open(whole, "w:gz") as archive:
            archive.add(submission(), "lab")
    data, draw = whole.read_bytes(), random.Random(7)
    for _ in range(150):
        bad = bytearray(data)
        for _ in range(draw.randint(1, 8)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        if draw.random() < 0.3:
            del bad[draw.randrange(len(bad)) :]
        path = tmp_path / f"bad.{kind}"
        path.write_bytes(bad)
        try:
            files(path)
        except intake.IntakeError as error:
            assert str(path) in str(error)


def test_tars_with_devices_are_taken_without_them(submission, tmp_path):
    """A device or a pipe is no regular file."""
    with tarfile.open(tmp_path / "up.tar", "w") as archive:
        archive.add(submission(), "lab")
        device = tarfile.TarInfo("lab/device")
        device.type = tarfile.FIFOTYPE
        archive.addfile(device)
        text = tarfile.TarInfo("lab/helper.py")
        text.size = 5
        archive.addfile(text, io.BytesIO(b"x = 1"))
    found, findings = files(tmp_path / "up.tar")
    assert "helper.py" in found and len(findings) == 1
