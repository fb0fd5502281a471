"""What is right: the chapter's formulas in plain NumPy, and its printed numbers."""
