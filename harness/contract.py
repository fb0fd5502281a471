"""The lab contract, version 1, as data: which module offers which name, with which parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

VERSION = 1


@dataclass(frozen=True)
class Function:
    """One promised name. `required` are passed by position, `optional` always by name."""

    module: str
    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join((*self.required, *(f'{name}=…' for name in self.optional)))})"


def _function(module: str, name: str, required: str, optional: str = "") -> Function:
    return Function(module, name, tuple(required.split()), tuple(optional.split()))


FUNCTIONS: dict[str, Function] = {
    f.full_name: f
    for f in (
        _function("attention", "softmax", "x", "axis"),
        _function("attention", "project", "X W_Q W_K W_V"),
        _function("attention", "scaled_dot_product_attention", "Q K V", "mask scale"),
        _function("attention", "self_attention", "X W_Q W_K W_V", "mask"),
        _function("attention", "causal_mask", "n_queries", "n_keys"),
        _function("attention", "sinusoidal_positions", "n d"),
        _function("kv_cache", "KVCache", "n_layers n_kv_heads d_head capacity dtype"),
        _function("kv_cache", "forward", "model tokens"),
        _function("kv_cache", "prefill", "model tokens", "cache"),
        _function("kv_cache", "decode_step", "model token cache"),
        _function("kv_cache", "generate", "model prompt max_new_tokens", "use_cache"),
        _function("kv_cache", "kv_cache_bytes", "n_layers n_kv_heads d_head n_tokens bytes_per_value"),
        _function("experiments", "compare_with_sdpa", "shapes", "dtype causal seed"),
        _function("experiments", "equivariance_gap", "X W_Q W_K W_V permutation", "positions mask"),
        _function("experiments", "append_invariance_gap", "X x_new W_Q W_K W_V"),
        _function("experiments", "time_attention", "attend ns", "d warmup repeats clock synchronize"),
        _function("experiments", "local_slopes", "ns seconds"),
        _function("experiments", "fit_exponent", "ns seconds"),
        _function("experiments", "score_bytes", "n", "itemsize heads"),
        _function("experiments", "measure_peak_memory", "fn"),
        _function("experiments", "largest_n", "fits", "start limit"),
        _function("experiments", "decode_latencies", "model prompt max_new_tokens use_cache", "clock synchronize"),
    )
}

# attention_torch.py offers what attention.py does, on torch tensors
FUNCTIONS |= {
    f"attention_torch.{f.name}": replace(f, module="attention_torch")
    for f in FUNCTIONS.values()
    if f.module == "attention"
}

MODULES: tuple[str, ...] = ("attention", "kv_cache", "experiments")
OPTIONAL_MODULES: tuple[str, ...] = ("attention_torch",)
GIVEN = "model.py"
REPORT_FILES: tuple[str, ...] = ("results.json", "loglog.png", "latency.png", "note.md")
REPORT_ENTRIES: dict[int, tuple[str, ...]] = {
    3: ("sdpa",),
    4: ("equivariance_gaps",),
    5: ("ns", "seconds", "exponent", "local_slopes"),
    6: ("score_bytes", "peak_allocated", "peak_reserved", "largest_n", "limiting_resource", "memory_n", "itemsize"),
    8: (
        *("decode_cached_s", "decode_recomputed_s", "prefill_s", "speedup_at_last_token"),
        *("cache_bytes", "cache_bytes_allocated", "decoder"),
    ),
}
"""What each step puts into results.json."""

# What attention.py may not import: a library that would do the lab's work for the student.
FORBIDDEN_LIBRARIES: frozenset[str] = frozenset(
    "torch jax jaxlib tensorflow keras scipy sklearn cupy mlx flax haiku paddle mxnet autograd numba "
    "xformers flash_attn transformers torchvision functorch triton onnxruntime tinygrad".split()
)


def functions_of(module: str) -> list[Function]:
    return [f for f in FUNCTIONS.values() if f.module == module]
