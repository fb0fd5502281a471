"""`python -m grader`: the command, by the interpreter that has the grader, whatever PATH says."""

from harness.cli import main

main()
