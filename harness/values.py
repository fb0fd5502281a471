"""The few kinds of value that pass between the judge and a submission, and how a student's value becomes one of them.

Data only: None, bool, int, float, str, plain NumPy arrays, lists, tuples and dicts of these, and the kinds below. Whatever
else a submission returns becomes an `Opaque`, which carries nothing but the name of its type.
"""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

MAX_DEPTH = 6
MAX_ITEMS = 200_000
MAX_TEXT = 65_536
MAX_INT_BITS = 1024
MAX_HOLLOW = 65_536


@dataclass(frozen=True)
class Handle:
    """Something that stays on the student's side: a cache, a model, an array too large to move."""

    id: int
    kind: str = "object"
    shape: tuple[int, ...] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Laid:
    """An array to be laid out in the student's memory as said: order "C", "F", "strided" or "reversed"."""

    array: Array
    order: str = "C"
    writeable: bool = True


@dataclass(frozen=True)
class Dtype:
    """A dtype to be passed to a submission, as the text "float32", the type np.float32 or the object np.dtype("float32")."""

    name: str
    form: str = "type"


@dataclass(frozen=True)
class Blank:
    """Zeros of this shape, made on the student's side at no cost: what a judge's `attend` returns when only time matters."""

    shape: tuple[int, ...]
    dtype: str = "float64"


@dataclass(frozen=True)
class Callback:
    """A function of the judge that a submission may call. With `by_handle` its array arguments stay where they are."""

    function: Callable[..., Any]
    by_handle: bool = False


@dataclass(frozen=True)
class Proxy:
    """An object of the judge that a submission may hold: every attribute, method and len() is asked of `callback`.

    The callback gets (attribute, args, kwargs); attribute "__len__" is len(). Attributes named in `properties` are read,
    all others are methods.
    """

    callback: Callable[[str, list[Any], dict[str, Any]], Any]
    properties: tuple[str, ...] = ("nbytes",)


@dataclass(frozen=True)
class Opaque:
    """A value that is not data: only its type's name crosses."""

    type_name: str


@dataclass
class Keep:
    """Where the objects behind handles live, on the student's side."""

    objects: dict[int, Any] = field(default_factory=dict)
    last: int = 1_000_000  # ids below are the judge's choice, ids above are given here

    def new(self, value: Any) -> Handle:
        self.last += 1
        return self.put(self.last, value)

    def put(self, id: int, value: Any) -> Handle:
        self.objects[id] = value
        if is_array(value):
            return Handle(id, "array", tuple(int(s) for s in value.shape), str(value.dtype).removeprefix("torch."))
        return Handle(id, type_name(value))


def type_name(value: object) -> str:
    """The name of a value's type, never the value's own word for it."""
    kind = type(value)
    name = type.__dict__["__qualname__"].__get__(kind)
    module = kind.__dict__.get("__module__", "")
    prefix = f"{module}." if isinstance(module, str) and module not in ("builtins", "") else ""
    return f"{prefix}{name}"[:200]


def _torch() -> Any:
    return sys.modules.get("torch")


def is_tensor(value: object) -> bool:
    torch = _torch()
    return torch is not None and hasattr(torch, "Tensor") and torch.Tensor in type(value).__mro__


def is_array(value: object) -> bool:
    return np.ndarray in type(value).__mro__ or is_tensor(value)


def is_hollow(shape: Sequence[int]) -> bool:
    """Whether an array has no entries and yet so many rows that a list of them would fill the memory."""
    return 0 in shape and math.prod(max(size, 1) for size in shape) > MAX_HOLLOW


def plain_array(value: Any) -> Array | Opaque:
    """A copy as an exact np.ndarray of a numeric or boolean dtype; subclasses are stripped, lookalikes refused."""
    if is_tensor(value):
        torch = _torch()
        tensor = torch.Tensor.detach(value)
        tensor = torch.Tensor.cpu(tensor)
        if tensor.dtype == torch.bfloat16:
            tensor = torch.Tensor.float(tensor)
        value = torch.Tensor.numpy(torch.Tensor.resolve_neg(torch.Tensor.resolve_conj(tensor)))
    if np.ndarray not in type(value).__mro__:
        return Opaque(type_name(value))
    base = np.ndarray.view(value, np.ndarray) if type(value) is not np.ndarray else value
    if is_hollow(base.shape):
        return Opaque(f"numpy.ndarray of shape {base.shape}")
    if base.dtype.kind not in "fiub":
        return Opaque(f"numpy.ndarray of dtype {base.dtype.kind if base.dtype.names else base.dtype}")
    return np.array(base, order="C", copy=True, subok=False)


def plain(value: Any, depth: int = 0) -> Any:
    """What may cross of a submission's value. Decides by exact type, so that nothing of the value's own code runs."""
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if value.bit_length() <= MAX_INT_BITS else Opaque("int of more than 1024 bits")
    if kind is str:
        return value[:MAX_TEXT]
    if np.generic in kind.__mro__ and kind.__module__ == "numpy":
        return value.item() if value.dtype.kind in "fiubU" else Opaque(type_name(value))
    if is_array(value):
        return plain_array(value)
    if kind in (Handle, Blank, Callback):
        return value
    if depth < MAX_DEPTH:
        if tuple in kind.__mro__:
            items = list(tuple.__iter__(value))
            return tuple(plain(item, depth + 1) for item in items[:MAX_ITEMS])
        if list in kind.__mro__:
            items = list(list.__iter__(value))
            return [plain(item, depth + 1) for item in items[:MAX_ITEMS]]
        if dict in kind.__mro__:
            pairs = list(dict.items(value))[:MAX_ITEMS]
            return {key[:MAX_TEXT]: plain(item, depth + 1) for key, item in pairs if type(key) is str}
    if enum.Enum in kind.__mro__:
        return str(object.__getattribute__(value, "_name_"))[:MAX_TEXT]
    if type_name(value).startswith("torch.") and type_name(value).endswith("SDPBackend"):
        return "SDPBackend." + str(kind.__dict__["name"].__get__(value))
    return Opaque(type_name(value))


def is_kind_of_container(value: object) -> bool:
    """Whether a value is an object that only builds on list, dict or tuple, as a cache may. A named tuple is data."""
    mro = type(value).__mro__
    bases = [base for base in (list, dict, tuple) if base in mro]
    return bool(bases) and type(value) not in bases and not (tuple in mro and "_fields" in type(value).__dict__)
