"""What a submission is worth, and who is told what: the judge."""
