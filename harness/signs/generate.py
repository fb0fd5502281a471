"""Hints on generate: how many ids, which of equally good ones, after which rows, and whether calls know of each other.

That a decode step gives the logits of forward has been seen before: what is odd here is generate's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness.signs import Hint
from harness.signs.probe import Fields, decoder, forward
from harness.subject import Asking, LocalSubject
from harness.values import Array

PROMPTS = ([1, 5, 3], [7, 2, 2], [0, 6, 8])
NEW = 6
CLEARLY = 40.0  # by so much in logits, a sample is as good as certain


def hints(subject: Asking) -> Iterator[Hint]:
    """The first thing that explains ids that are not forward's."""
    for look in (_how_many, _ties, _choices):
        found = look(subject)
        if found is not None:
            yield found
            return


def counts(subject: Asking) -> Iterator[Hint]:
    """How many ids come, whichever they are."""
    found = _how_many(subject)
    if found is not None:
        yield found


def generate(subject: Asking, model: Any, prompt: list[int], n: int, use_cache: bool = True) -> list[int] | None:
    value = subject.call("kv_cache.generate", model, list(prompt), n, use_cache=use_cache).value
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    return [int(i) for i in value] if isinstance(value, list | tuple) and all(type(i) is int for i in value) else None


def _once(subject: Asking, fields: Fields, prompt: list[int], n: int, use_cache: bool = True) -> list[int] | None:
    """The ids over a decoder that no call has seen before."""
    made = subject.keep("@model", fields)
    return generate(subject, made.value, prompt, n, use_cache) if made.ok else None


def _silent(embedding: Array) -> Fields:
    """W_O = 0: a token's successor is the id whose embedding goes best with its own."""
    width = embedding.shape[1]
    layer = {name: np.eye(width) for name in ("W_Q", "W_K", "W_V")} | {"W_O": np.zeros((width, width))}
    return {"embedding": embedding, "layers": [layer], "n_heads": 1, "n_kv_heads": 1, "positions": "none"}


def _how_many(subject: Asking) -> Hint | None:
    """Every id its own successor: how many come does not hang on which."""
    total = _total(subject)
    if total is not None:
        return total
    came = [_once(subject, decoder(), [1, 2, 3], 5, use_cache) for use_cache in (True, False)]
    fields = _silent(2 * np.eye(12))
    for use_cache in (True, False):
        found = [_once(subject, fields, [token], 3, use_cache) for token in range(12)]
        counts = [len(got) for got in found if got is not None]
        if len(counts) < 12:
            return None
        short = [token for token, count in enumerate(counts) if count < max(counts)]
        if short and max(counts) == 3:
            which = " and ".join(map(str, short))
            return Hint("generate-not-greedy", f"Where id {which} comes, generate stops before 3 ids are there.")
    for ids, use_cache in zip(came, (True, False), strict=True):
        if ids is not None and len(ids) != 5:
            seen = f"With use_cache={use_cache}, generate gives {len(ids)} ids where 5 are asked, after a prompt of 3"
            return Hint("generate-off-by-one", f"{seen}.")
    for use_cache in (True, False):
        none = _once(subject, decoder(), [1, 2, 3], 0, use_cache)
        if none:
            return Hint("generate-off-by-one", f"generate gives {len(none)} ids where 0 are asked.")
    return None


def _total(subject: Asking) -> Hint | None:
    """Prompts of 1, 3 and 5 tokens and five new ones: as many come whatever the prompt, or all together are five."""
    prompts = ([1], [1, 2, 3], [1, 2, 3, 4, 5])
    for use_cache in (True, False):
        found = [_once(subject, decoder(), prompt, 5, use_cache) or [] for prompt in prompts]
        new = [ids[len(p) :] if ids[: len(p)] == p else ids for p, ids in zip(prompts, found, strict=True)]
        for counts in (list(map(len, found)), list(map(len, new))):
            if counts in ([4, 2, 0], [4, 2, 1]):
                seen = f"generate with max_new_tokens = 5 gives 4, 2 and {counts[2]} new ids after prompts of 1, 3 and 5 tokens"
                return Hint("generate-total-length", f"{seen}: it takes 5 for the length of all together.")
    return None


