"""Wrong formulas for the size of a KV cache: a factor left out, put in twice, or of another size."""

from __future__ import annotations

from reference.variants.space import Answer, Decision, Option, Probe, Variant, decision

CODE = "cache-bytes-formula"


def _factor(name: str, *others: str) -> Decision:
    """What may stand where a factor belongs."""
    return decision(name, *(Option(other, CODE) for other in others))


SPACE = (
    _factor("keys and values", "keys alone", "4", "1.5"),
    _factor("layers", "left out", "squared"),
    _factor("heads", "left out", "squared"),
    _factor("width", "left out", "squared", "its root"),
    _factor("tokens", "left out", "squared", "one fewer", "one more"),
    _factor("bytes", "left out", "2", "4", "8", "bits", "squared"),
    _factor("unit", "KiB", "MiB", "GiB", "kB", "MB", "GB"),
)

_SIZES = ((3, 5, 7, 11, 2), (2, 3, 64, 1000, 4), (32, 8, 128, 4096, 1))
PROBES = tuple(Probe(f"sizes {sizes}", "kv_cache.kv_cache_bytes", sizes) for sizes in _SIZES)


def predict(variant: Variant, probe: Probe) -> Answer:
    """2 · L · h_kv · d_head · n · bytes, with the factors that the variant takes."""
    layers, heads, width, tokens, size = (float(a) for a in probe.args)
    pick = variant.pick
    factor = {"right": 2.0, "keys alone": 1.0, "4": 4.0, "1.5": 1.5}[pick("keys and values")]
    factor *= {"right": layers, "left out": 1.0, "squared": layers**2}[pick("layers")]
    factor *= {"right": heads, "left out": 1.0, "squared": heads**2}[pick("heads")]
    factor *= {"right": width, "left out": 1.0, "squared": width**2, "its root": width**0.5}[pick("width")]
    more = {
        "left out": 1.0,
        "squared": tokens**2,
        "one fewer": tokens - 1,
        "one more": tokens + 1,
    }
    factor *= more.get(pick("tokens"), tokens)
    factor *= {"right": size, "left out": 1.0, "2": 2.0, "4": 4.0, "8": 8.0, "bits": 8 * size, "squared": size**2}[
        pick("bytes")
    ]
    unit = pick("unit")
    factor /= {"right": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
    return (factor,)
