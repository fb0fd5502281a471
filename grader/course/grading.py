"""`python -m grader.course.grading PID grade …`: one grading of the batch that runs as PID, and ends with it."""

import sys

from grader.stopping import end_with
from harness.cli import main

if __name__ == "__main__":
    end_with(int(sys.argv.pop(1)))
    main()
