"""Asks one submission on its own side: loads its modules, runs one `Call` at a time, and gives plain `Outcome`s.

Both forms of Subject end here: the in-process one calls `Executor.run`, the worker calls it for every request on its wire.

Built-in names beside "module.function":
    @import module            imports a module (so that its work at import counts as a call of its own)
    @model fields, dtype      a given Decoder, from arrays; under BACKEND = "torch" they are tensors, of the dtype that is named
    @array array              keeps an array                  @set handle, array   writes new values into it
    @tensor array             the same, as what kv_cache.py works with: a tensor under BACKEND = "torch"
    @fetch handle, rows       an array's values, or some rows @attr handle, name   an attribute
    @len handle               len()                           @method handle, name, *args
    @lines name, *args        calls a function, and counts the lines of Python that it runs
    @rows fields, name, *args calls a function of a Decoder with these fields, and counts the rows multiplied by its W_K
    @switched fields, later, reads, name, *args   calls a function of a Decoder whose W_V is another from so many reads of it on
    @timed name, *args        seconds of a call by this process's own clock, and its kept result: no evidence for a judge
    @same a, b                whether two handles are one object
    @random shapes, dtype, seed   keeps standard-normal arrays that are made here, a handle each
    @drop numbers             forgets what is kept under these numbers of handles
    @forget                   forgets all that is kept
    @torch array, dtype       keeps a tensor of this dtype (its own where none is named), on torch's default device
    @parts handle             a handle for each item of a kept tuple, list or array (the first 8)
    @normal shapes, dtype, seed   keeps standard-normal tensors, a handle each
    @bench name, *args        a call's seconds and memory by this process's own account (harness.device), and its kept result
    @ceilings dtype, mib, n   bytes a second of a copy, and operations a second of matrix products of size n
    @backend                  what kv_cache.py works with: "numpy" or "torch"
    @plan callback            an `fn` for measure_peak_memory, which asks for a piece of what to do until it gets an empty one:
                              ("take", bytes) holds and touches memory, ("drop", i) frees take i, ("wait", ms) lets time pass
    @sdpa q, k, v, mask, scale torch's own SDPA on these arrays
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import inspect
import itertools
import math
import mmap
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from harness import adapters, contract, counted, lending, loader, mends, namesakes, switched, values
from harness.limit import TimeLimit
from harness.subject import Call, Frame, Outcome, StandIns
from harness.values import Array, Blank, Callback, Dtype, Handle, Keep, Laid, Opaque, Proxy

Invoke = Callable[[Any, list[Any], dict[str, Any]], Any]


class Missing(Exception):
    """The submission has nothing of that name to call."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Plan:
    """Memory to be taken and given back, as the `fn` that measure_peak_memory is asked to measure.

    What is to be done is asked for piece by piece, each when the one before it is done: there is nothing to be read in it.
    """

    def __init__(self, piece: Callable[[], Any]) -> None:
        self._piece = piece

    def __call__(self) -> None:
        held: list[Array | None] = []
        while steps := self._piece():
            for what, number in steps:
                if what == "take":
                    block = np.empty(int(number), np.uint8)
                    block.fill(1)  # touch every page, or the system never hands it out
                    held.append(block)
                elif what == "drop":
                    held[number] = None
                else:
                    time.sleep(number / 1000)


