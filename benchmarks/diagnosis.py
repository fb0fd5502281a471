"""How exactly the search names faults of attention.py: one at a time, and several common ones at once.

python benchmarks/diagnosis.py [--count 200] [FAMILY ...]

"exact": all codes and no other; "part": a true part of them; "none": unrecognised; "wrong": a code that is not there. A
fault that another one hides is not expected. CPU seconds are of one explanation, with nothing known from an earlier one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterator

from grader import diagnosis
from reference.variants.space import Answer, Space, Variant, codes, variants, wrong_options

FAMILIES = ("softmax", "sdpa", "self_attention", "project", "causal_mask", "positions")


def answers(family: str, variant: Variant) -> dict[str, Answer]:
    """What a variant answers to its family's probes."""
    module = diagnosis.families()[family]
    return {probe.name: module.predict(variant, probe) for probe in module.PROBES}


def visible(family: str, variant: Variant, seen: dict[str, Answer]) -> frozenset[str]:
    """Codes of a variant but for options that another one hides: without them every answer is the same."""
    module = diagnosis.families()[family]
    for dropped in variant:
        rest = Variant({d: o for d, o in variant.items() if d != dropped})
        if all(diagnosis.same(module.predict(rest, probe), seen[probe.name], probe) for probe in module.PROBES):
            return visible(family, rest, seen)
    return codes(variant)


def drawn(space: Space, size: int, count: int) -> Iterator[Variant]:
    """Variants of `size` common faults: decisions first, then an option of each."""
    rng = random.Random(size)
    common = {d.name: [o for o in wrong_options(d) if o.common] for d in space}
    names = [name for name, options in common.items() if options]
    for _ in range(count if len(names) >= size else 0):
        yield Variant({name: rng.choice(common[name]) for name in rng.sample(names, size)})


def outcome(family: str, variant: Variant) -> tuple[str, float, str]:
    """How a variant is named, the CPU seconds that it took, and what was said of it."""
    seen = answers(family, variant)
    diagnosis._known.clear()
    began = time.process_time()
    explanation = diagnosis.explain(diagnosis.families()[family], seen)
    took = time.process_time() - began
    found, expected = frozenset(explanation.codes), visible(family, variant, seen)
    if found == expected:
        how = "exact"
    elif found == {diagnosis.UNRECOGNISED}:
        how = "none"
    else:
        how = "part" if found < codes(variant) else "wrong"
    return how, took, f"{variant} is {sorted(expected)}, named {sorted(found)} as {list(explanation.options)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--show", nargs="*", default=["wrong"], help="outcomes whose variants are printed")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 2, 3, 4])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    options = parser.parse_args()
    print(f"{'family':16}faults  tried  exact  part  none  wrong  CPU seconds: mean, most")
    for family in options.families or FAMILIES:
        space = diagnosis.families()[family].SPACE
        for size in options.sizes:
            chosen = list(variants(space, 1))[1:] if size == 1 else list(drawn(space, size, options.count))
            results = [outcome(family, variant) for variant in chosen]
            if not results:
                continue
            tally, seconds = Counter(how for how, _, _ in results), [s for _, s, _ in results]
            shares = "".join(f"{tally[how] / len(results):7.1%}" for how in ("exact", "part", "none", "wrong"))
            print(f"{family:16}{size:6} {len(results):6}{shares}  {sum(seconds) / len(seconds):.2f} {max(seconds):.2f}")
            for how, _, told in results:
                if how in options.show:
                    print(f"    {how}: {told}")


if __name__ == "__main__":
    main()
