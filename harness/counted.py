"""How many rows a call multiplies by a decoder's W_K: one a token that a pass computes, however the pass is written.

The matrices are arrays (tensors) of a kind that keeps count and is otherwise what it was. A submission that copies them first
leaves nothing to count, which says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from harness.values import Array

_PRODUCTS = {
    "matmul",
    "__matmul__",
    "__rmatmul__",
    "rmatmul",
    "dot",
    "mm",
    "mv",
    "inner",
    "linear",
    "einsum",
    "tensordot",
}
_VIEWS = {
    "t",
    "__get__",
    "transpose",
    "swapaxes",
    "permute",
    "__getitem__",
    "view",
    "reshape",
    "contiguous",
    "to",
    "double",
}


class Count:
    """Numbers that met a counted matrix on the other side of a product; `rows` is that over the width of a row."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.numbers = 0

    @property
    def rows(self) -> float:
        return self.numbers / self.width

    def add(self, others: Iterable[Any], size: Callable[[Any], int]) -> None:
        self.numbers += max((size(other) for other in others), default=0)


def array(plain: Array, count: Count) -> Array:
    """The same array, whose products are counted."""

    class Counted(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            if ufunc is np.matmul:
                _of_arrays(inputs)
            out = kwargs.get("out")
            if out is not None:
                kwargs["out"] = tuple(bare(x) for x in out)
            return getattr(ufunc, method)(*map(bare, inputs), **kwargs)

        def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            if func.__name__ in _PRODUCTS:
                _of_arrays(args)
            result = func(*map(bare, args), **{name: bare(value) for name, value in kwargs.items()})
            kept = func.__name__ in _VIEWS and type(result) is np.ndarray
            return result.view(Counted) if kept else result

    def bare(value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(x, Counted) for x in value):
            return list(map(bare, value))
        return value.view(np.ndarray) if isinstance(value, Counted) else value

    def _of_arrays(args: Iterable[Any]) -> None:
        count.add((x for x in args if isinstance(x, np.ndarray) and not isinstance(x, Counted)), np.size)

    return plain.view(Counted)


def tensor(plain: Any, count: Count) -> Any:
    """The same tensor, whose products are counted."""
    import torch

    class Counted(torch.Tensor):  # type: ignore[misc]  # torch has no types here
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            if name in _PRODUCTS:
                others = [x for x in args if isinstance(x, torch.Tensor) and not isinstance(x, Counted)]
                count.add(others, lambda x: int(x.numel()))
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*map(bare, args), **{key: bare(value) for key, value in (kwargs or {}).items()})
                kept = name in _VIEWS and type(result) is torch.Tensor and result.ndim == 2
                return result.as_subclass(Counted) if kept else result

    def bare(value: Any) -> Any:
        if isinstance(value, list | tuple) and any(isinstance(x, Counted) for x in value):
            return list(map(bare, value))
        return value.as_subclass(torch.Tensor) if isinstance(value, Counted) else value

    return plain.as_subclass(Counted)
