"""The decisions that a KV cache and its decoder take, and the known wrong ways of taking each.

A submission may have up to three ways through the layers: `forward`, `prefill` of a table of tokens, and `decode` of one.
A fault found in one of them goes on in the next unless the variant says "no" to that.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference.variants.space import Decision, Option, Variant, decision

WALKS = ("forward", "prefill", "decode")
CACHED = ("prefill", "decode")
TOO = ", forward too"  # of an option whose forward runs through a cache as well
LOOPS = ("plain", "cached")  # generate without a cache, and with one
SIZES = (*(float(n) for n in range(1, 11)), 12.0, 15.0, 16.0, 20.0, 24.0, 30.0, 32.0, 40.0, 48.0, 50.0, 60.0, 64.0)
LAST = -1.0  # the last id of the vocabulary
IDS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, LAST)  # that generate may stop at
EPSILONS = (1e-5, 1e-6, 0.0, 1e-8)
BASES = (1000.0, 100.0, 10.0, 1e5, 5e5, 2.718281828459045)  # of a table of positions, where 10000 is right


def pathwise(name: str, paths: tuple[str, ...], *options: Option) -> tuple[Decision, ...]:
    """One decision for each path; and, for each but the first, whether a fault of an earlier path is in it too."""
    own = tuple(decision(f"{path}.{name}", *options) for path in paths)
    return own + tuple(decision(f"{path}.{name} too", Option("no")) for path in paths[1:])


TABLES = (
    Option("cosine first", "positions-sin-cos-swapped", common=False),
    Option("halves", "positions-halves", common=False),
    Option("i for 2i", "positions-wrong-frequency", common=False),
    Option("of half the width", "positions-wrong-frequency", common=False),
    Option("per column", "positions-wrong-frequency", common=False),
    Option("another base", "positions-wrong-frequency", common=False, examples=BASES),
)


STORAGE: tuple[Decision, ...] = (
    decision("caches", Option("share", "cache-shared-state")),
    decision("layers", Option("share", "cache-shared-state"), Option("share a block", "cache-shared-state")),
    decision(
        "write",
        Option("over the last", "cache-overwritten"),
        Option("over the last, counted whole", "cache-overwritten"),
        Option("from 0", "cache-overwritten"),
        Option("in place of all", "cache-overwritten"),
        Option("in front", "cache-prepended"),
        Option("twice", "cache-appended-twice"),
        Option("not at all", "cache-not-appended"),
        Option("along the heads", "cache-wrong-axis"),
        Option("along the features", "cache-wrong-axis"),
        Option("the last of a chunk", "cache-truncated", common=False),
        Option("the first of a chunk", "cache-truncated", common=False),
    ),
    decision(
        "keep",
        Option("the last", "cache-truncated", examples=SIZES),
        Option("the first", "cache-truncated", examples=SIZES),
    ),
    decision(
        "slots",
        Option("swapped", "cache-keys-values-swapped"),
        Option("keys for both", "cache-keys-values-swapped"),
        Option("values for both", "cache-keys-values-swapped"),
    ),
    decision("read", Option("whole capacity", "cache-padding-attended")),
    decision(
        "kept layers",
        Option("the first alone", "cache-layer-mixed"),
        Option("the last alone", "cache-layer-mixed"),
        Option("read in reverse", "cache-layer-mixed"),
    ),
    decision(
        "length",
        Option("of layer 0", "cache-length-wrong"),
        Option("of the last layer", "cache-length-wrong"),
        Option("of the longest", "cache-length-wrong"),
        Option("of all together", "cache-length-wrong"),
        Option("the capacity", "cache-length-wrong"),
    ),
    decision(
        "counter",
        Option("one", "cache-length-wrong"),
        Option("one, moved by layer 0", "cache-length-wrong"),
        Option("one, moved by the last layer", "cache-length-wrong"),
    ),
    decision(
        "full",
        Option("never", "cache-unbounded"),
        Option("never, in a block", "cache-unbounded"),
        Option("never, in a block of tensors", "cache-unbounded"),
        Option("stored in part, then refused", "cache-unbounded"),
        Option("stored in part", "cache-unbounded"),
        Option("stored in part, then another exception", "cache-unbounded"),
        Option("stored, then refused", "cache-unbounded"),
        Option("keys stored, then refused", "cache-unbounded"),
        Option("one too early", "cache-capacity-off-by-one"),
        Option("one too late", "cache-capacity-off-by-one"),
        Option("another exception", "cache-capacity-off-by-one"),
        Option("oldest dropped", "cache-unbounded"),
        Option("oldest overwritten in place", "cache-unbounded"),
        Option("last overwritten in place", "cache-unbounded"),
        Option("newest dropped", "cache-unbounded"),
        Option("never, but in the first layer", "cache-unbounded"),
        Option("never, but in the last layer", "cache-unbounded"),
    ),
    decision("value counted", Option("as held")),  # a style beside another dtype
    decision("bytes counted", Option("by slices")),  # a style beside another length
    decision("room counted", Option("from where it is written")),  # a style beside a write over the last
    decision(
        "copy",
        Option("first kept as it is", "cache-aliases-input"),
        Option("all kept as they are", "cache-aliases-input"),
        Option("keys kept as they are", "cache-aliases-input", common=False),
        Option("values kept as they are", "cache-aliases-input", common=False),
    ),
    decision(
        "dtype",
        Option("float16", "cache-wrong-dtype"),
        Option("float32", "cache-wrong-dtype"),
        Option("float64", "cache-wrong-dtype"),
        *(
            Option(f"{dtype}, {which} alone", "cache-wrong-dtype", common=False)
            for dtype in ("float16", "float32", "float64")
            for which in ("keys", "values")
        ),
        Option("of what is appended", "cache-wrong-dtype"),
        Option("the wider", "cache-wrong-dtype"),
    ),
    decision(
        "nbytes",
        Option("keys alone", "cache-bytes-formula"),
        Option("capacity", "cache-bytes-formula"),
        Option("one layer", "cache-bytes-formula"),
        Option("one head", "cache-bytes-formula"),
        Option("the longest", "cache-bytes-formula"),
        Option("layer 0", "cache-bytes-formula"),
        Option("each layer's own", "cache-bytes-formula"),
        Option("8 a value", "cache-bytes-formula"),
        Option("4 a value", "cache-bytes-formula"),
        Option("2 a value", "cache-bytes-formula"),
        Option("values counted, not bytes", "cache-bytes-formula"),
        Option("bits", "cache-bytes-formula"),
        Option("twice", "cache-bytes-formula"),
    ),
)

LAYERS: tuple[Decision, ...] = (
    *pathwise("embedding", WALKS, Option("scaled by sqrt(d)", "decode-extra-step")),
    *pathwise("unasked positions", WALKS, Option("added", "positions-misplaced")),
    *pathwise(
        "positions",
        WALKS,
        Option("ignored", "positions-ignored"),
        Option("before every layer", "positions-misplaced"),
    ),
    *pathwise("table", WALKS[:2], Option("from one", "positions-from-one", common=False), *TABLES),
    decision("decode.table", *TABLES),  # from one is one late there
    decision("decode.table too", Option("no")),
    decision(
        "start",
        Option("0 in chunks", "cache-chunk-misaligned"),
        Option("0 in decode", "cache-position-reset"),
        Option("0 in chunks and decode", "cache-position-reset"),
        Option("1 in decode", "cache-position-reset", common=False),
        Option("one early in chunks", "cache-chunk-misaligned"),
        Option("one early in decode", "cache-position-reset"),
        Option("one early in chunks and decode", "cache-position-reset"),
        Option("one late in chunks", "cache-chunk-misaligned"),
        Option("one late in decode", "cache-position-reset"),
        Option("one late in chunks and decode", "cache-position-reset"),
        Option("steps since prefill in decode", "cache-position-reset"),
        Option("steps since prefill, from 1, in decode", "cache-position-reset", common=False),
        Option("end of the prompt in decode", "cache-position-reset"),
        Option("the capacity in decode", "cache-position-reset", common=False),
        Option("the capacity in chunks and decode", "cache-position-reset", common=False),
        Option("end of the capacity", "cache-position-reset", common=False),
        Option("end of the chunk in chunks", "cache-chunk-misaligned", common=False),
        Option("none after the first tokens in chunks and decode", "positions-ignored", common=False),
    ),
    *pathwise("layer order", WALKS, Option("reversed", "cache-layer-mixed")),
    *pathwise(
        "layer input",
        WALKS,
        Option("embedding for keys and values", "cache-layer-mixed"),
        Option("embedding for all", "cache-layer-mixed"),
    ),
    *pathwise(
        "heads",
        ("forward", "prefill"),
        Option("queries split without transpose", "cache-head-order"),
        Option("keys and values split without transpose", "cache-head-order"),
        Option("all split without transpose", "cache-head-order"),
        Option("merged without transpose", "cache-head-order"),
        Option("split and merged without transpose", "cache-head-order"),
        Option("queries split and merged without transpose", "cache-head-order", common=False),
        Option("interleaved", "cache-head-order"),
    ),
    *pathwise(
        "groups",
        WALKS,
        Option("modulo", "cache-head-order"),
        Option("reversed", "cache-head-order", common=False),
        Option("first head for all", "cache-head-order"),
        Option("in twos", "cache-head-order"),
    ),
    *pathwise(
        "scale",
        WALKS,
        Option("missing", "scale-missing"),
        Option("by d_k", "scale-by-dk"),
        Option("by the keys", "scale-by-wrong-width"),
        Option("by the model's width", "scale-by-wrong-width"),
        Option("by the heads", "scale-by-wrong-width", common=False),
        Option("inverted", "scale-inverted", common=False),
    ),
    *pathwise(
        "softmax",
        WALKS,
        Option("over the queries", "softmax-wrong-axis", common=False),
        Option("not applied", "softmax-not-applied", common=False),
        Option("largest alone", "softmax-argmax", common=False),
    ),
    *pathwise(
        "mask",
        ("forward", "prefill"),
        Option("none", "cache-prefill-unmasked"),
        Option("none at first", "cache-prefill-unmasked"),
        Option("one ahead", "causal-mask-lookahead"),
        Option("without itself", "causal-mask-strict"),
        Option("inverted", "mask-inverted", common=False),
        Option("after the softmax", "mask-after-softmax", common=False),
        Option("multiplied", "mask-multiplied", common=False),
    ),
    decision(
        "chunk",
        Option("mask from the top left", "cache-chunk-misaligned"),
        Option("mask from the top left, in decode too", "cache-chunk-misaligned"),
        Option("no mask", "cache-prefill-unmasked"),
        Option("sees itself alone", "cache-truncated"),
    ),
    decision(
        "store",
        Option("not stored", "cache-not-appended"),
        Option("neither stored nor seen", "cache-not-appended"),
        Option("not stored, place counted", "cache-not-appended", common=False),
        Option("twice", "cache-appended-twice"),
        Option("twice, seen once", "cache-appended-twice"),
        Option("run twice", "cache-appended-twice"),
    ),
    decision("prompt", Option("stored twice", "cache-appended-twice"), Option("run twice", "cache-appended-twice")),
    decision(
        "stored layers",
        Option("the first alone", "cache-layer-mixed"),
        Option("the last alone", "cache-layer-mixed"),
    ),
    decision("itself", Option("missing", "cache-missing-self"), Option("twice", "decode-self-twice")),
    *pathwise("window", WALKS, Option("the last", "cache-truncated", examples=SIZES)),
    decision(
        "look",
        Option("the first", "cache-truncated", examples=SIZES),
        Option("the oldest left out", "cache-truncated"),
    ),
    *pathwise(
        "layer read",
        CACHED,
        Option("keys of layer 0", "cache-layer-mixed"),
        Option("values of layer 0", "cache-layer-mixed"),
        Option("layer 0", "cache-layer-mixed"),
        Option("keys of layer 0, forward too", "cache-layer-mixed"),
        Option("values of layer 0, forward too", "cache-layer-mixed"),
        Option("layer 0, forward too", "cache-layer-mixed"),
        Option("the layer before", "cache-layer-mixed"),
        Option("the last layer", "cache-layer-mixed", common=False),
    ),
    *pathwise(
        "reads",
        CACHED,
        Option("keys as values", "cache-keys-values-swapped"),
        Option("values as keys", "cache-keys-values-swapped", common=False),
        Option("keys and values exchanged", "cache-keys-values-swapped"),
        Option("keys as values, forward too", "cache-keys-values-swapped"),
        Option("keys and values exchanged, forward too", "cache-keys-values-swapped"),
    ),
    *pathwise(
        "gives",
        CACHED,
        Option("values as keys", "cache-keys-values-swapped"),
        Option("values as keys, forward too", "cache-keys-values-swapped"),
    ),
    *pathwise(
        "residual",
        WALKS,
        Option("missing", "decode-residual-missing"),
        Option("to the embedding", "decode-residual-missing"),
        Option("missing in the last layer", "decode-residual-missing", common=False),
    ),
    *pathwise(
        "extra",
        WALKS,
        Option("norm before attention", "decode-extra-step", examples=EPSILONS),
        Option("norm after each layer", "decode-extra-step", examples=EPSILONS),
        Option("norm at the end", "decode-extra-step", examples=EPSILONS),
        Option("root mean square at the end", "decode-extra-step", common=False, examples=EPSILONS),
        Option("probabilities", "decode-extra-step"),
        Option("log-probabilities", "decode-extra-step"),
        Option("logits by sqrt(d)", "decode-extra-step"),
        Option("relu", "decode-extra-step", common=False),
    ),
    decision("decoded logits", Option("of the token before", "decode-stale-logits")),
    decision("prefilled logits", Option("one row late", "decode-stale-logits", common=False)),
    decision(
        "given",
        Option("replaced when empty", "cache-given-ignored"),
        Option("replaced", "cache-given-ignored"),
        Option("copied", "cache-given-ignored"),
    ),
    decision(
        "overfull chunk",
        Option("stored in part", "cache-unbounded"),
        Option("stored in part in the first layer", "cache-unbounded"),
    ),
    decision(
        "own cache",
        *(Option(f"{dtype}{too}", "cache-wrong-dtype") for dtype in ("float32", "float16") for too in ("", TOO)),
    ),
    decision("default", Option("one for all calls", "cache-shared-state")),
    # styles that are no fault, and show only beside a fault of storage
    decision("forward through", Option("a roomy cache"), Option("an exact cache")),
    decision("room checked", Option("before the layers")),
    decision("mask by", Option("position"), Option("the last key")),
    decision("decode mask", Option("as in prefill")),
)

GENERATE: tuple[Decision, ...] = (
    decision("nothing asked", Option("nothing given")),  # a style beside another number of ids
    *pathwise(
        "count",
        LOOPS,
        Option("one more", "generate-off-by-one"),
        Option("one fewer", "generate-off-by-one"),
        Option("at least one", "generate-off-by-one"),
        Option("with the prompt", "generate-off-by-one"),
        Option("with the last of the prompt", "generate-off-by-one"),
        Option("first left out", "generate-off-by-one"),
        Option("the total length", "generate-total-length"),
        Option("the total length, at least one", "generate-total-length"),
        Option("the total length, with the prompt", "generate-total-length"),
    ),
    *pathwise(
        "pick",
        LOOPS,
        Option("last on ties", "generate-not-greedy"),
        Option("smallest", "generate-not-greedy"),
        Option("second best", "generate-not-greedy", common=False),
        Option("best above 0", "generate-not-greedy"),
    ),
    *pathwise(
        "stop",
        LOOPS,
        Option("after", "generate-not-greedy", examples=IDS),
        Option("before", "generate-not-greedy", examples=IDS),
        Option("after, but for the first", "generate-not-greedy", examples=IDS),
    ),
    *pathwise(
        "row",
        LOOPS,
        Option("first", "decode-stale-logits"),
        Option("last but one", "decode-stale-logits"),
        Option("first, of the prompt", "decode-stale-logits"),
        Option("last but one, of the prompt", "decode-stale-logits"),
        Option("the prompt's last, always", "decode-stale-logits"),
    ),
    decision(
        "fed",
        Option("last of the prompt twice", "generate-off-by-one"),
        Option("the whole text each time", "cache-appended-twice"),
        Option("the whole prompt twice", "cache-appended-twice"),
    ),
    decision(
        "generate's cache",
        Option("one for all calls", "cache-shared-state"),
        Option("that of the first call, whose prompt stands", "cache-shared-state"),
    ),
)

SPACE = STORAGE + LAYERS + GENERATE

# -- which option a variant takes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Taken:
    """An option taken, and the number it carries."""

    name: str = "right"
    value: float = 0.0


def taken(variant: Variant, name: str) -> Taken:
    option = variant.pick(name)
    carries = option != "right" and bool(variant[name].examples)
    return Taken(option, variant.value(name) if carries else 0.0)


def along(variant: Variant, name: str, path: str, paths: tuple[str, ...]) -> Taken:
    """What `path` does about `name`: its own, or the fault of an earlier path that is in it too."""
    before = paths[: paths.index(path)]
    for i, earlier in enumerate(before):
        option = taken(variant, f"{earlier}.{name}")
        if option.name != "right":
            others = (*before[i + 1 :], path)
            return option if all(variant.pick(f"{p}.{name} too") == "right" for p in others) else Taken()
    return taken(variant, f"{path}.{name}")
