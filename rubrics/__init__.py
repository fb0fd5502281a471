"""Rubrics: a course's points, visibility and words, as data."""
