#!/usr/bin/env bash
# close.sh FOLDER: keeps the judge's files from every user but root. A submission runs as another user, and on kernels that lack
# Landlock this is what divides it from them.
set -euo pipefail
for package in reference grader rubrics examples.base examples.torch; do
  chmod -R go= "$("$1/bin/python" -c "import $package; print(list($package.__path__)[0])")"
done
if [ -d /autograder/source ]; then chmod -R go= /autograder/source; fi
