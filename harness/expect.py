"""What a check says of a value: exact type first, then shape, dtype and finiteness, then its numbers.

Every function here raises `Fail`, with words in one shape: what came, what should be, and the call.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from harness import contract
from harness.check import Fail, fail_of, note
from harness.subject import Call, Outcome, Subject
from harness.values import Array, Callback, Handle, Laid, Opaque

_WIDTH = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class Asked:
    """A call with its outcome, and the checks that can be made of it."""

    def __init__(self, call: Call, outcome: Outcome, shown: str = "") -> None:
        self.call = call
        self.outcome = outcome
        self._shown = shown

    @cached_property
    def text(self) -> str:
        """The call as the student could write it."""
        return self._shown or spell(self.call)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The arrays that were passed, by the contract's names."""
        named = [(_parameter(self.call, i), a) for i, a in enumerate(self.call.args)]
        found = {name: _bare(a) for name, a in (*named, *self.call.kwargs.items())}
        return {name: a for name, a in found.items() if isinstance(a, np.ndarray)}

    def fail(self, seen: str, expected: str = "", code: str | None = None, got: Any = None) -> Fail:
        return Fail(seen, expected, code=code, call=self.text, inputs=self.inputs, got=got)

    @property
    def value(self) -> Any:
        """The plain value. Raises Fail where the call gave none."""
        if not self.outcome.ok:
            raise fail_of(self.outcome, self.text, self.inputs, self.call.name.partition(".")[0])
        return self.outcome.value

    def array(self, shape: tuple[int, ...], like: npt.DTypeLike | None = None, finite: bool = True) -> Array:
        """The value as an array of this shape, of numbers."""
        return self.one(self.value, "the result", shape, like, finite)

    def truths(self, shape: tuple[int, ...]) -> Array:
        """The value as an array of this shape, of truth values or numbers that stand for them."""
        return self._array(self.value, "the result", shape, None, True)

    def arrays(self, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], like: npt.DTypeLike | None = None,
               finite: bool = True) -> list[Array]:  # fmt: skip
        """The value as that many arrays, in a tuple, a list or one array."""
        value = self.value
        parts = list(value) if isinstance(value, tuple | list | np.ndarray) and not _scalar(value) else None
        if isinstance(value, np.ndarray) and len(names) == 2 and value.shape == shapes[0]:
            raise self.fail(
                f"one array of shape {value.shape} came back", f"two: {' and '.join(names)}", "weights-missing", value
            )
        if parts is None or len(parts) != len(names):
            several = {1: "1 value", 0: "no value"}.get(len(parts or ()), f"{len(parts or ())} values")
            got = _came(value) if parts is None else several
            code = "wrong-shape" if isinstance(value, np.ndarray) else "not-an-array"
            raise self.fail(f"{got} came back", f"{len(names)} arrays: {', '.join(names)}", code)
        return [self.one(p, n, s, like, finite) for p, n, s in zip(parts, names, shapes, strict=True)]

    def one(
        self, value: Any, name: str, shape: tuple[int, ...], like: npt.DTypeLike | None = None, finite: bool = True
    ) -> Array:
        """A part of the value as an array of this shape; truth values, which cannot be subtracted, are refused where not asked for."""
        found = self._array(value, name, shape, like, finite)
        if found.dtype.kind == "b" and like is None:
            raise self.fail(
                f"{name} {_plural(name, 'have', 'has')} dtype bool", "floating-point numbers", "wrong-dtype", found
            )
        return found

    def _array(self, value: Any, name: str, shape: tuple[int, ...], like: npt.DTypeLike | None, finite: bool) -> Array:
        if not isinstance(value, np.ndarray):
            raise self.fail(
                f"{name} {_plural(name, 'are', 'is')} {_came(value)}", f"an array of shape {shape}", "not-an-array"
            )
        if value.shape != shape:
            raise self.fail(
                f"{name} {_plural(name, 'have', 'has')} shape {value.shape}", f"shape {shape}", "wrong-shape", value
            )
        if like is not None:
            self._dtype(value, name, np.dtype(like))
        if finite:
            self.finite(value, name)
        return value

    def finite(self, value: Array, name: str) -> None:
        """Raises Fail for an array that holds NaN or infinity."""
        if not np.isfinite(value).all():
            bad = "NaN" if np.isnan(value).any() else "infinity"
            raise self.fail(f"{name} {_plural(name, 'hold', 'holds')} {bad}", "finite numbers", "not-finite", value)

    def _dtype(self, value: Array, name: str, like: np.dtype[Any]) -> None:
        if value.dtype.kind != like.kind:
            raise self.fail(
                f"{name} {_plural(name, 'have', 'has')} dtype {value.dtype}", f"{like}", "wrong-dtype", value
            )
        if value.dtype.itemsize < like.itemsize:
            raise self.fail(
                f"{name} {_plural(name, 'have', 'has')} dtype {value.dtype}, narrower than the inputs' {like}",
                f"{like}",
                "wrong-dtype",
                value,
            )
        if value.dtype.itemsize > like.itemsize and like.kind == "f":
            note(
                "wrong-dtype",
                f"{self.text.split('(')[0]} gives {value.dtype} for {like}: right, and wider than it needs to be.",
            )

    def number(self) -> float:
        """The value as a finite float. Raises Fail for what is no plain number."""
        value = self.value
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(f"the result is {_came(value)}", "a number", "not-an-array")
        try:
            number = float(value)
        except OverflowError:
            raise self.fail("the result is an int of hundreds of digits", "a number", "not-finite") from None
        if not np.isfinite(number):
            raise self.fail(f"the result is {value}", "a finite number", "not-finite")
        return number

    def unchanged(self) -> None:
        """Raises Fail where an argument's contents are other than before the call (asked with echo)."""
        for i, (before, after) in enumerate(zip(self.call.args, self.outcome.echo, strict=False)):
            before = _bare(before)
            if isinstance(before, np.ndarray) and not (
                isinstance(after, np.ndarray) and np.array_equal(before, after, equal_nan=True)
            ):
                raise self.fail(
                    f"{_parameter(self.call, i)} was changed during the call",
                    "arguments left as they were",
                    "input-mutated",
                    after,
                )


