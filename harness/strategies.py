"""What the checks of attention draw: sizes, dtypes and a seed by Hypothesis, and the values from the seed.

So a failure shrinks to small sizes, and an example costs a handful of draws. Values are standard normal: near 0 the
softmax is flat and hides a wrong scale, in the tens it is one-hot and hides it again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from harness.values import Array

SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from(("float64", "float32"))
WIDTHS = st.sampled_from((4, 5, 7, 16, 64))  # of a key


@dataclass(frozen=True)
class Table:
    """A table of scores, `shape` of any length."""

    shape: tuple[int, ...]
    dtype: str
    seed: int

    def scores(self) -> Array:
        """Different multiples of 1/16 in [-4, 4]: in float32 too, an integer up to a million is added exactly."""
        picked = self.rng().permutation(129)[: math.prod(self.shape)]
        return ((picked - 64) / 16).astype(self.dtype).reshape(self.shape)

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def tables(*ndims: int, least: int = 2, dtypes: SearchStrategy[str] = DTYPES) -> SearchStrategy[Table]:
    """Tables with one of these numbers of axes."""
    shapes = st.sampled_from(ndims or (2,)).flatmap(
        lambda k: st.tuples(*[st.integers(least, {3: 5, 4: 3}.get(k, 6))] * k)
    )
    return st.builds(Table, shapes, dtypes, SEEDS)


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values: n queries, m keys, widths d_k and d_v, and leading batch axes."""

    batch: tuple[int, ...]
    n: int
    m: int
    d_k: int
    d_v: int
    dtype: str
    seed: int

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def qkv(self) -> tuple[Array, Array, Array]:
        rng = self.rng()
        shapes = (self.n, self.d_k), (self.m, self.d_k), (self.m, self.d_v)
        Q, K, V = (rng.standard_normal((*self.batch, *shape)).astype(self.dtype) for shape in shapes)
        return Q, K, V

    def mask(self, *batch: int) -> npt.NDArray[np.bool_]:
        """A random mask (*batch, n, m): each row shows a key and, with two keys or more, hides one."""
        return visible(self.rng(), (*batch, self.n, self.m))


def visible(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """A random mask in which each row shows at least one key and, with two keys or more, hides at least one."""
    order = rng.random(shape).argsort(axis=-1)
    mask = rng.random(shape) < 0.5
    np.put_along_axis(mask, order[..., :1], True, axis=-1)
    np.put_along_axis(mask, order[..., 1:2], False, axis=-1)
    return mask


def heads(
    *batches: tuple[int, ...],
    least: int = 2,
    widths: SearchStrategy[int] = WIDTHS,
    dtypes: SearchStrategy[str] = DTYPES,
) -> SearchStrategy[Heads]:
    """Problems whose sizes are drawn apart from one another, and so mostly differ."""
    sizes = st.integers(least, 6)
    return st.builds(Heads, st.sampled_from(batches or ((),)), sizes, sizes, widths, sizes, dtypes, SEEDS)


def unequal_heads(*batches: tuple[int, ...]) -> SearchStrategy[Heads]:
    """Problems in which no two of n, m, d_k, d_v are equal."""
    rest = st.permutations((2, 3, 6)).map(tuple)
    return st.builds(
        lambda batch, s, d_k, dtype, seed: Heads(batch, s[0], s[1], d_k, s[2], dtype, seed),
        st.sampled_from(batches or ((),)),
        rest,
        WIDTHS,
        DTYPES,
        SEEDS,
    )


def cubes(n_axes: int = 0) -> SearchStrategy[Heads]:
    """Problems in which all sizes are equal, those of the batch axes too: what only works on squares works here."""
    return st.builds(
        lambda n, dtype, seed: Heads((n,) * n_axes, n, n, n, n, dtype, seed), st.integers(2, 4), DTYPES, SEEDS
    )


@dataclass(frozen=True)
class Tokens:
    """Tokens X (*batch, n, d) and the three projections, scaled so that queries and keys are about standard normal."""

    batch: tuple[int, ...]
    n: int
    d: int
    d_k: int
    d_v: int
    dtype: str
    seed: int

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def x_and_weights(self) -> tuple[Array, Array, Array, Array]:
        rng = self.rng()
        X = rng.standard_normal((*self.batch, self.n, self.d))
        W_Q, W_K, W_V = (rng.standard_normal((self.d, width)) / self.d**0.5 for width in (self.d_k, self.d_k, self.d_v))
        X, W_Q, W_K, W_V = (a.astype(self.dtype) for a in (X, W_Q, W_K, W_V))
        return X, W_Q, W_K, W_V

    def mask(self, *batch: int) -> npt.NDArray[np.bool_]:
        return visible(self.rng(), (*batch, self.n, self.n))


def tokens(*batches: tuple[int, ...], least: int = 3, most: int = 7, square: bool = False) -> SearchStrategy[Tokens]:
    """Token problems; with `square` the projections keep the width d."""
    n, width = st.integers(least, most), st.integers(3, 8)
    if square:
        return st.builds(
            lambda b, n, d, dtype, seed: Tokens(b, n, d, d, d, dtype, seed),
            st.sampled_from(batches or ((),)),
            n,
            width,
            DTYPES,
            SEEDS,
        )
    return st.builds(Tokens, st.sampled_from(batches or ((),)), n, width, width, width, DTYPES, SEEDS)
