"""Step 8's checks and its diagnosis: right caches of every style pass, and a wrong one is named by its code and no other."""

from __future__ import annotations

import random

import pytest

from grader.diagnosis import UNRECOGNISED, explain, same
from grader.families.cache import explain_answers
from reference.variants import cache, kv_cache_bytes
from reference.variants.space import Answer, Option, Variant, codes, variants, wrong_options


def answers(variant: Variant) -> dict[str, Answer]:
    return {probe.name: cache.predict(variant, probe) for probe in cache.PROBES}


def visible(variant: Variant, seen: dict[str, Answer]) -> frozenset[str]:
    """Codes of a variant but for options that another one hides: without them every answer is the same."""
    for dropped in variant:
        rest = Variant({d: o for d, o in variant.items() if d != dropped})
        if all(same(cache.predict(rest, probe), seen[probe.name], probe) for probe in cache.PROBES):
            return visible(rest, seen)
    return codes(variant)


def outcome(variant: Variant) -> str:
    """How a variant is named: "exact", "part" (a subset of its codes, or unrecognised), or what else is claimed."""
    seen = answers(variant)
    found = frozenset(explain_answers(seen).codes)
    if found == visible(variant, seen):
        return "exact"
    return "part" if found < codes(variant) or found == {UNRECOGNISED} else f"{variant} named {sorted(found)}"


def one_of_each(number: random.Random) -> list[tuple[str, Option]]:
    """Every wrong option; of one that carries a number, one number."""
    chosen = []
    for decision in cache.SPACE:
        for option in decision.options:
            if option.code is not None:
                chosen.append((decision.name, option.at(number.choice(option.examples)) if option.examples else option))
    return chosen


def test_right_answers_are_explained_by_no_fault() -> None:
    """The variant that records nothing."""
    found = explain_answers(answers(Variant()))
    assert (found.codes, found.matched) == ((), True)


@pytest.mark.long
def test_every_single_fault_is_named_exactly() -> None:
    """One wrong option alone is named by its code."""
    singles = [Variant({d: o}) for d, o in one_of_each(random.Random(1))]
    assert {outcome(variant) for variant in singles} == {"exact"}


@pytest.mark.slow
def test_pairs_are_named_exactly_or_in_part() -> None:
    """Two wrong options at once: 19 of 20 exactly, and never a fault that is not there."""
    number = random.Random(2)
    options = one_of_each(number)
    pairs = [number.sample(options, 2) for _ in range(60)]
    outcomes = [outcome(Variant(dict(pair))) for pair in pairs if pair[0][0] != pair[1][0]]
    assert set(outcomes) <= {"exact", "part"}
    assert outcomes.count("exact") >= 0.95 * len(outcomes)


def test_faults_of_storage_of_the_decoder_and_of_generate_are_named_beside_each_other() -> None:
    """Three of storage, two of the decoder and one of generate: each group has a search of its own."""
    names = {
        "full": "never",
        "copy": "all kept as they are",
        "nbytes": "capacity",
        "start": "0 in decode",
        "prefill.mask": "none",
        "plain.count": "one more",
    }
    wrong = {d.name: next(o for o in d.options if o.name == names[d.name]) for d in cache.SPACE if d.name in names}
    assert frozenset(explain_answers(answers(Variant(wrong))).codes) == codes(wrong)


def test_of_equal_explanations_the_usual_one_is_named() -> None:
    """A table of positions that begins at 1 for decoded tokens gives what a position one late gives."""
    option = next(o for d in cache.SPACE if d.name == "start" for o in d.options if o.name == "one late in decode")
    assert explain_answers(answers(Variant({"start": option}))).codes == ("cache-position-reset",)


def test_an_unknown_cache_is_not_accused() -> None:
    """Answers that no variant gives: logits off by a thousandth."""
    seen = answers(Variant())
    name = "a long text"
    decoded, held = seen[name]  # type: ignore[misc]
    seen[name] = ((decoded[0] * 1.001,), held)
    assert explain_answers(seen).codes == (UNRECOGNISED,)


def test_calls_that_all_raise_accuse_nobody() -> None:
    """A file of stubs."""
    seen: dict[str, Answer] = {p.name: (("raised",),) * len(p.args[1]) for p in cache.PROBES}
    assert explain_answers(seen).codes == (UNRECOGNISED,)


def test_what_storage_does_is_named_where_the_rest_is_not_known() -> None:
    """A cache that appends in front, under a decoder that nothing explains."""
    option = next(o for d in cache.SPACE for o in wrong_options(d) if o.name == "in front")
    seen = answers(Variant({"write": option}))
    for probe in cache.PROBES:
        if probe.function == "decoder":
            seen[probe.name] = (("nonsense",),) * len(probe.args[1])
    assert explain_answers(seen).codes == ("cache-prepended",)


def test_every_wrong_formula_is_named() -> None:
    """kv_cache_bytes with any factor wrong, or any two that do not make up for each other."""
    named = []
    for variant in variants(kv_cache_bytes.SPACE, 2):
        seen = {p.name: kv_cache_bytes.predict(variant, p) for p in kv_cache_bytes.PROBES}
        if any(not same(kv_cache_bytes.predict(Variant(), p), seen[p.name], p) for p in kv_cache_bytes.PROBES):
            named.append(explain(kv_cache_bytes, seen).codes)
    assert set(named) == {("cache-bytes-formula",)}
