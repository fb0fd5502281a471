"""A kv_cache.py that is wrong as the variant says that is its module's VARIANT: the reference's wrong caches, to be asked."""

import numpy as np

from reference.decoder import Decoder, Layer
from reference.variants.cache_space import taken
from reference.variants.cache_store import Broken, Refused, Store
from reference.variants.cache_student import Student
from reference.variants.space import Variant

VARIANT = Variant()
_students: list[Student] = []
_shared: dict[int, Store] = {}
_wrappers: dict[int, "KVCache"] = {}


def say(name):
    return taken(VARIANT, name)


def told(function, *args):
    try:
        return function(*args)
    except Refused:
        raise ValueError("full") from None
    except Broken:
        raise IndexError("full") from None


class KVCache:
    def __init__(self, n_layers, n_kv_heads, d_head, capacity, dtype):
        row, name = (n_kv_heads, d_head), np.dtype(dtype).name
        self.store = Store(say, n_layers, row, capacity, name, watched="dtype copy")
        if say("caches").name != "right":
            self.store = _shared.setdefault(n_layers, self.store)
        _wrappers[id(self.store)] = self

    def append(self, layer, k, v):
        told(self.store.append, layer, k, v)

    def keys(self, layer):
        return self.store.read(layer, 0)

    def values(self, layer):
        return self.store.read(layer, 1)

    def __len__(self):
        return len(self.store)

    @property
    def nbytes(self):
        return self.store.nbytes


def student(model):
    layers = tuple(Layer(x.W_Q, x.W_K, x.W_V, x.W_O) for x in model.layers)
    right = Decoder(model.embedding, layers, model.n_heads, model.n_kv_heads, model.positions)
    if not _students:
        _students.append(Student(VARIANT, right))
    _students[0].model = right
    return _students[0]


def forward(model, tokens):
    return told(student(model).forward, [int(t) for t in tokens])


def prefill(model, tokens, cache=None):
    given = None if cache is None else cache.store
    tokens = [int(t) for t in tokens]
    if given is not None and len(given) + len(tokens) > given.capacity and say("full").name == "right":
        raise ValueError("full")
    logits, store = told(student(model).prefill, tokens, given)
    rows = told(logits)
    known = _wrappers.get(id(store))
    if known is None or known.store is not store:
        known = KVCache.__new__(KVCache)
        known.store = store
        _wrappers[id(store)] = known
    return rows, known


def decode_step(model, token, cache):
    return told(told(student(model).decode, int(token), cache.store))


def generate(model, prompt, max_new_tokens, use_cache=True):
    return [int(i) for i in told(student(model).generate, [int(t) for t in prompt], max_new_tokens, use_cache)]


def kv_cache_bytes(n_layers, n_kv_heads, d_head, n_tokens, bytes_per_value):
    return 2 * n_layers * n_kv_heads * d_head * n_tokens * bytes_per_value
