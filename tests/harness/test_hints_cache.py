"""Hints on kv_cache.py: the fault of every bundled submission is named at its first failing public check, a right one gets none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.hints import Hints
from harness.local import Held
from harness.signs import Hint
from reference.variants.cache import SPACE
from reference.variants.cache_module import functions
from reference.variants.space import Variant, codes
from tests.labs.attention.edits import entries, named, write

ROOT = Path(__file__).parents[2]
BASE = ROOT / "examples" / "base"


def laid_over_the_base(kv_cache: Path, folder: Path) -> Held:
    shutil.copytree(BASE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("report"))
    shutil.copy(kv_cache, folder / "kv_cache.py")
    return Held(folder)


def hints_on(subject: Held) -> list[Hint]:
    with subject.held():
        return Hints(subject).of("cache")


@pytest.mark.slow
@pytest.mark.parametrize("name", [e.name for e in entries() if e.kind == "right" and e.file == "kv-cache.toml"])
def test_a_right_cache_of_any_style_gets_no_hint(name: str, tmp_path: Path) -> None:
    """Two paths and one, blocks and lists of chunks, NumPy and torch, slow and fast."""
    assert hints_on(Held(write(named()[name], tmp_path / "submission"))) == []


# -- the reference's wrong caches --------------------------------------------------------------------------------------

# What a hint says nothing of, or says in words without a name: scores and weights of an attention of the cache's own, tables
# of positions of its own, and dtypes that a check of its own names.
UNNAMED = ("scale", "softmax", "table", "dtype", "mask", "layer read", "extra")
SINGLES = [
    Variant({d.name: o.at(o.examples[0]) if o.examples else o})
    for d in SPACE
    for o in d.options
    if o.name not in ("right", "no")
]


def of_variant(variant: Variant, folder: Path) -> Held:
    folder.mkdir(exist_ok=True)
    file = folder / "empty.py"
    file.write_text("")
    subject = laid_over_the_base(file, folder / "lab")
    with subject.held():
        import kv_cache  # type: ignore[import-not-found]  # the submission's

        vars(kv_cache).update(vars(functions(variant)))
    return subject


def label(variant: Variant) -> str:
    return ", ".join(f"{name}: {option.name}" for name, option in variant.items())


@pytest.mark.long
def test_no_wrong_option_is_taken_for_another(tmp_path: Path) -> None:
    """Each option of the reference's wrong caches: what is named is its code; and all but a few kinds are named."""
    accused, missed = {}, []
    for variant in SINGLES:
        named = {hint.code for hint in hints_on(of_variant(variant, tmp_path)) if hint.code is not None}
        if not named <= codes(variant):
            accused[label(variant)] = named
        if codes(variant) and not named and not any(kind in label(variant).partition(":")[0] for kind in UNNAMED):
            missed.append(label(variant))
    assert accused == {}
    assert missed == [m for m in missed if m.startswith("generate's cache")]


# -- one line changed --------------------------------------------------------------------------------------------------