def ask(
    subject: Subject, name: str, *args: Any, echo: bool = False, keep: bool = False, shown: str = "", **kwargs: Any
) -> Asked:
    """Asks one thing."""
    call = Call(name, args, kwargs, keep=keep, echo=echo)
    return Asked(call, subject.ask(call)[0], shown)


def _plural(name: str, several: str, one: str) -> str:
    """The verb that goes with "weights", or with any other name of a result."""
    return several if name == "weights" else one


def told_apart(got: float, wanted: float) -> tuple[str, str]:
    """Both numbers with as many digits as tell them apart, six at least."""
    digits = next((n for n in range(6, 17) if f"{got:.{n}g}" != f"{wanted:.{n}g}"), 17)
    return f"{got:.{digits}g}", f"{wanted:.{digits}g}"


def _parameter(call: Call, place: int) -> str:
    """The contract's name for the argument at this place."""
    function = contract.FUNCTIONS.get(call.name)
    return function.required[place] if function and place < len(function.required) else f"argument {place + 1}"


def _bare(value: Any) -> Any:
    return value.array if isinstance(value, Laid) else value


def _scalar(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 0


def spell(call: Call) -> str:
    """The call as a student would write it, with arrays by their shapes."""
    name = call.name.split(".")[-1]
    parts = [spell_value(_bare(a)) for a in call.args] + [
        f"{k}={spell_value(_bare(v))}" for k, v in call.kwargs.items()
    ]
    return f"{name}({', '.join(parts)})"


def _came(value: Any) -> str:
    """A value that was not asked for. None is most often a forgotten `return`."""
    return "None (a function without a return gives that)" if value is None else spell_value(value)


def spell_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array {value.shape}"
    if isinstance(value, Opaque):
        return f"a {value.type_name}"
    if isinstance(value, Callback):
        return "a function"
    if isinstance(value, Handle):
        return value.kind.rsplit(".", 1)[-1].lower()
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, list | tuple):
        inner = ", ".join(spell_value(v) for v in value[:4]) + (", …" if len(value) > 4 else "")
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return f"a {type(value).__name__}"
