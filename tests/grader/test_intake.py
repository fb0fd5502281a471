"""What is handed in becomes a clean copy; what cannot be taken is told, and nothing else is lost."""

from __future__ import annotations

import io
import random
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader import intake
from tests.conftest import BASE


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


@pytest.mark.parametrize(
    "name",
    [
        "../evil.py",
        "/etc/evil.py",
        "a/../../evil.py",
        "..\\evil.py",
        "C:\\evil.py",
        "x" * 300 + ".py",
        "a/" * 20 + "b.py",
    ],
)
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
    assert list(files(folder)[1]) == ["'secret.py' was left out: it is a link."]
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


def test_a_link_that_takes_a_files_place_is_not_read(submission, tmp_path, monkeypatch):
    """Neither what was a file when the folder was looked at, nor what is named itself."""
    folder = submission(helper="x = 1\n")
    read = intake._reader_of

    def late(path):
        if path.name == "helper.py":
            path.unlink()
            path.symlink_to("/etc/passwd")
        return read(path)

    monkeypatch.setattr(intake, "_reader_of", late)
    found, told = files(folder)
    assert "helper.py" not in found
    assert told == ["'helper.py' was left out: it cannot be read (OSError: [Errno 40] Too many levels of symbolic links: "
                    f"'{folder}/helper.py')."]  # fmt: skip
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(intake.IntakeError, match="symbolic link"), intake.staged(tmp_path / "link"):
        pass


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
    assert list(files(tmp_path)[1]) == [
        "Nothing here can be graded: it is empty.",
        "attention.py is missing.",
        "kv_cache.py is missing.",
        "experiments.py is missing.",
    ]


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


def test_a_stream_is_unpacked_no_further_than_the_cap(submission, tmp_path, monkeypatch):
    """A member that is left out is unpacked to be skipped: that counts too."""
    monkeypatch.setattr(intake, "MAX_UNPACKED", 2**20)
    with tarfile.open(tmp_path / "up.tar", "w:gz") as archive:
        info = tarfile.TarInfo("zeros.bin")
        info.size = 2**22
        archive.addfile(info, io.BytesIO(bytes(info.size)))
        archive.add(submission(), "lab")
    found, findings = files(tmp_path / "up.tar")
    assert "attention.py" not in found
    assert "unpacks to more than 1 MiB" in findings[0]


