#!/usr/bin/env bash
# Runs once a submission, as root. The platform keeps results.json alone; what is printed here is for staff.
cd /autograder || exit 1
source=/autograder/source
results=/autograder/results/results.json
arguments=(--gradescope "$results" --metadata /autograder/submission_metadata.json --time-limit "$(cat "$source/time-limit")")
if [ -e "$source/rubric.yaml" ]; then arguments+=(--rubric "$source/rubric.yaml"); fi
if [ -e "$source/secret.txt" ]; then arguments+=(--seed-file "$source/secret.txt"); fi
/opt/attnlab/bin/attnlab grade /autograder/submission "${arguments[@]}"
status=$?
if [ ! -e "$results" ]; then cp "$source/not-graded.json" "$results"; fi
exit "$status"