class Executor:
    """One loaded submission: its modules, and the objects it was asked to keep."""

    def __init__(
        self,
        root: Path,
        stand_ins: StandIns,
        invoke: Invoke,
        modules: Mapping[str, ModuleType] | None = None,
        numpy_only: bool = False,
    ) -> None:
        self._root = root
        self._invoke = invoke
        self._keep = Keep()
        self._own: dict[str, ModuleType] = dict(modules or {})
        self._problems: dict[str, loader.ImportProblem] = {}
        self._bound: set[tuple[str, int]] = set()
        self._adapted = adapters.read(root).names
        # Python's own modules and the libraries stay what they are; a helper harness.py, say, is the submission's own.
        helpers = {path.stem for path in root.glob("*.py")} | {path.name for path in root.iterdir() if path.is_dir()}
        given = {*contract.MODULES, *contract.OPTIONAL_MODULES, "model"}
        self._tops = (helpers | given) - {"numpy", "torch", *sys.stdlib_module_names}
        self._namesakes = namesakes.Namesakes(root, numpy_only)
        self._beside: dict[str, ModuleType | None] = {}
        self._loading = 0
        for module, names in stand_ins.items():
            self._own[module] = self._stand_in(module, names)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """This submission's modules and folder are the ones that `import` finds; afterwards nothing of them is left."""
        loaded = set(sys.modules)
        hidden = {name: sys.modules.pop(name) for name in self._claimed(loaded)}
        sys.modules.update(self._own)
        sys.path.insert(0, str(self._root))
        try:
            with (
                self._namesakes.found(),
                contextlib.chdir(self._root),
            ):  # files are named from its own folder, as at home
                yield
        finally:
            if str(self._root) in sys.path:
                sys.path.remove(str(self._root))
            now = set(sys.modules)
            for name in {*self._claimed(now), *(n for n in now - loaded if self._is_ours(sys.modules[n]))}:
                self._own[name] = sys.modules.pop(name)
            sys.modules.update(hidden)

    def _claimed(self, names: set[str]) -> list[str]:
        """Those of `names` that belong to this submission by their first part: the contract's, and its helpers' names."""
        tops = self._tops & names
        packages = tuple(f"{name}." for name in tops if hasattr(sys.modules[name], "__path__"))
        return [*tops, *(name for name in names if packages and name.startswith(packages))]

    def _is_ours(self, module: Any) -> bool:
        return loader.is_own(self._root, str(getattr(module, "__file__", "")))

    def module(self, name: str) -> ModuleType:
        """Raises Missing where the module is absent or does not import; a failed import is not tried twice."""
        if name in self._problems:
            raise Missing(self._problems[name].code, str(self._problems[name]))
        if name not in sys.modules and not (self._root / f"{name}.py").is_file():
            raise Missing("file-missing", f"{name}.py is missing.")
        self._loading += 1
        try:
            return loader.import_module(self._root, name)
        except loader.ImportProblem as problem:
            self._problems[name] = problem
            raise Missing(problem.code, str(problem)) from None
        finally:
            self._loading -= 1

    def backend(self) -> str:
        try:
            return "torch" if getattr(self.module("kv_cache"), "BACKEND", "numpy") == "torch" else "numpy"
        except Missing:
            return "numpy"

    def run(self, call: Call) -> Outcome:
        """One call, whatever it does short of ending the process."""
        try:
            tensors = call.name.startswith("attention_torch.") or (
                call.name.startswith(("kv_cache.", "@m", "@tensor", "@rows", "@switched")) and self.backend() == "torch"
            )
            function = self._find(call.name)
            args = [self._receive(value, tensors) for value in call.args]
            kwargs = {name: self._receive(value, tensors) for name, value in call.kwargs.items()}
        except Missing as missing:
            return Outcome("missing", code=missing.code, text=str(missing))
        try:
            result = function(*args, **kwargs)
            value = self._send(result, call.keep)
        except Missing as missing:
            return Outcome("missing", code=missing.code, text=str(missing))
        except (KeyboardInterrupt, _JudgeGone, TimeLimit):
            raise
        except BaseException as error:
            return self._raised(error)
        echo = tuple(values.plain(arg) for arg in args) if call.echo else ()
        return Outcome("value", value=value, echo=echo)

    # -- what a name means ------------------------------------------------------------------------------------------

    def _find(self, name: str) -> Callable[..., Any]:
        if name.startswith("@"):
            builtin: Callable[..., Any] | None = getattr(self, f"_do_{name[1:]}", None)
            if builtin is None:
                raise Missing("name-missing", f"no built-in {name}")
            return builtin
        module_name, _, attribute = name.partition(".")
        module = self.module(module_name)
        function = contract.FUNCTIONS.get(name)
        attribute = self._adapted.get(name, attribute)
        found: Any = getattr(module, attribute, None)
        shown = function.signature if function and name not in self._adapted else attribute
        if found is None:
            raise Missing("name-missing", f"{module_name}.py has no {shown}.")
        if not callable(found):
            raise Missing(
                "name-missing", f"{module_name}.{attribute} is a {values.type_name(found)}, not a function {shown}."
            )
        if function is not None and (name, id(found)) not in self._bound:
            _check_signature(found, function)
            self._bound.add((name, id(found)))
        return found  # type: ignore[no-any-return]

    def _do_import(self, name: str) -> bool:
        self.module(name)
        return True

    def _do_model(self, fields: dict[str, Any], dtype: str | None = None) -> Any:
        given = self.module("model")

        def cast(value: Any) -> Any:
            return _in_dtype(value, dtype) if dtype and values.is_tensor(value) else value

        layers = tuple(given.Layer(**{name: cast(w) for name, w in layer.items()}) for layer in fields["layers"])
        return given.Decoder(**{**fields, "embedding": cast(fields["embedding"]), "layers": layers})

    def _do_array(self, array: Any) -> Handle:
        return self._keep.new(array)

    _do_tensor = _do_array

    def _do_torch(self, array: Array, dtype: str | None = None) -> Handle:
        tensor = _tensor(array)
        return self._keep.new(_in_dtype(tensor, dtype) if dtype else tensor)

    def _do_parts(self, whole: Any) -> Any:
        mro = type(whole).__mro__
        if tuple not in mro and list not in mro and not values.is_array(whole):
            return whole
        items = tuple.__iter__(whole) if tuple in mro else list.__iter__(whole) if list in mro else iter(whole)
        return [self._keep.new(item) for item in itertools.islice(items, 8)]

    def _do_backend(self) -> str:
        return self.backend()

    def _do_set(self, target: Any, new: Any) -> bool:
        target[...] = _tensor(new) if values.is_tensor(target) else new
        return True

    def _do_fetch(self, array: Any, rows: list[int] | None = None) -> Any:
        return array if rows is None else array[..., rows, :]

    def _do_attr(self, target: Any, name: str) -> Any:
        return getattr(target, name)

    def _do_len(self, target: Any) -> int:
        return len(target)

    def _do_method(self, target: Any, name: str, *args: Any) -> Any:
        method = getattr(target, name, None)
        if method is None:
            raise Missing("name-missing", f"{values.type_name(target)} has no {name}.")
        return method(*args)

    def _do_random(self, shapes: list[Any], dtype: str, seed: int) -> list[Handle]:
        rng = np.random.default_rng(seed)
        arrays = (rng.standard_normal(tuple(shape)).astype(dtype) for shape in shapes)
        return [self._keep.new(array) for array in arrays]

    def _do_drop(self, numbers: list[int]) -> bool:
        for number in numbers:
            self._keep.objects.pop(number, None)
        return True

    def _do_forget(self) -> bool:
        self._keep.objects.clear()
        return True

    def _do_timed(self, name: str, *args: Any) -> tuple[float, Handle]:
        function = self._find(name)
        began = time.perf_counter()
        result = function(*args)
        return time.perf_counter() - began, self._keep.new(result)

    def _do_normal(self, shapes: list[Any], dtype: str, seed: int) -> list[Handle]:
        from harness import device

        return [self._keep.new(tensor) for tensor in device.normal(shapes, dtype, seed)]

    def _do_bench(self, name: str, *args: Any) -> tuple[Any, ...]:
        from harness import device

        took, result = device.timed(self._find(name), args)
        return took.seconds, took.wall, took.allocated, took.reserved, self._keep.new(result)

    def _do_ceilings(self, dtype: str, mib: int, n: int) -> tuple[float, float]:
        from harness import device

        return device.copy_rate(mib), device.matrix_rate(dtype, n)

    def _do_lines(self, name: str, *args: Any) -> int:
        count = 0

        def trace(frame: Any, event: str, arg: Any) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        function = self._find(name)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            function(*args)
        finally:
            sys.settrace(before)
        return count

    def _do_rows(self, fields: dict[str, Any], name: str, *args: Any, **kwargs: Any) -> float:
        count = counted.Count(len(fields["layers"][0]["W_K"]))
        make = counted.tensor if values.is_tensor(fields["embedding"]) else counted.array
        layers = [{**layer, "W_K": make(layer["W_K"], count)} for layer in fields["layers"]]
        self._find(name)(self._do_model({**fields, "layers": layers}), *args, **kwargs)
        return count.rows

    def _do_switched(self, fields: dict[str, Any], later: Any, reads: int, name: str, *args: Any, **kwargs: Any) -> Any:
        model = self._do_model(fields)
        layers = switched.layers(model.layers, later, reads)
        return self._find(name)(dataclasses.replace(model, layers=layers), *args, **kwargs)

    def _do_same(self, a: Any, b: Any) -> bool:
        return a is b

    def _do_plan(self, piece: Callable[[], Any]) -> Plan:
        _give_back_what_is_free()
        return Plan(piece)

    def _do_sdpa(self, q: Array, k: Array, v: Array, mask: Array | None = None, scale: float | None = None) -> Any:
        import torch

        tensors = [torch.from_numpy(np.ascontiguousarray(a)) for a in (q, k, v)]
        visible = None if mask is None else torch.from_numpy(np.ascontiguousarray(mask))
        return torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=visible, dropout_p=0.0, scale=scale)

    # -- values in and out -------------------------------------------------------------------------------------------

    def _receive(self, value: Any, tensors: bool) -> Any:
        """A value of the judge as the student's code shall see it: arrays are fresh copies, handles are their objects."""
        if isinstance(value, np.ndarray):
            return _tensor(value) if tensors else np.array(value)
        if isinstance(value, Laid):
            return _lay_tensor(value) if tensors else _lay(value)
        if isinstance(value, Handle):
            if value.id not in self._keep.objects:
                raise Missing("name-missing", "a value that was to be kept is gone")
            return self._keep.objects[value.id]
        if isinstance(value, Dtype):
            return _dtype(value, self.backend() == "torch")
        if isinstance(value, Blank):
            return _blank(value)
        if isinstance(value, Callback):
            return self._function(value)
        if isinstance(value, Proxy):
            return _ProxyObject(self, value)
        if isinstance(value, tuple):
            return tuple(self._receive(item, tensors) for item in value)
        if isinstance(value, list):
            return [self._receive(item, tensors) for item in value]
        if isinstance(value, dict):
            return {name: self._receive(item, tensors) for name, item in value.items()}
        return value

    def _send(self, value: Any, keep: bool | str) -> Any:
        if isinstance(value, Handle) or type(value) is Plan or type(value) is _ProxyObject:
            return value if isinstance(value, Handle) else self._keep.new(value)
        if keep == "whole":
            return self._keep.new(value)
        if not keep:
            return values.plain(value)
        return self._kept(value, inside=(tuple, list))

    def _kept(self, value: Any, inside: tuple[type, ...] = ()) -> Any:
        """Data as it is, and a handle for what is none: (logits, cache) crosses as an array and a handle."""
        sent = Opaque(values.type_name(value)) if values.is_kind_of_container(value) else values.plain(value)
        if isinstance(sent, Opaque):
            return self._keep.new(value)
        if isinstance(sent, inside):
            items = tuple.__iter__(value) if isinstance(sent, tuple) else list.__iter__(value)
            kind: Any = type(sent)
            return kind([self._kept(item) for item in items])
        return sent

    def _function(self, callback: Callback, tensors: bool = False) -> Callable[..., Any]:
        def ask_judge(*args: Any, **kwargs: Any) -> Any:
            sent = [self._argument(arg, callback.by_handle) for arg in args]
            named = {name: self._argument(arg, callback.by_handle) for name, arg in kwargs.items()}
            return self._receive(self._invoke(callback.function, sent, named), tensors)

        return ask_judge

    def _argument(self, value: Any, by_handle: bool) -> Any:
        if by_handle and values.is_array(value):
            return self._keep.new(value)
        return self._kept(value)

    def _stand_in(self, name: str, names: Mapping[str, Callback | Proxy | str]) -> ModuleType:
        module = ModuleType(name)
        module.__file__ = f"<{name} of the judge>"
        tensors = names.get("BACKEND") == "torch"
        for attribute, value in names.items():
            if isinstance(value, Proxy | str):
                setattr(module, attribute, self._receive(value, tensors))
            elif not attribute[0].isupper():
                setattr(module, attribute, self._own_while_loading(name, attribute, self._function(value, tensors)))
            else:  # a class, so that annotations such as `KVCache | None` still work
                make = self._own_while_loading(name, attribute, self._function(value, tensors))
                setattr(
                    module, attribute, type(attribute, (), {"__new__": lambda cls, *a, _make=make, **k: _make(*a, **k)})
                )
            if f"{name}.{attribute}" in self._adapted:  # the submission's other files call it by its own name
                setattr(module, self._adapted[f"{name}.{attribute}"], getattr(module, attribute))
        return module

    def lend(self, stand_ins: StandIns) -> bool:
        """Puts what is lent in the place of what has been loaded, wherever that is bound.

        False where it cannot be: then the submission is to be loaded afresh over it.
        """
        found: list[tuple[Any, str, Any, Callable[..., Any]]] = []
        fresh: dict[str, ModuleType] = {}
        plain: list[tuple[ModuleType, str, Any]] = []
        for name, names in stand_ins.items():
            module = sys.modules.get(name)
            if module is None:
                fresh[name] = self._stand_in(name, names)
                continue
            for attribute, value in names.items():
                if isinstance(value, Proxy | str):
                    plain.append((module, attribute, self._receive(value, False)))
                    continue
                own = getattr(module, self._adapted.get(f"{name}.{attribute}", attribute), None)
                if not lending.replaceable(own, module):
                    return False
                found.append((own, name, attribute, self._function(value, names.get("BACKEND") == "torch")))
        if self._problems or len({id(own) for own, *_ in found}) < len(found):
            return False
        for own, name, attribute, lent in found:
            if isinstance(own, type):
                lending.replace_class(own, lent)
            elif not lending.replace_function(own, self._own_while_loading(name, attribute, lent, lending.copy(own))):
                return False
        for module, attribute, value in plain:
            setattr(module, attribute, value)
        sys.modules.update(fresh)
        return True

    def _own_while_loading(
        self, module: str, name: str, lent: Callable[..., Any], loaded: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """What is lent; but while a file loads, the submission's own. A try-out at import is no answer to any question."""

        def function(*args: Any, **kwargs: Any) -> Any:
            if self._loading:
                own = loaded or getattr(self._lie_beside(module), self._adapted.get(f"{module}.{name}", name), None)
                with contextlib.suppress(Exception):  # one that does not work is replaced by what is lent
                    if own is not None:
                        return own(*args, **kwargs)
            return lent(*args, **kwargs)

        return function

    def _lie_beside(self, name: str) -> ModuleType | None:
        """The submission's own file of a module that is lent, loaded when first wanted; None where it does not load."""
        if name not in self._beside:
            self._beside[name] = None
            with contextlib.suppress(Exception):
                self._beside[name] = namesakes.load(self._root / f"{name}.py")
        return self._beside[name]

    def ended(self, error: TimeLimit) -> Outcome:
        """What a call comes to that has taken too long."""
        return dataclasses.replace(self._raised(error), kind="timeout", type="")

    def _raised(self, error: BaseException) -> Outcome:
        frames = [
            Frame(Path(f.filename).name, f.lineno or 0, (f.line or "")[:200])
            for f in traceback.extract_tb(error.__traceback__)
            if loader.is_own(self._root, f.filename)
        ]
        text = _message(error)
        if any(f.file == "kv_cache.py" for f in frames) and self.backend() == "numpy":
            text += f" ({mends.NO_BACKEND})" if mends.wants_tensors(sys.modules.get("kv_cache"), text) else ""
        return Outcome("raised", type=values.type_name(error), text=text, frames=tuple(frames[-8:]))


class _JudgeGone(BaseException):
    """The other end of the wire is closed: nothing more is asked."""


class _ProxyObject:
    """A judge's object in a student's hands."""

    def __init__(self, executor: Executor, proxy: Proxy) -> None:
        object.__setattr__(
            self, "_ask", lambda *a: executor._receive(executor._invoke(proxy.callback, list(a), {}), False)
        )
        object.__setattr__(self, "_send", lambda v: executor._argument(v, False))
        object.__setattr__(self, "_read", proxy.properties)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        ask, send, read = (object.__getattribute__(self, n) for n in ("_ask", "_send", "_read"))
        if name in read:
            return ask(name, [], {})
        return lambda *a, **k: ask(name, [send(v) for v in a], {n: send(v) for n, v in k.items()})

    def __len__(self) -> int:
        return int(object.__getattribute__(self, "_ask")("__len__", [], {}))

    def __bool__(self) -> bool:
        return True


def _check_signature(found: Any, function: contract.Function) -> None:
    """Raises Missing("signature-mismatch") unless the contract's way of calling it binds."""
    try:
        signature = inspect.signature(found)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*function.required, **dict.fromkeys(function.optional))
    except TypeError as error:
        got = f"{function.name}{signature}"[:200]
        raise Missing("signature-mismatch", f"{got} cannot be called as {function.signature}: {error}") from None


