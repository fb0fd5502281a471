"""Checks that know what is right."""
