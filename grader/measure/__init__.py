"""Time and memory of a submission, seen from outside its process."""