def _message(error: BaseException) -> str:
    try:
        return str(error)[:500]
    except BaseException:
        return ""


def _lay(laid: Laid) -> Array:
    source = laid.array
    if laid.order == "F":
        array = np.asfortranarray(source).copy(order="F")
    elif laid.order == "strided" and source.ndim:
        room = np.zeros((*source.shape[:-1], 2 * source.shape[-1]), source.dtype)
        array = room[..., ::2]
        array[...] = source
    elif laid.order == "reversed" and source.ndim:
        array = np.ascontiguousarray(source[..., ::-1])[..., ::-1]
    else:
        array = np.array(source)
    array.flags.writeable = laid.writeable
    return array


def _give_back_what_is_free() -> None:
    """Has malloc, where it can, give the system back what it keeps of freed blocks: what is then taken counts as resident anew."""
    with contextlib.suppress(
        AttributeError, TypeError, OSError
    ):  # only glibc has it; Windows names its library otherwise
        ctypes.CDLL(None).malloc_trim(0)


def _blank(value: Blank) -> Any:
    """Zeros on pages of their own, which cost nothing until they are touched: malloc may have a used block, and fills it."""
    n_bytes = math.prod(value.shape) * np.dtype(value.dtype).itemsize
    if not n_bytes or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(value.shape, value.dtype)
    return np.ndarray(value.shape, value.dtype, mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _tensor(array: Array) -> Any:
    import torch

    return torch.from_numpy(np.array(array)).to(torch.get_default_device())


def _in_dtype(tensor: Any, dtype: str) -> Any:
    import torch

    return tensor.to(getattr(torch, dtype))


def _lay_tensor(laid: Laid) -> Any:
    """As `_lay` does, where torch has such tensors: none is read-only, and none runs backwards."""
    import torch

    tensor = _tensor(laid.array)
    if laid.order == "F" and tensor.ndim > 1:
        return tensor.mT.contiguous().mT
    if laid.order == "strided" and tensor.ndim:
        return torch.stack((tensor, torch.zeros_like(tensor)), dim=-1)[..., 0]
    return tensor


def _dtype(dtype: Dtype, torch_backend: bool) -> Any:
    if torch_backend:
        import torch

        return getattr(torch, dtype.name)
    return {"text": dtype.name, "type": np.dtype(dtype.name).type, "object": np.dtype(dtype.name)}[dtype.form]
