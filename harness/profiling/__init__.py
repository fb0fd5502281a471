"""Step 5, 6 and 8's measurements of a submission, drawn: what `attnlab profile` shows."""