def _ties(subject: Asking) -> Hint | None:
    """Ids i and i + 4 have one embedding: after either, both are equally good."""
    fields = _silent(np.concatenate([4 * np.eye(4), 4 * np.eye(4)]))
    for use_cache in (True, False):
        found = [_once(subject, fields, [token], 6, use_cache) for token in range(4)]
        if all(got == [token + 4] * 6 for token, got in enumerate(found)):
            return Hint("generate-not-greedy", "Of two ids with equal logits, the higher one is taken.")
    return _below_zero(subject)


def _below_zero(subject: Asking) -> Hint | None:
    """Each id is its own successor where attention takes 20 from every logit, as where it takes nothing."""
    takes = np.zeros((8, 8))
    takes[-1, -1] = 1
    embedding = np.concatenate([3 * np.eye(7), np.ones((7, 1))], axis=1)
    layer = {"W_Q": 0 * takes, "W_K": 0 * takes, "W_V": takes, "W_O": -20 * takes}
    low = {"embedding": embedding, "layers": [layer], "n_heads": 1, "n_kv_heads": 1, "positions": "none"}
    for use_cache in (True, False):
        found = [_once(subject, low, [token], 2, use_cache) for token in range(7)]
        if all(ids == [0, 0] for ids in found):
            return Hint(
                "generate-not-greedy", "Where all logits are below 0, generate takes id 0, whichever is the best."
            )
    return None


def _choices(subject: Asking) -> Hint | None:
    """Ids beside forward's largest logits, over a decoder whose logits are close to each other."""
    close = decoder(2, W_O=8.0)
    close = {**close, "embedding": close["embedding"] / 20}
    shared = _calls(subject)
    if shared is not None:
        return shared
    for use_cache in (True, False):
        right = [_greedy(subject, close, prompt) for prompt in PROMPTS]
        found = [_once(subject, close, prompt, NEW, use_cache) for prompt in PROMPTS]
        if any(ids is None for ids in (*right, *found)):
            return None
        if found == right:
            continue
        return _other(subject, close, found, right, use_cache)
    return None


def _greedy(
    subject: Asking, fields: Fields, prompt: list[int], first: Callable[[Array], int] | None = None, n: int = NEW
) -> list[int] | None:
    """Ids by the submission's own forward; `first` chooses the first one from all rows of the prompt."""
    ids: list[int] = []
    for i in range(n):
        rows = forward(subject, fields, prompt + ids)
        if rows is None:
            return None
        second, best = np.sort(rows[-1])[-2:]
        if best - second < 1e-9:
            return None
        ids.append(first(rows) if first is not None and not i else int(rows[-1].argmax()))
    return ids