FULL = "        if end > self.capacity:"
APPEND = "        self.k[layer][begin:end] = k"
MERGED = "        x = x + mixed.swapaxes(0, 1).reshape(n, -1) @ layer.W_O"
GROUPS = ".repeat(shared_by, axis=0)"
LINES: list[tuple[str, str, str, str]] = [
    ("all but the first row", "cache-truncated", "[: self.stored[layer]]", "[: self.stored[layer]][-64:]"),
    ("a cap on one layer", "cache-length-wrong", "return min(self.stored)", "return self.stored[-1]"),
    ("the largest layer", "cache-length-wrong", "return min(self.stored)", "return max(self.stored)"),
    ("unused room", "cache-bytes-formula", "return one_token * len(self)", "return one_token * self.capacity"),
    ("one more", "cache-capacity-off-by-one", FULL, "        if end > self.capacity + 1:"),
    ("the whole store", "cache-padding-attended", "[: self.stored[layer]]", ""),
    ("over the last", "cache-overwritten", "begin = self.stored[layer]", "begin = max(self.stored[layer] - 1, 0)"),
    ("a new cache", "cache-given-ignored", "    if cache is None:", "    if not cache:"),
    ("chunks from 0", "cache-chunk-misaligned", "[before:].astype", "[before if n == 1 else 0 :][:n].astype"),
    ("one early", "cache-position-reset", "[before:].astype", "[max(before - (n == 1), 0) :][:n].astype"),
    ("a mask from the top left", "cache-chunk-misaligned", "causal_mask(n, before + n)", "np.tri(n, before + n, dtype=bool)"),
    ("heads in turn", "cache-head-order", GROUPS, "[np.arange(model.n_heads) % model.n_kv_heads]"),
    ("no transpose back", "cache-head-order", MERGED, MERGED.replace(".swapaxes(0, 1)", "")),
    ("no residual", "decode-residual-missing", MERGED, MERGED.replace("x + ", "")),
    ("a norm at the end", "decode-extra-step", "    return x @ model.embedding.T", "    return (x - x.mean(-1, keepdims=True)) / "
     "x.std(-1, keepdims=True) @ model.embedding.T"),
    ("a larger embedding", "decode-extra-step", "embedding[np.asarray(tokens)]", "embedding[np.asarray(tokens)] * 4"),
    ("positions always", "positions-misplaced", 'model.positions == "sinusoidal"', "model.positions"),
    ("the row before", "decode-stale-logits", "    new = [int(logits[-1]", "    new = [int(logits[-2]"),
    ("a total", "generate-total-length", "while len(new) <", "while len(tokens) + len(new) <"),
    ("one fewer", "generate-off-by-one", "    return new", "    return new[:-1]"),
    ("onto the last rows", "cache-unbounded", 'raise ValueError(f"{end} tokens do not fit in a cache for {self.capacity}")',
     "begin, end = self.capacity - k.shape[0], self.capacity"),
    ("the last layer first", "cache-layer-mixed", "in enumerate(model.layers)", "in reversed(list(enumerate(model.layers)))"),
    ("a sample", "generate-not-greedy", "new.append(int(last.argmax()))", "new.append(int(np.random.default_rng().choice("
     "len(last), p=np.exp(last - last.max()) / np.exp(last - last.max()).sum())))"),
]  # fmt: skip


def changed(old: str, new: str, folder: Path) -> Held:
    text = (BASE / "kv_cache.py").read_text()
    assert old in text
    file = folder / "changed.py"
    file.write_text(text.replace(old, new))
    return laid_over_the_base(file, folder / "lab")


@pytest.mark.parametrize(("code", "old", "new"), [line[1:] for line in LINES], ids=[line[0] for line in LINES])
def test_one_wrong_line_is_named(code: str, old: str, new: str, tmp_path: Path) -> None:
    """The bundled correct cache with one mistake: its name, and no other."""
    assert {hint.code for hint in hints_on(changed(old, new, tmp_path))} == {code}


ODD = [
    ("arrays of objects' own", "[: self.stored[layer]]", "[: self.stored[layer]].copy()"),
    ("keys that are a view backwards", "heads(x @ layer.W_K, model.n_kv_heads)", "heads(x @ layer.W_K, model.n_kv_heads)[:, ::-1][:, ::-1]"),
    ("a room for one token more", "empty_cache(model, len(tokens))", "empty_cache(model, len(tokens) + 1)"),
    ("einsum", "x @ layer.W_V", "np.einsum('nd,de->ne', x, layer.W_V)"),
    ("a length that is NumPy's", "return min(self.stored)", "return int(np.min(self.stored))"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [line[1:] for line in ODD], ids=[line[0] for line in ODD])
def test_an_unusual_right_line_gets_no_hint(old: str, new: str, tmp_path: Path) -> None:
    """Other words for the same thing."""
    assert hints_on(changed(old, new, tmp_path)) == []


def test_a_cache_over_a_wrong_attention_is_not_accused(tmp_path: Path) -> None:
    """Where attention.py ignores its mask, or adds noise, nothing is said of the decoder that stands on it."""
    masked = "        scores = np.where(mask, scores, -np.inf)"
    scores = "    scores = Q @ K.swapaxes(-1, -2) * scale  # (..., n, m)"
    text = (BASE / "attention.py").read_text()
    noise = "    scores = Q @ K.swapaxes(-1, -2) * scale + 0.01 * np.random.standard_normal(K.shape[-2])"
    for old, new in ((masked, "        pass"), (masked, "        scores = scores + mask"), (scores, noise)):
        assert old in text
        subject = laid_over_the_base(BASE / "kv_cache.py", tmp_path)
        (tmp_path / "attention.py").write_text(text.replace(old, new))
        assert hints_on(subject) == []
