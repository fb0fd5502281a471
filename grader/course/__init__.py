"""Many submissions: a rehearsal of an autograder, a batch, what a rerun changed, and files for gradebooks."""
