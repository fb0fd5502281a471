"""Puts a function of the judge in the place of one of a submission's that is loaded and bound already, under whatever names.

A function keeps its identity and gets other code, an object that can be called gets another class; a class gives out what is lent
where it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any


def replaceable(own: object, module: ModuleType) -> bool:
    """Whether this was made in that module, for itself: no other file knows it but by the module's name."""
    if type(own) is partial:
        return True
    made = own if isinstance(own, FunctionType | type) else type(own)
    return made.__module__ == module.__name__ and (type(own) is FunctionType or type(type(own)) is type)


def copy(own: Any) -> Any:
    """A function, or what can be called as one, as it is now."""
    if type(own) is partial:
        return partial(own.func, *own.args, **own.keywords)
    if type(own) is not FunctionType:
        call = type(own).__call__
        return lambda *args, **kwargs: call(own, *args, **kwargs)
    found = FunctionType(own.__code__, own.__globals__, own.__name__, own.__defaults__, own.__closure__)
    found.__kwdefaults__ = own.__kwdefaults__
    return found


def replace_function(own: Any, lent: Callable[..., Any]) -> bool:
    """False where it does not let itself be replaced."""
    try:
        if type(own) is partial:
            vars(partial)["__setstate__"](own, (lent, (), {}, {}))
        elif type(own) is not FunctionType:
            own.__class__ = type(type(own).__name__, (type(own),), {"__call__": lambda self, *a, **k: lent(*a, **k)})
        else:
            own.__code__ = _calls(len(own.__code__.co_freevars))
            own.__defaults__, own.__kwdefaults__ = None, {"_lent": lent}
    except (TypeError, ValueError):
        return False
    return True


def _calls(variables: int) -> CodeType:
    """The code of a function that calls what is lent, with as many variables of an outer function as Python wants to find there."""
    names = [f"v{i}" for i in range(variables)]
    text = "def outer():\n" + "".join(f" {name} = None\n" for name in names)
    text += " def lent(*args, _lent=None, **kwargs):\n  return _lent(*args, **kwargs)\n" + "".join(
        f"  {name}\n" for name in names
    )
    made: dict[str, Any] = {}
    exec(text + " return lent\n", made)
    code: CodeType = made["outer"]().__code__
    return code


def replace_class(own: Any, lent: Callable[..., Any]) -> None:
    own.__new__ = staticmethod(lambda cls, *args, **kwargs: lent(*args, **kwargs))
