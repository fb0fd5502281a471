"""Known ways of being wrong: for each family of functions, the decisions it takes and what each option computes.

A module here is a family: it gives `SPACE` (its decisions), `PROBES` (calls that tell its options apart) and
`predict(variant, probe)`; where options carry a number that must be read out of an answer,
`read(variant, decision, answers)` as well. `space` holds the words they share.
"""
