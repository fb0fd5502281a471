"""A KVCache that is wrong as a variant says, and rows that know their names, so that what it holds can be told.

Row r of append a is filled with one number of its own; what comes back is then a list of names, whatever else lies in
the memory that a cache hands out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reference.attention import Array
from reference.variants.cache_space import Taken

FULL = "there is no room"
UNFILLED = 0.0


class Store:
    """A KVCache as a variant has it; `say` tells the option taken for a decision of STORAGE.

    `watched` names what shows only in some scripts: "dtype" where numbers are rounded or dtypes read, "copy" where an
    array that was appended changes later.
    """

    def __init__(
        self, say: Callable[[str], Taken], n_layers: int, row: tuple[int, int], capacity: int, dtype: str, watched: str
    ) -> None:
        self.say, self.row, self.capacity, self.dtype, self.watched = say, row, capacity, dtype, watched
        self.shared = say("layers").name if n_layers > 1 else "right"
        share = self.shared == "share"
        first = [[self._empty()], [self._empty()]]
        self.slots = [first if share else [[self._empty()], [self._empty()]] for _ in range(n_layers)]
        self.lost = [0] * n_layers  # tokens counted that are stored nowhere
        self.counter = 0
        self.steps = 0  # decoded since the last prefill
        self.last: Callable[[], Array] | None = None  # the logits that the last token gave

    def _empty(self) -> Array:
        return np.zeros((0, *self.row), self.held_in(np.dtype(self.dtype), 0))

    def held_in(self, given: np.dtype[Any], slot: int) -> np.dtype[Any]:
        """The dtype that something appended is held in."""
        how = self.say("dtype").name if "dtype" in self.watched else "right"
        if how.endswith("alone"):
            dtype, which = how.split(", ")
            return np.dtype(dtype if which.startswith(("keys", "values")[slot]) else self.dtype)
        if how == "of what is appended":
            return given
        if how == "the wider":
            return np.promote_types(self.dtype, given)
        return np.dtype(self.dtype if how == "right" else how)

    def by_counter(self) -> str:
        return self.say("counter").name if len(self.slots) > 1 else "right"

    def _whole(self, layer: int, slot: int) -> Array:
        parts = self.slots[layer][slot]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def size(self, layer: int) -> int:
        """How many tokens it counts in that layer."""
        return sum(len(part) for part in self.slots[layer][0]) + self.lost[layer]

    def kept(self, layer: int) -> bool:
        """Whether what is appended to this layer is stored."""
        layers = self.say("kept layers").name if len(self.slots) > 1 else "right"
        return not layers.endswith("alone") or layer == (0 if layers.startswith("the first") else len(self.slots) - 1)

    def append(self, layer: int, k: Array, v: Array) -> None:
        if not self.kept(layer):
            return
        if self.by_counter() != "right":
            self._append_by_counter(layer, k, v, self.by_counter())
            return
        n, room = len(k), self.capacity - self.size(layer)
        if room < self.capacity and self.say("write").name.startswith("over the last"):
            room += self.say("room counted").name != "right"
        full = self.say("full").name if n >= room else "right"
        room += {"one too early": -1, "one too late": 1}.get(full, 0)
        if n > room and not self._takes_all(full, layer):
            self._overfill(full, layer, k, v, max(room, 0))
        else:
            self._write(layer, k, v)

    def _takes_all(self, full: str, layer: int) -> bool:
        """Whether this layer is one that has no capacity."""
        first, last = layer == 0, layer == len(self.slots) - 1
        return {
            "never": True,
            "never, but in the first layer": not first,
            "never, but in the last layer": not last,
        }.get(full, False)

    def _overfill(self, full: str, layer: int, k: Array, v: Array, room: int) -> None:
        n = len(k)
        if full == "another exception":
            raise IndexError(FULL)
        if full == "newest dropped":
            return
        if full.startswith("never, in a block"):  # one row broadcasts into the empty rest of a block; more rows do not
            if n == 1 and room == 0:
                self.lost[layer] += 1
                return
            raise IndexError(FULL) if full.endswith("tensors") else ValueError(FULL)
        if full.endswith(("dropped", "in place")) and not full.startswith("newest"):
            for slot, new in enumerate((k, v)):
                old = self._whole(layer, slot)
                if full == "oldest dropped":
                    rows = np.concatenate([old, new])[-self.capacity :]
                elif full.startswith("last"):
                    rows = np.concatenate([old[: max(self.capacity - n, 0)], new])[: max(self.capacity, n)]
                    if len(rows) > self.capacity:
                        raise ValueError(FULL)
                else:
                    rows = np.concatenate([old, new[:room]])
                    over = new[room:][-self.capacity :]
                    rows[: len(over)] = over
                self.slots[layer][slot][:] = [rows]
            return
        if full.startswith("stored in part") and room:
            self._write(layer, k[:room], v[:room])
        elif full == "stored, then refused":
            self._write(layer, k, v)
        elif full == "keys stored, then refused":
            self.slots[layer][0].append(k)
        if full.endswith("another exception"):
            raise IndexError(FULL)
        if full != "stored in part":
            raise ValueError(FULL)

    def _write(self, layer: int, k: Array, v: Array) -> None:
        write, keep = self.say("write"), self.say("keep")
        for slot, given in enumerate((k, v)):
            parts = self.slots[layer][slot]
            new = self._copied(given, slot, not sum(len(p) for p in parts))
            old = self._whole(layer, slot)
            at, n = len(old), len(new)
            rows = [*parts, new]
            if write.name.startswith("over the last"):
                rows = [old[: max(at - 1, 0)], new]
                if write.name.endswith("whole") and at + n > self.capacity:
                    self.lost[layer] += slot == 0  # counted past the end of the block
                elif write.name.endswith("whole") and at:
                    rows.append(np.full((1, *new.shape[1:]), UNFILLED, new.dtype))
            elif write.name == "from 0" and at:
                rows = [new, old[n:], np.full((min(n, at), *new.shape[1:]), UNFILLED, new.dtype)]
            elif write.name == "in place of all":
                rows = [new]
            elif write.name == "in front":
                rows = [new, old]
            elif write.name == "twice":
                rows = [old, new, new]
            elif write.name == "not at all":
                rows = [old]
            elif write.name.startswith("along") and at:
                rows = [np.concatenate([old, new], axis=1 if write.name == "along the heads" else 2)]
            elif write.name == "the last of a chunk":
                rows = [old, new[-1:]]
            elif write.name == "the first of a chunk":
                rows = [old, new[:1]]
            if keep.name != "right":
                whole, size = np.concatenate(rows), int(keep.value)
                rows = [whole[-size:] if keep.name == "the last" else whole[:size]]
            parts[:] = [part for part in rows if len(part)] or [old[:0]]
            if self.shared == "share a block":
                self._write_over(layer, slot, at, new)

    def _write_over(self, layer: int, slot: int, at: int, new: Array) -> None:
        """Where layers have one block and each a count of its own: what the others hold in those places."""
        for other, slots in enumerate(self.slots):
            rows = self._whole(other, slot)
            if other != layer and len(rows) > at:
                rows = rows.copy()
                rows[at : at + len(new)] = new[: len(rows) - at]
                slots[slot][:] = [rows]

    def _copied(self, given: Array, slot: int, first: bool) -> Array:
        copy = self.say("copy").name if "copy" in self.watched else "right"
        alias = {
            "first kept as it is": first,
            "all kept as they are": True,
            "keys kept as they are": slot == 0,
            "values kept as they are": slot == 1,
        }
        return given.astype(self.held_in(given.dtype, slot), copy=not alias.get(copy, False))

    def _append_by_counter(self, layer: int, k: Array, v: Array, length: str) -> None:
        """All layers write at one place: `counter`, which each of them moves, or the first or the last alone."""
        n, by_first = len(k), length.endswith("layer 0")
        start = self.counter - n if by_first and layer else self.counter
        if start + n > self.capacity:
            raise ValueError(FULL)
        if start < 0:
            raise ValueError("before the start")
        for slot, new in enumerate((k, v)):
            old = self._whole(layer, slot)
            block = np.full((self.capacity, *self.row), UNFILLED, self.held_in(new.dtype, slot))
            block[: len(old)] = old
            block[start : start + n] = new
            self.slots[layer][slot][:] = [block]
        last = layer == len(self.slots) - 1
        if not length.endswith(("layer 0", "last layer")) or (by_first and layer == 0) or (not by_first and last):
            self.counter += n

    def read(self, layer: int, slot: int) -> Array:
        if len(self.slots) > 1 and self.say("kept layers").name.endswith("in reverse"):
            layer = len(self.slots) - 1 - layer
        slots = self.say("slots").name
        slot = {"swapped": 1 - slot, "keys for both": 0, "values for both": 1}.get(slots, slot)
        rows = self._whole(layer, slot)
        by_counter = self.by_counter() != "right"
        if not by_counter and (len(rows) >= self.capacity or self.say("read").name == "right"):
            return rows
        block = np.full((self.capacity, *rows.shape[1:]), UNFILLED, rows.dtype)
        block[: len(rows)] = rows
        return block[: self.counter] if by_counter else block

    def keys(self, layer: int) -> Array:
        return self.read(layer, 0)

    def values(self, layer: int) -> Array:
        return self.read(layer, 1)

    def copy(self) -> Store:
        twin: Store = object.__new__(Store)
        twin.__dict__ = {**self.__dict__, "slots": [[[p.copy() for p in parts] for parts in x] for x in self.slots]}
        return twin

    def __len__(self) -> int:
        lengths = [self.size(layer) for layer in range(len(self.slots))]
        if self.by_counter() != "right":
            return self.counter
        how = self.say("length").name
        options = {
            "of layer 0": lengths[0],
            "of the last layer": lengths[-1],
            "of the longest": max(lengths),
            "of all together": sum(lengths),
            "the capacity": self.capacity,
        }
        return options.get(how, min(lengths))

    def _bytes_a_value(self) -> float:
        """Of the dtype asked for; a cache that holds another may also say what it holds."""
        as_asked = np.dtype(self.dtype)
        if self.say("dtype").name == "right" or self.say("value counted").name == "right":
            return as_asked.itemsize
        return sum(self.held_in(as_asked, slot).itemsize for slot in (0, 1)) / 2

    @property
    def nbytes(self) -> int:
        lengths = [self.size(layer) for layer in range(len(self.slots))]
        per_row, item = self.row[0] * self.row[1], self._bytes_a_value()
        how = self.say("nbytes").name
        if self.say("length").name != "right" and self.say("bytes counted").name != "right":
            total = 2 * sum(min(n, len(self)) for n in lengths) * per_row * item
            return int(total / 2 if how == "keys alone" else total)
        tokens = {"capacity": self.capacity, "the longest": max(lengths), "layer 0": lengths[0]}.get(how, len(self))
        total = 2 * (sum(lengths) if how == "each layer's own" else len(lengths) * tokens) * per_row * item
        parts = {
            "keys alone": total / 2,
            "one layer": total / len(lengths),
            "one head": total / self.row[0],
            "8 a value": total / item * 8,
            "4 a value": total / item * 4,
            "2 a value": total / item * 2,
            "values counted, not bytes": total / item,
            "bits": total * 8,
            "twice": total * 2,
        }
        return int(parts.get(how, total))


# -- rows that know their names ----------------------------------------------------------------------------------------


ROWS = 160  # names that one append has


def append_of(name: int) -> int:
    """Which append a row of this name came with."""
    return (int(name) - 1) // ROWS


def named_rows(number: int, shape: tuple[int, ...], slot: int, dtype: np.dtype[Any], changed: bool = False) -> Array:
    """Rows of append `number`; each is filled with its own whole number, small enough for float16."""
    name = 1 + 2 * np.arange(shape[0]) + slot + ROWS * number
    rows = np.broadcast_to((-name if changed else name)[:, None, None], shape)
    return rows.astype(dtype)


def names_of(rows: Array) -> tuple[Array, Array]:
    """Shape and name of each row; 0 where the row is none that was ever appended."""
    flat = rows.reshape(len(rows), -1).astype(np.float64) if rows.size else np.zeros((len(rows), 1))
    whole = (flat == flat[:, :1]).all(axis=1) & (np.abs(flat[:, 0]) <= 2000) & (flat[:, 0] == np.round(flat[:, 0]))
    return np.array(rows.shape), np.where(whole, flat[:, 0], 0).astype(int)
