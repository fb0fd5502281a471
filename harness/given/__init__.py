"""The files that a student is given and does not edit: the judge lays its own copies over a submission."""
