"""Puts a function of the judge in the place of one of a submission's that is loaded and bound already, under whatever names.

A function keeps its identity and gets other code; a class gives out what is lent where it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any


def replaceable(own: object, module: ModuleType) -> bool:
    """Whether this is a function or class of that module's own text, with nothing around it."""
    if type(own) is FunctionType:
        return own.__globals__ is module.__dict__ and not own.__code__.co_freevars and not hasattr(own, "__wrapped__")
    return type(own) is type and own.__module__ == module.__name__


def copy(own: FunctionType) -> FunctionType:
    """The function as it is now."""
    found = FunctionType(own.__code__, own.__globals__, own.__name__, own.__defaults__)
    found.__kwdefaults__ = own.__kwdefaults__
    return found


def _lent(*args: Any, __lent: Any = None, **kwargs: Any) -> Any:
    return __lent(*args, **kwargs)


def replace_function(own: FunctionType, lent: Callable[..., Any]) -> None:
    own.__code__ = _lent.__code__
    own.__defaults__, own.__kwdefaults__ = None, {"__lent": lent}


def replace_class(own: Any, lent: Callable[..., Any]) -> None:
    own.__new__ = staticmethod(lambda cls, *args, **kwargs: lent(*args, **kwargs))