def _other(
    subject: Asking, close: Fields, found: list[list[int] | None], right: list[list[int] | None], use_cache: bool
) -> Hint:
    """What ids follow that are not the greedy ones."""
    how = f"With use_cache={use_cache}, generate's"
    twice = [_greedy(subject, close, [*prompt, prompt[-1]]) for prompt in PROMPTS]
    if found == twice:
        return Hint("generate-off-by-one", f"{how} ids are those of a prompt whose last token comes twice.")
    if found == [ids and ids[1:] for ids in (_greedy(subject, close, prompt, n=NEW + 1) for prompt in PROMPTS)]:
        return Hint("generate-off-by-one", f"{how} ids begin with the second new one.")
    if use_cache:
        fed = _fed_again(subject, close, found)
        if fed is not None:
            return fed
    for row, which in ((0, "first"), (-2, "last but one")):
        stale = [_greedy(subject, close, prompt, lambda rows, row=row: int(rows[row].argmax())) for prompt in PROMPTS]  # type: ignore[misc]
        if found == stale:
            return Hint("decode-stale-logits", f"{how} first id is that of the prompt's {which} row of logits.")
    if all(ids == [best and best[0]] * NEW for ids, best in zip(found, right, strict=True)):
        return Hint("decode-stale-logits", f"{how} ids are all that of the prompt's last row of logits.")
    least = [_greedy(subject, close, prompt, lambda rows: int(rows[-1].argmin())) for prompt in PROMPTS]
    if [ids and ids[0] for ids in found] == [ids and ids[0] for ids in least]:
        return Hint("generate-not-greedy", f"{how} first id is that of the smallest logit.")
    again = [[_once(subject, close, prompt, NEW, use_cache) for prompt in PROMPTS] for _ in range(3)]
    clear = {**close, "embedding": close["embedding"] * 200}
    sure = [prompt for prompt in PROMPTS if _clear(subject, clear, prompt)]
    greedy = bool(sure) and all(_once(subject, clear, p, NEW, use_cache) == _greedy(subject, clear, p) for p in sure)
    if greedy and any(ids != found for ids in again):
        seen = (
            f"{how} ids differ from call to call where logits are close, and are right where one is by far the largest"
        )
        return Hint("generate-not-greedy", f"{seen}: they are drawn.")
    if sure and not greedy and any(ids != found for ids in again):
        return Hint(None, f"{how} ids for the same prompt differ from call to call.")
    return Hint(None, f"{how} ids are not those of forward's largest logits.")


def _fed_again(subject: Asking, fields: Fields, found: list[list[int] | None]) -> Hint | None:
    """Ids of a cache that is given the whole text again for every token, or the prompt twice."""
    again, twice = [], []
    for prompt in PROMPTS:
        ids: list[int] = []
        seen: list[int] = []
        for _ in range(NEW):
            seen += prompt + ids
            rows = forward(subject, fields, seen)
            if rows is None:
                return None
            ids.append(int(rows[-1].argmax()))
        again.append(ids)
        twice.append(_greedy(subject, fields, prompt + prompt))
    if found == again:
        return Hint(
            "cache-appended-twice",
            "generate's ids are those of a cache that is given the whole text again for every token.",
        )
    if found == twice:
        return Hint("cache-appended-twice", "generate's ids are those of a cache that holds the prompt twice.")
    return None


def _clear(subject: Asking, fields: Fields, prompt: list[int]) -> bool:
    """Whether one id is by far the best at every step."""
    ids = _greedy(subject, fields, prompt)
    rows = forward(subject, fields, prompt + ids) if ids is not None else None
    if rows is None:
        return False
    second, best = np.sort(rows[len(prompt) - 1 : -1], axis=1)[:, -2:].T
    return bool((best - second).min() > CLEARLY)


def _calls(subject: Asking) -> Hint | None:
    """Calls of which each is right where nothing was asked before, and not after one another; none leaves room for chance."""
    fields = decoder(2, W_O=16.0)
    fields = {**fields, "embedding": 6 * fields["embedding"]}
    if not isinstance(subject, LocalSubject) or not all(_clear(subject, fields, prompt) for prompt in PROMPTS):
        return None
    right = [_greedy(subject, fields, prompt) for prompt in PROMPTS]
    if None in right or _in_turn(subject, fields, PROMPTS) == right:
        return None
    if any(_in_turn(subject, fields, (prompt,)) != [ids] for prompt, ids in zip(PROMPTS, right, strict=True)):
        return None
    seen = "A first call of generate gives the right ids, whatever the prompt, and one that comes after it does not"
    return Hint("cache-shared-state", f"{seen}: something of the first is kept.")


def _in_turn(subject: LocalSubject, fields: Fields, prompts: tuple[list[int], ...]) -> list[list[int] | None]:
    """The ids for these prompts, one after the other, from modules that are loaded afresh."""
    with subject.lend({}) as fresh:
        made = fresh.keep("@model", fields)
        return [generate(fresh, made.value, prompt, NEW) for prompt in prompts] if made.ok else []
