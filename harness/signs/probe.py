"""Decoders that can be read: matrices chosen so that logits say what was attended to, at which place, by which head.

With W_O = 0 nothing is added to a token's embedding. With W_Q = 0 every visible token weighs the same. With one-hot
embeddings the logits are these weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.signs import numbers
from harness.subject import Asking
from harness.values import Array, Dtype, Handle

PROMPT, TOKEN = [1, 5, 3], 4
VOCABULARY, WIDTH = 9, 8

Fields = dict[str, Any]


def decoder(n_layers: int = 2, positions: str = "none", heads: tuple[int, int] = (4, 2), **factors: float) -> Fields:
    """A random decoder's fields; `factors` gives matrices a factor, W_O=0 for one that attends to no avail."""
    narrow = WIDTH // heads[0] * heads[1]
    embedding, *matrices = numbers((VOCABULARY, WIDTH), *[(8, 8), (8, narrow), (8, narrow), (8, 8)] * n_layers)
    names = ("W_Q", "W_K", "W_V", "W_O")
    layers = [
        {name: w / 3 * factors.get(name, 1.0) for name, w in zip(names, matrices[i : i + 4], strict=True)}
        for i in range(0, 4 * n_layers, 4)
    ]
    return {
        "embedding": embedding,
        "layers": layers,
        "n_heads": heads[0],
        "n_kv_heads": heads[1],
        "positions": positions,
    }


def with_layer(fields: Fields, index: int, **matrices: Array) -> Fields:
    """The same decoder with some matrices of one layer put in their places."""
    layers = [dict(layer) for layer in fields["layers"]]
    layers[index] |= matrices
    return {**fields, "layers": layers}


def readable(width: int = 16) -> Fields:
    """One head, whose logits of a token are 1 for itself plus the weight on each token; keys show half the width away."""
    eye = np.eye(width)
    layer = {"W_Q": np.zeros((width, width)), "W_K": np.roll(eye, width // 2, axis=1), "W_V": eye, "W_O": eye}
    return {"embedding": eye, "layers": [layer], "n_heads": 1, "n_kv_heads": 1, "positions": "none"}


def readable_heads(n_heads: int, n_kv_heads: int, d_head: int) -> Fields:
    """Each head's block of logits: the weights on tokens 0 … d_head - 1, times 1 + the K/V head that they were read from."""
    width = n_heads * d_head
    values = np.zeros((width, n_kv_heads * d_head))
    for head in range(n_kv_heads):
        values[np.arange(d_head), head * d_head + np.arange(d_head)] = 1 + head
    layer = {"W_Q": np.zeros((width, width)), "W_K": values, "W_V": values, "W_O": np.eye(width)}
    return {
        "embedding": np.eye(width),
        "layers": [layer],
        "n_heads": n_heads,
        "n_kv_heads": n_kv_heads,
        "positions": "none",
    }


def logits(value: Any, fields: Fields, axes: int) -> Array | None:
    """A value as logits of this decoder, in float64; None for what is not that, or holds NaN."""
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind != "f"
        or value.ndim != axes
        or not np.isfinite(value).all()
    ):
        return None
    return value.astype(np.float64) if value.shape[-1] == len(fields["embedding"]) else None


def forward(subject: Asking, fields: Fields, tokens: Sequence[int]) -> Array | None:
    made = subject.keep("@model", fields)
    if not made.ok:
        return None
    found = logits(subject.call("kv_cache.forward", made.value, list(tokens)).value, fields, 2)
    return found if found is not None and len(found) == len(tokens) else None


@dataclass
class Request:
    """A text that is prefilled and decoded piece by piece. Its cache is one that was given, or what prefill gave back."""

    subject: Asking
    fields: Fields
    model: Any
    cache: Handle | None = None

    def prefill(self, tokens: Sequence[int]) -> Array | None:
        """Logits of a chunk; None where it raises, or gives no logits and cache."""
        given = {} if self.cache is None else {"cache": self.cache}
        value = self.subject.keep("kv_cache.prefill", self.model, list(tokens), **given).value
        if not isinstance(value, tuple | list) or len(value) != 2 or not isinstance(value[1], Handle):
            return None
        self.cache = value[1]
        found = logits(value[0], self.fields, 2)
        return found if found is not None and len(found) == len(tokens) else None

    def decode(self, token: int, other: Fields | None = None) -> Array | None:
        """Logits of one step, with another decoder where one is given."""
        model = self.model if other is None else self.subject.keep("@model", other).value
        return logits(self.subject.call("kv_cache.decode_step", model, token, self.cache).value, self.fields, 1)

    def held(self, layer: int, name: str = "keys") -> Array | None:
        value = self.subject.method(self.cache, name, layer).value if self.cache is not None else None
        return value if isinstance(value, np.ndarray) and value.ndim == 3 else None

    @property
    def length(self) -> Any:
        return self.subject.call("@len", self.cache).value


def request(subject: Asking, fields: Fields, room: int = 0) -> Request | None:
    """A new request; with room, over a cache made for that many tokens."""
    made = subject.keep("@model", fields)
    if not made.ok:
        return None
    if not room:
        return Request(subject, fields, made.value)
    narrow = fields["layers"][0]["W_K"].shape[1] // fields["n_kv_heads"]
    sizes = (len(fields["layers"]), fields["n_kv_heads"], narrow, room, Dtype("float64"))
    cache = subject.keep("kv_cache.KVCache", *sizes).value
    return Request(subject, fields, made.value, cache) if isinstance(cache, Handle) else None


def step(
    subject: Asking,
    fields: Fields,
    prompt: Sequence[int] = PROMPT,
    token: int = TOKEN,
    other: Fields | None = None,
    room: int = 0,
) -> Array | None:
    """The logits of one decode step after a prompt; `other` is the decoder of that step alone."""
    asked = request(subject, fields, room)
    if asked is None or asked.prefill(prompt) is None:
        return None
    return asked.decode(token, other)