@pytest.mark.parametrize("first", [False, True])
def test_an_extended_header_of_a_tar_has_a_length(submission, tmp_path, first):
    """What stands before it is taken; a name of umlauts needs such a header too, and is no matter."""
    with tarfile.open(tmp_path / "up.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        if not first:
            archive.add(submission(), "lab")
            archive.add(submission() / "attention.py", "lab/\N{LATIN SMALL LETTER U WITH DIAERESIS}bung.py")
        header = tarfile.TarInfo("x")
        header.type, header.size = tarfile.XHDTYPE, 9_000
        archive.addfile(header, io.BytesIO(b"1" * 9_000))
    found, told = files(tmp_path / "up.tar")
    assert ("\N{LATIN SMALL LETTER U WITH DIAERESIS}bung.py" in found) == (not first)
    assert told[0].endswith("an extended header in it is longer than 8 KiB, and the rest was left out.")


def test_junk_is_not_even_unpacked(submission, tmp_path):
    """What macOS and editors put in is skipped by its name, whatever it holds."""
    path = zipped(tmp_path / "up.zip", submission())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("__MACOSX/._attention.py", "x")
    damaged = bytearray(path.read_bytes())
    at = damaged.rindex(b"__MACOSX/._attention.py", 0, damaged.rindex(b"__MACOSX/._attention.py")) + 23
    damaged[at] ^= 0xFF
    path.write_bytes(damaged)
    assert files(path) == files(submission())


@pytest.mark.parametrize("names", [("model.py/x",), ("attention.py/x",), ("report",), ("a", "a/b")])
def test_a_folder_where_a_file_belongs_breaks_nothing(tmp_path, names):
    """And the other way round."""
    path = tmp_path / "up.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*names, "loglog.png", "kv_cache.py"):
            archive.writestr(zipfile.ZipInfo(name), "x = 1\n")
    with intake.staged(path) as staged:
        assert (staged.root / "model.py").is_file()


def test_source_that_takes_too_long_to_parse_is_left_out(submission):
    """The judge parses what is handed in, which takes a hundred times its size in memory."""
    folder = submission(helper="a\n" * 2**19)
    found, findings = files(folder)
    assert "helper.py" not in found
    assert "KiB of Python" in findings[0]


def test_a_folder_deeper_than_the_stack_is_left_out(submission):
    """It is told, and the rest is graded."""
    folder = submission()
    here = folder
    for _ in range(40):
        here = here.joinpath(*["d"] * 30)
        here.mkdir(parents=True)
    found, findings = files(folder)
    assert "attention.py" in found
    assert "too deep" in findings[0]
    _flatten(folder)


def _flatten(folder: Path) -> None:
    """Takes a deep folder apart from its top, so that pytest can remove it."""
    deep = folder / "d"
    for i in range(1200):
        inner = deep / "d"
        if not inner.exists():
            break
        inner.rename(folder / f"next{i}")
        deep.rmdir()
        (folder / f"next{i}").rename(deep)


@pytest.mark.long
@settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_corrupted_archive_is_graded_or_refused(tmp_path_factory, data):
    """Two hundred corruptions of zips and tars: a clean copy, or an error that names the file; never anything else."""
    folder = tmp_path_factory.getbasetemp()
    kind = data.draw(st.sampled_from(sorted(_archives(folder))))
    bad = bytearray(_archives(folder)[kind])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(bad) - 1)))
        what = data.draw(st.sampled_from(("change", "cut", "put", "end")))
        if what == "change" and bad:
            bad[at] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del bad[at : at + data.draw(st.integers(1, 300))]
        elif what == "put":
            bad[at:at] = data.draw(st.binary(max_size=40))
        elif bad:
            bad[len(bad) - 1 - at % 90] = data.draw(st.integers(0, 255))
    path = folder / f"corrupted.{kind.split(':')[0]}"
    path.write_bytes(bad)
    try:
        files(path)
    except intake.IntakeError as error:
        assert str(path) in str(error)


_MADE: dict[str, bytes] = {}


def _archives(folder: Path) -> dict[str, bytes]:
    if not _MADE:
        small = folder / "small"
        small.mkdir()
        for name in ("attention", "kv_cache", "experiments"):
            (small / f"{name}.py").write_text(f"{name} = 1\n")
        _MADE["zip"] = zipped(folder / "whole.zip", small).read_bytes()
        for mode in ("", ":gz", ":bz2", ":xz"):
            with tarfile.open(folder / "whole.tar", f"w{mode}") as archive:
                archive.add(small, "lab")
            _MADE[f"tar{mode}"] = (folder / "whole.tar").read_bytes()
    return _MADE


def test_an_archive_in_an_archive_is_told_where_there_is_nothing_else(submission, tmp_path):
    """Beside the lab's own files it says nothing: it may be anybody's data."""
    with zipfile.ZipFile(tmp_path / "lab.zip", "w") as outer:
        outer.writestr("inner.zip", b"PK")
    with intake.staged(tmp_path / "lab.zip") as found:
        told = [f.text for f in found.findings if "inner.zip" in f.text]
    assert "it is an archive in what was handed in; its files have to be handed in as they are" in told[0]
    folder = submission()
    shutil.copy(tmp_path / "lab.zip", folder / "data.zip")
    with intake.staged(folder) as found:
        assert not [f for f in found.findings if "data.zip" in f.text]


def test_a_courses_names_lie_beside_the_submission(submission):
    """What a rubric maps for all holds in the staged copy, and nothing is written where the submission came from."""
    folder = submission(attention=(BASE / "attention.py").read_text().replace("softmax(", "my_softmax("))
    with intake.staged(folder, {"attention": {"softmax": "my_softmax"}}) as found:
        assert [f.code for f in found.findings] == ["name-mapped"]
    assert not (folder / "adapters.course.toml").exists()
