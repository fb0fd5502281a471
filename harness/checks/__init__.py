"""Checks that need no oracle: what must hold whatever the right answer is. Students have them."""
