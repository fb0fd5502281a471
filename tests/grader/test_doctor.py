"""What is said of a machine before anything is graded on it."""

import pytest

from grader import doctor


@pytest.mark.parametrize(
    ("version", "warned"), [((3, 11, 9), True), ((3, 11, 10), False), ((3, 12, 5), True), ((3, 13, 0), False)]
)
def test_an_older_python_is_told_what_it_brings_along(version: tuple[int, int, int], warned: bool) -> None:
    """Its tarfile takes minutes over some headers, which no limit of a grading bounds."""
    assert ("CVE-2024-6232" in doctor._python(version)) == warned
