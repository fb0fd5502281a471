"""Every sentence a student reads about a fault, keyed by the codes of the catalogue of diagnoses.

`says` is what is wrong, one idea in plain words; `look` is where to look; `short` is a title; `chapter` is the section
that tells how it should be. Sentences never speak of the judge. A course overrides them in its rubric.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """The words for one code."""

    short: str
    says: str
    look: str
    chapter: str


_SOFTMAX = {
    "softmax-wrong-axis": Message(
        "Softmax over the queries",
        "The softmax runs over the query axis: each column sums to 1, and the rows do not.",
        "The axis of the maximum, the exponentials' sum and the division in softmax, and the axis that attention "
        "passes to it. Each query shares out one unit of attention over the keys, and keys are the last axis.",
        "7.2, step 4",
    ),
    "softmax-whole-matrix": Message(
        "Softmax over the whole table",
        "The softmax is taken over all entries of the score table at once, so that the table sums to 1 and not each "
        "row.",
        "The sum that you divide by: it needs an axis, and keepdims=True.",
        "7.2, step 4",
    ),
    "softmax-positional-axis": Message(
        "An axis counted from the front",
        "An axis is written as a fixed number, which is right for one number of dimensions alone.",
        "Axis numbers such as 1 or 2 in softmax, and transposes with fixed axes. Counted from the end (-1, -2) they "
        "hold however many batch axes come first.",
        "7.2, step 4",
    ),
    "softmax-ignores-axis": Message(
        "The axis argument has no effect",
        "softmax(x, axis=…) uses the same axis whatever it is asked for.",
        "Every place in softmax where an axis is written: the maximum, the sum. Both take the argument.",
        "7.2, step 4",
    ),
    "softmax-overflow": Message(
        "Exponentials overflow",
        "Large scores give infinity or NaN, because the exponentials are taken without subtracting the row's "
        "maximum first.",
        "The line with exp: subtract the maximum along the softmax's axis before it. The weights stay the same, and "
        "no exponent is above 0.",
        "7.9, step 1",
    ),
    "softmax-global-max": Message(
        "One maximum for all rows",
        "One maximum is subtracted from the whole array, so a row far below it is turned to 0/0.",
        "The call of max: it needs the softmax's axis and keepdims=True, so that each row has its own maximum.",
        "7.9, step 1",
    ),
    "softmax-max-wrong-axis": Message(
        "Maximum along another axis",
        "The maximum is taken along another axis than the sum, so different amounts are subtracted inside one row.",
        "The axis of max and the axis of sum in softmax: they must be the same.",
        "7.2, step 4",
    ),
    "softmax-clamped-max": Message(
        "The maximum is never below 0",
        "The amount subtracted is never below 0, so a row of very low scores turns to 0/0.",
        "An initial value or a maximum with 0 where the row's maximum is found. Subtract the row's maximum, "
        "negative or not.",
        "7.9, step 1",
    ),
    "softmax-missing-keepdims": Message(
        "Row sums of the wrong shape",
        "The exponentials are divided by sums that line up with the columns and not with the rows.",
        "The sum (or the maximum) in softmax: without keepdims=True its axis is gone, and broadcasting matches it "
        "with the wrong one. On a square table this gives no error.",
        "7.2, step 4",
    ),
    "softmax-argmax": Message(
        "All weight on one key",
        "The whole weight of a row goes to its largest score.",
        "The place where weights are made: softmax shares weight out smoothly, exp(score) over the row's sum; it "
        "does not pick a winner.",
        "7.1",
    ),
    "softmax-epsilon": Message(
        "Something is added to the row sum",
        "A constant is added to the sum that the exponentials are divided by, so rows sum to less than 1.",
        "The denominator of softmax. After the row maximum is subtracted the sum is at least 1, and needs no "
        "protection from 0.",
        "7.2, step 4",
    ),
    "softmax-unnormalised": Message(
        "Never divided by the row sum",
        "The weights are exponentials that are not divided by their row's sum.",
        "The last line of softmax, or whether its result is the one that is used.",
        "7.2, step 4",
    ),
    "softmax-wrong-base": Message(
        "Another base than e",
        "The powers are taken of another base than e.",
        "The exponential in softmax: np.exp, and neither exp2 nor 10 ** x.",
        "7.2, step 4",
    ),
    "softmax-not-applied": Message(
        "No softmax",
        "The raw scores are used, or returned, as weights.",
        "Between the scores and the average of the values: the softmax is missing, or its result is not what is used and "
        "returned.",
        "7.2, step 4",
    ),
    "softmax-sum-unshifted": Message(
        "The sum and the exponentials are shifted differently",
        "The maximum is subtracted in the exponentials but not in their sum (or the other way round), so rows do not sum "
        "to 1.",
        "The two places where exp is taken in softmax: compute the shifted exponentials once, and divide them by their "
        "own sum.",
        "7.2, step 4",
    ),
    "softmax-plus-one": Message(
        "A 1 is added to the row sum",
        "The row sum has an extra term 1 (or exp(-max)) in it, as if every row had one more key, so rows sum to less "
        "than 1.",
        "The denominator of softmax: the sum of the exponentials, and nothing beside it.",
        "7.2, step 4",
    ),
}

_SCORES = {
    "scale-missing": Message(
        "Scores are not scaled",
        "The scores are not divided by the square root of the key width d_k.",
        "Just after Q·Kᵀ, before the mask and the softmax.",
        "7.2, step 3",
    ),
    "scale-by-dk": Message(
        "Divided by d_k",
        "The scores are divided by d_k itself (or twice by its square root).",
        "The divisor of the scores: the square root of d_k, once.",
        "7.2, step 3",
    ),
    "scale-inverted": Message(
        "Multiplied where it should divide",
        "The scores are multiplied by the square root of d_k.",
        "The operator before the square root: dividing keeps the scores' spread near 1 however wide the heads are.",
        "7.2, step 3",
    ),
    "scale-by-wrong-width": Message(
        "Scaled by another size",
        "The scores are divided by the square root of a size that is not the key width d_k.",
        "Which axis of which array the size is read from: d_k is the last axis of Q and of K.",
        "7.2, step 3",
    ),
    "scale-after-softmax": Message(
        "Scaled too late",
        "The scaling comes after the softmax, on the weights or on the output, and not on the scores.",
        "The order of the lines: scores, scale, mask, softmax, weighted average.",
        "7.2, step 3",
    ),
    "scale-ignored": Message(
        "The scale argument has no effect",
        "An explicit scale= is not used.",
        "The line that picks the scale: 1/sqrt(d_k) stands in only where scale is None.",
        "7.9, step 1",
    ),
    "scale-compounded": Message(
        "Two scales at once",
        "An explicit scale= is multiplied onto 1/sqrt(d_k), where it should replace it.",
        "The line that picks the scale: either the argument, or 1/sqrt(d_k).",
        "7.9, step 1",
    ),
    "scores-transposed": Message(
        "Queries and keys change places",
        "The score table is transposed: its rows belong to keys, and its columns to queries.",
        "The product of Q and K (Q first, K transposed), and the order in which W_Q and W_K are used. Row i holds "
        "the scores of query i.",
        "7.2, step 2",
    ),
    "weights-transposed": Message(
        "Weights are transposed",
        "The values are averaged with the transposed weights.",
        "The last product: weights @ V, where row i of the weights gives row i of the output.",
        "7.2, step 5",
    ),
    "values-swapped": Message(
        "Something else is averaged than V",
        "The average is taken over keys (or queries) and not over the values.",
        "The last product, and the order of what project returns and is given: queries, keys, values.",
        "7.2, step 5",
    ),
    "values-unprojected": Message(
        "The input is averaged unprojected",
        "The average is taken over X itself, before W_V.",
        "What the weights are multiplied with: V = X·W_V.",
        "7.2, step 1",
    ),
    "projection-transposed": Message(
        "Projected with the transposed weights",
        "X is multiplied with the transpose of a weight matrix.",
        "The products in project: X @ W. A weight matrix has the shape (d, width), so no transpose is needed; on a "
        "square one NumPy cannot tell.",
        "7.2, step 1",
    ),
    "batch-unsupported": Message(
        "Two dimensions only",
        "Right for one sequence, but an error or a wrong result once batch axes come first.",
        "Transposes (K.T turns every axis around), shapes unpacked into two names, and products that are not @. "
        "Work on the last two axes: np.swapaxes(K, -1, -2).",
        "7.3",
    ),
    "batch-mixed": Message(
        "Batch items get mixed",
        "A batch item is computed from another item's keys, values or mask.",
        "Reshapes, fixed indices such as [0], and masks: every item of the batch has its own.",
        "7.3",
    ),
    "input-mutated": Message(
        "An argument is changed",
        "The call changes the contents of an array that it was given.",
        "Operators that work in place (-=, /=, out=, assignment into a slice) on an argument, or on a view of it. "
        "Make a new array.",
        "7.9, step 1",
    ),
    "stale-result": Message(
        "A remembered result",
        "The call returns an earlier result though its input has changed.",
        "Caches, lru_cache, module-level dictionaries and global variables: nothing may be remembered between calls.",
        "7.9, step 1",
    ),
    "not-deterministic": Message(
        "Two calls, two results",
        "The same call gives different results.",
        "Random numbers: noise or dropout that is still on, or memory that is used before it is filled (np.empty).",
        "7.9, step 3",
    ),
    "weights-missing": Message(
        "Only the output is returned",
        "Only the output comes back; the weights are asked for too.",
        "The return line: output, weights.",
        "7.9, step 1",
    ),
    "output-order": Message(
        "Returned in the other order",
        "The weights come back first and the output second.",
        "The return line: output, weights.",
        "7.9, step 1",
    ),
    "narrow-arithmetic": Message(
        "Computed in a narrower dtype on the way",
        "The result is right to the precision of a narrower dtype only: something is rounded on the way.",
        "Casts such as astype(np.float32), roots and constants made in float32, arrays made with a dtype of their own. "
        "Compute in the dtype of the inputs.",
        "7.9, step 1",
    ),
    "transpose-permutation": Message(
        "K.transpose(-2, -1) is PyTorch's spelling",
        "In NumPy, transpose(-2, -1) lists the new order of all axes: it changes nothing in two dimensions and is an "
        "error in more.",
        "The transpose of K: np.swapaxes(K, -1, -2) exchanges the last two axes however many come before them.",
        "7.2, step 2",
    ),
    "square-only": Message(
        "Right only for as many keys as queries",
        "The result is right where there are as many keys as queries, and an error or wrong elsewhere.",
        "Loops, shapes and indices that use one size for both: n queries come from Q, m keys from K.",
        "7.2, step 2",
    ),
}

_MASKS = {
    "mask-ignored": Message(
        "The mask has no effect",
        "Hidden keys get weight as though there were no mask.",
        "Whether the mask reaches the scores: is it passed on, and is the masked array the one that goes into the "
        "softmax?",
        "7.5",
    ),
    "mask-inverted": Message(
        "The mask is read the other way round",
        "True is treated as “hide”, but True means “may attend”.",
        "The condition that fills the scores: fill where the mask is False.",
        "7.9, step 3",
    ),
    "mask-after-softmax": Message(
        "Masked too late",
        "Weights are set to 0 after the softmax, so the rest of a row no longer sums to 1.",
        "The order of the lines: the mask goes onto the scores, before the softmax.",
        "7.5",
    ),
    "mask-multiplied": Message(
        "Scores multiplied by the mask",
        "Hidden scores are set to 0, and a score of 0 still gets weight.",
        "How the mask is applied: a hidden score must be so low that its exponential is 0, -inf say.",
        "7.5",
    ),
    "mask-added": Message(
        "The mask is added to the scores",
        "The boolean mask is added to the scores as 0 and 1, which shifts them by 1 and hides nothing.",
        "How the mask is applied: np.where(mask, scores, -np.inf), not a sum.",
        "7.5",
    ),
    "mask-not-broadcast": Message(
        "Only a mask of the full shape works",
        "A mask that has to be broadcast, of shape (n, m) for a batch say, is an error or is applied wrongly.",
        "Conditions on the mask as a whole (`if mask:` – ask `mask is not None`), boolean indexing with the mask, "
        "and masks of fixed shapes. np.where broadcasts.",
        "7.9, step 1",
    ),
    "mask-finite-fill": Message(
        "The fill value is too small",
        "Hidden scores are filled with a number that large scores can come near, so hidden keys leak through.",
        "The value that replaces hidden scores: -np.inf, or about -1e9 and below.",
        "7.5",
    ),
    "mask-transposed": Message(
        "The mask is transposed",
        "The mask is applied with rows and columns exchanged.",
        "Any .T or swapaxes on the mask: mask[i, j] says whether query i may attend to key j.",
        "7.5",
    ),
    "causal-mask-strict": Message(
        "A token cannot see itself",
        "The causal mask hides the diagonal, so a token does not attend to itself.",
        "The comparison or the diagonal offset (k=) in causal_mask: key position ≤ query position.",
        "7.5",
    ),
    "causal-mask-lookahead": Message(
        "A token sees ahead",
        "The causal mask lets a token see one or more tokens after it.",
        "The comparison or the diagonal offset (k=) in causal_mask: key position ≤ query position.",
        "7.5",
    ),
    "causal-mask-inverted": Message(
        "The causal mask is inverted",
        "causal_mask is True where a token may not look.",
        "np.triu where np.tril is meant, or a missing (or extra) negation: True means “may attend”.",
        "7.5",
    ),
    "causal-mask-upper-left": Message(
        "Aligned to the first positions",
        "With more keys than queries, the queries are taken for the first positions, and they are the last ones.",
        "causal_mask with n_keys above n_queries: query i is at position n_keys − n_queries + i.",
        "7.6",
    ),
}

_POSITIONS = {
    "positions-halves": Message(
        "Sines first, cosines after",
        "The sines fill the first half of the columns and the cosines the second half.",
        "How columns are filled in sinusoidal_positions: sine and cosine alternate, even columns and odd columns.",
        "7.4",
    ),
    "positions-sin-cos-swapped": Message(
        "Sine and cosine change places",
        "Even columns hold the cosine, and odd columns the sine.",
        "Which slice (0::2 or 1::2) gets which function.",
        "7.4",
    ),
    "positions-from-one": Message(
        "Counting from 1",
        "The first position is taken as 1, and it is 0.",
        "The range of positions in sinusoidal_positions.",
        "7.4",
    ),
    "positions-wrong-frequency": Message(
        "The frequencies are off",
        "The frequencies of the columns are not 10000^(−2i/d).",
        "The exponent in sinusoidal_positions: i counts pairs of columns, so a pair shares one frequency; the base "
        "is 10000 and the width is d.",
        "7.4",
    ),
    "positions-ignored": Message(
        "Positions are left out",
        "The decoder does not add positions (or decoding does not) for a model that asks for sinusoidal ones.",
        "Where tokens are embedded, in every function that does so: model.positions decides.",
        "7.4",
    ),
    "positions-misplaced": Message(
        "Positions in the wrong place",
        "Positions are added for a model that asks for none, or more than once.",
        "Where positions are added: once, to the embedding, before the first layer, and only if model.positions is "
        '"sinusoidal".',
        "7.4",
    ),
}

_CACHE = {
    "cache-not-appended": Message(
        "A decoded token is not stored",
        "The key and value of a decoded token are not in the cache afterwards, so later tokens cannot see it.",
        "The append in decode_step, for every layer.",
        "7.6",
    ),
    "cache-appended-twice": Message(
        "Stored twice",
        "A token's key and value are stored twice.",
        "Every call of append on the way of one token: in prefill, in decode_step, and in what both call.",
        "7.6",
    ),
    "cache-missing-self": Message(
        "The new token does not see itself",
        "In a decode step the new token attends to the earlier tokens only.",
        "The order in decode_step: append first, then read keys and values, then attend.",
        "7.6",
    ),
    "decode-self-twice": Message(
        "The new token is seen twice",
        "In a decode step the new token's key and value take part twice.",
        "Whether keys(layer) already holds the new token when it is put beside them again.",
        "7.6",
    ),
    "cache-layer-mixed": Message(
        "Layers are mixed up",
        "A layer uses another layer's keys, values or input, or some layers are not stored.",
        "The layer index at every append, keys and values, and what each layer is given as x.",
        "7.6",
    ),
    "cache-position-reset": Message(
        "A decode step at the wrong position",
        "A decode step embeds its token at another position than the one it has in the text.",
        "The position in decode_step: it is the number of tokens in the cache before this one.",
        "7.6",
    ),
    "cache-overwritten": Message(
        "Later entries replace earlier ones",
        "A later append is written over entries that are already there.",
        "Where append writes to: behind the entries that this layer holds.",
        "7.6",
    ),
    "cache-prepended": Message(
        "New entries come first",
        "New entries are put in front of the old ones.",
        "The order of the parts that append joins: old, then new.",
        "7.6",
    ),
    "cache-truncated": Message(
        "Entries get lost",
        "Some stored entries are dropped, or are not attended to.",
        "Slices and windows in keys, values and append: all tokens so far take part.",
        "7.6",
    ),
    "cache-padding-attended": Message(
        "Empty slots take part",
        "Slots that were never filled are returned and attended to.",
        "keys and values: they return the first `length` entries of the layer, not the whole store.",
        "7.6",
    ),
    "cache-length-wrong": Message(
        "The length is counted wrongly",
        "len(cache) is not the number of tokens that every layer holds.",
        "How the length is counted: each layer has its own, and the cache's is the least of them.",
        "7.6",
    ),
    "cache-wrong-dtype": Message(
        "Held in another dtype",
        "Keys or values are held in another dtype than the cache was asked for.",
        "Where storage is made and where arrays are joined: cast to the dtype of the cache.",
        "7.6",
    ),
    "cache-given-ignored": Message(
        "The given cache is not used",
        "A cache that is passed to prefill is replaced by a new one.",
        "`cache or KVCache(…)`: an empty cache counts as false. Ask `cache is None`.",
        "7.6",
    ),
    "cache-keys-values-swapped": Message(
        "Keys read as values",
        "Keys are read where values belong, or stored in their place.",
        "The order of k and v in append, and what keys and values return.",
        "7.6",
    ),
    "cache-shared-state": Message(
        "Caches share their storage",
        "Two caches, two layers or two calls of generate write to the same storage.",
        "Storage made once for all: class attributes, default arguments ([] or {}), [x] * n_layers, module-level "
        "variables.",
        "7.6",
    ),
    "cache-wrong-axis": Message(
        "Appended along the wrong axis",
        "New entries are joined along the head or feature axis, not along the tokens.",
        "The axis of concatenate or stack in append: tokens are the first axis.",
        "7.6",
    ),
    "cache-aliases-input": Message(
        "The caller's array is kept",
        "The cache keeps the array that it was given, so that it changes when the caller changes it.",
        "append: copy what comes in (np.array(k), not np.asarray(k) or a view of it).",
        "7.6",
    ),
    "cache-prefill-unmasked": Message(
        "The prompt is not masked",
        "In prefill, prompt tokens see the tokens after them.",
        "The mask in prefill: causal, as in forward.",
        "7.6",
    ),
    "cache-chunk-misaligned": Message(
        "Later chunks start from 0",
        "When a prompt comes in chunks, a later chunk gets a mask or positions as though it were the first.",
        "prefill with a cache that holds tokens: positions go on from len(cache), and the mask has all keys so far "
        "as columns.",
        "7.6",
    ),
    "cache-head-order": Message(
        "Heads are laid out wrongly",
        "Query heads read the wrong key/value heads, or heads are split or merged in the wrong order.",
        "The reshape between (n, heads·d_head) and heads: heads are consecutive blocks of columns, so a transpose "
        "goes with it; query head i reads key/value head i // (n_heads // n_kv_heads).",
        "7.3",
    ),
    "cache-unbounded": Message(
        "The capacity is not kept",
        "More tokens than the capacity are taken, or part of an append that does not fit is stored.",
        "The check at the start of append (and of prefill, before any layer is changed): ValueError, and nothing "
        "stored.",
        "7.6",
    ),
    "cache-capacity-off-by-one": Message(
        "The capacity is off by one",
        "The append that fills the cache exactly is refused, or one token more is taken, or another exception than "
        "ValueError says that it is full.",
        "The comparison with the capacity: length + new > capacity raises ValueError.",
        "7.6",
    ),
    "cache-unused": Message(
        "The cache is not used",
        "With use_cache=True every step still recomputes the whole prefix.",
        "The loop of generate: one prefill, then one decode_step a token.",
        "7.6",
    ),
    "use-cache-ignored": Message(
        "use_cache=False still uses the cache",
        "With use_cache=False the cache is used all the same, so there is nothing to compare with.",
        "The branch in generate: without the cache, each step calls forward on the whole prefix.",
        "7.9, step 8",
    ),
    "cache-bytes-formula": Message(
        "The bytes do not add up",
        "The number of bytes of the cache is off by a factor.",
        "The product: 2 (K and V) · layers · key/value heads · head width · tokens · bytes a value; tokens held, "
        "not the capacity.",
        "7.6",
    ),
    "decode-residual-missing": Message(
        "The residual add is off",
        "The layer's result is not added to the layer's own input.",
        "The last line of a layer: x = x + attention(x) @ W_O, in forward, prefill and decode_step alike.",
        "7.3",
    ),
    "decode-extra-step": Message(
        "A step that the model does not have",
        "Something is computed that the given model does not have: a normalisation, a scaled embedding, "
        "probabilities in place of logits.",
        "The text of model.py: embedding, layers with a residual, and x @ embedding.T.",
        "7.9, step 8",
    ),
    "decode-stale-logits": Message(
        "Logits of another position",
        "The logits of another position than the newest token's are returned or read.",
        "The index of the row that is returned or that the next token is chosen from: the last one.",
        "7.6",
    ),
    "generate-off-by-one": Message(
        "A token too many or too few",
        "generate returns another number of new tokens, returns the prompt with them, or feeds a token twice.",
        "The loop's range and the returned slice: exactly max_new_tokens new ids; prefill already gives the first.",
        "7.9, step 8",
    ),
    "generate-total-length": Message(
        "max_new_tokens taken for the total length",
        "generate stops when prompt and new tokens together number max_new_tokens, so a long prompt gets too few new "
        "ids, or none.",
        "The loop's condition: count the new ids, not the length of the whole sequence.",
        "7.9, step 8",
    ),
    "generate-not-greedy": Message(
        "Not the greedy token",
        "The token chosen is not the one with the largest logit (the lowest id where logits are equal), or "
        "generation stops early.",
        "The choice of the next token: np.argmax, no sampling, no stop token.",
        "7.9, step 8",
    ),
}

_EXPERIMENTS = {
    "sdpa-mask-inverted": Message(
        "Masks of opposite meaning",
        "The two sides are compared under masks of opposite meaning.",
        "The mask of each side: True means “may attend” in yours and in PyTorch's.",
        "7.9, step 3",
    ),
    "sdpa-scale-mismatch": Message(
        "Compared at different scales",
        "The two sides are computed with different scales.",
        "The scale= of each side: both default to 1/sqrt(d_k).",
        "7.9, step 3",
    ),
    "sdpa-self-comparison": Message(
        "Compared with itself",
        "Both sides come from the same implementation, or the difference is a constant.",
        "Where each side is computed: one by your attention.py, one by PyTorch.",
        "7.9, step 3",
    ),
    "sdpa-wrong-statistic": Message(
        "Not the largest difference",
        "A mean or a signed difference is reported; the largest absolute one is asked for.",
        "The line that makes one number of two arrays: max of abs.",
        "7.9, step 3",
    ),
    "sdpa-wrong-dtype": Message(
        "Another dtype than asked",
        "The comparison is computed in another dtype than the one asked for.",
        "Where inputs are made, and casts on the way: both sides get inputs of the asked dtype.",
        "7.9, step 3",
    ),
    "sdpa-wrong-inputs": Message(
        "Inputs of another shape",
        "The inputs are not of the shape that the row names, or the two sides get different inputs.",
        "Where inputs are made: (batch, heads, n, d), the same arrays for both sides.",
        "7.9, step 3",
    ),
    "sdpa-backend": Message(
        "A backend in other words",
        "The backend is named in words of your own; a member of torch.nn.attention.SDPBackend says it without doubt.",
        "What is entered as `backend` in each row.",
        "7.9, step 3",
    ),
    "equivariance-not-unshuffled": Message(
        "Never put back in order",
        "The outputs are compared without undoing the shuffle (or it is undone with the permutation itself).",
        "How the outputs are put back: index with np.argsort(permutation), the inverse.",
        "7.4",
    ),
    "equivariance-positions-travel": Message(
        "Positions move with their tokens",
        "Positions are shuffled along with the tokens, so the gap stays 0.",
        "When positions are added: after the shuffle, so that a slot keeps its position.",
        "7.4",
    ),
    "equivariance-mask-travels": Message(
        "The mask moves with the tokens",
        "The mask is shuffled along with the tokens, so that a causal mask seems to make no difference.",
        "The mask of the shuffled run: the same as of the other; it belongs to the slots.",
        "7.9, step 4",
    ),
    "invariance-not-causal": Message(
        "No causal mask in the experiment",
        "The experiment runs without a causal mask.",
        "The mask that append_invariance_gap passes, in both runs.",
        "7.9, step 7",
    ),
    "gap-constant": Message(
        "The gap is not measured",
        "The gap is the same whatever attention computes: a constant, or a run compared with itself.",
        "The two runs that are subtracted: each must call attention on its own input.",
        "7.9, step 4",
    ),
    "timing-no-warmup": Message(
        "Warm-up calls are timed",
        "Each length's first calls, which are slower, are among the times.",
        "The loop over ns in time_attention: `warmup` calls for every n, before the first clock reading that counts.",
        "7.9, step 5",
    ),
    "timing-not-synchronised": Message(
        "The clock is read too early",
        "The clock is read before the work is finished.",
        "Every clock reading that counts: call synchronize() before it, at the start and at the end.",
        "7.9, step 5",
    ),
    "timing-not-median": Message(
        "Not the median",
        "A mean, a minimum or a sum is returned; the median of the repeats is asked for.",
        "The line that makes one number of the repeats.",
        "7.9, step 5",
    ),
    "timing-includes-setup": Message(
        "Making the inputs is timed",
        "Making the inputs falls between the two clock readings.",
        "What stands between the clock readings: one call of attend, and nothing else.",
        "7.9, step 5",
    ),
    "timing-wrong-clock": Message(
        "Another clock",
        "The clock that is passed in is not the one that is read.",
        "Calls of time.perf_counter or time.time: read clock() everywhere.",
        "7.9, step 5",
    ),
    "fit-not-loglog": Message(
        "Not fitted on log-log axes",
        "The line is fitted to the values themselves, or to the logarithm of one axis only.",
        "What goes into the fit: log n and log seconds.",
        "7.9, step 5",
    ),
    "fit-inverted": Message(
        "The slope is upside down",
        "The slope is of log n on log seconds.",
        "The order of the arguments of the fit: x is log n, y is log seconds.",
        "7.9, step 5",
    ),
    "fit-wrong-output": Message(
        "Not the slope of the fit",
        "What is returned is not the slope that was asked for: the intercept, a slope between two bases, a mean of local slopes, "
        "or the slope of other points.",
        "Which coefficient is returned, over which points, and whether both axes use the same logarithm.",
        "7.9, step 5",
    ),
    "wrong-unit": Message(
        "Another unit",
        "The number is in another unit than asked: seconds and bytes are.",
        "Factors such as 1000, 1024 or 8 on the way to the result.",
        "7.9, step 5",
    ),
    "cost-superquadratic": Message(
        "Time grows faster than n²",
        "Doubling n costs clearly more than four times the time.",
        "Loops inside loops over tokens, and arrays rebuilt at every step.",
        "7.6",
    ),
    "cost-interpreted-loop": Message(
        "A Python loop over rows",
        "Right, but a Python loop runs over rows or elements where one matrix product would do.",
        "Loops over tokens or heads in attention.",
        "7.2",
    ),
    "cost-growing-copies": Message(
        "The cache is copied at every append",
        "Right, but every append copies the whole cache.",
        "concatenate in append: storage of `capacity` tokens made once needs no copies.",
        "7.6",
    ),
    "speedup-faked": Message(
        "The slow side is slowed down",
        "The path without the cache does more than recompute: it waits, or works to no purpose.",
        "What generate does under use_cache=False besides forward.",
        "7.9, step 8",
    ),
    "memory-formula": Message(
        "The bytes of the scores are off",
        "The number of bytes of the score table is off by a factor.",
        "The product in score_bytes: heads · n · n · itemsize.",
        "7.6",
    ),
    "memory-not-peak": Message(
        "Not the peak",
        "What is reported is not the peak while fn ran: it is held at the end, was held before, or is the peak of an earlier call.",
        "What is read before, during and after fn(): peak minus what was held before. A peak has to be reset, and ru_maxrss "
        "cannot be.",
        "7.9, step 6",
    ),
    "search-linear": Message(
        "Too many questions",
        "largest_n asks fits about as often as n is large; a number like log n is enough.",
        "How n goes on from one question to the next: double while it fits, then halve the interval.",
        "7.9, step 6",
    ),
    "search-off-by-one": Message(
        "One too many, or a power of two only",
        "largest_n returns an n that does not fit, or stops before the largest one that does.",
        "The end of the search: the last n that fitted, once n + 1 is known not to.",
        "7.9, step 6",
    ),
    "search-memoryerror": Message(
        "MemoryError gets out",
        "A MemoryError that fits raises ends the search, and it only means that this n does not fit.",
        "Every call of fits in largest_n: MemoryError counts as False.",
        "7.9, step 6",
    ),
    "search-bounds": Message(
        "A bound is not kept",
        "start is never asked about, or limit is passed or never reached.",
        "The first question (start; 0 comes back if it does not fit) and the last one (limit, which counts).",
        "7.9, step 6",
    ),
    "decode-prefill-mixed": Message(
        "Prefill and decoding are mixed",
        "Prefill's time is counted in the first decode step, or is missing.",
        "The clock readings around prefill: it has its own time, and the first decode step starts after it.",
        "7.9, step 8",
    ),
    "decode-cumulative": Message(
        "Not one time a step",
        "The times are counted from the start, or are one average repeated; one time a step is asked for.",
        "The two clock readings of a step: both belong to this step alone.",
        "7.9, step 8",
    ),
}

_SUBMISSION = {
    "file-missing": Message(
        "A file is missing",
        "A file that the lab asks for is not there.",
        "The file's name, and the folder that was handed in. make_report.py makes what belongs in report/.",
        "7.9",
    ),
    "name-missing": Message(
        "A function is missing",
        "A file does not define a name that the lab asks for.",
        "The spelling of the function's or class's name.",
        "7.9",
    ),
    "signature-mismatch": Message(
        "Other arguments than asked",
        "A function cannot be called with the arguments that the lab asks for.",
        "The parameters' number, order and names; optional ones are passed by name.",
        "7.9",
    ),
    "import-failed": Message(
        "The file does not import",
        "Importing the file ends with an exception, so nothing in it can be judged.",
        "The line that is named. Importing the file from a terminal shows the whole error.",
        "7.9",
    ),
    "forbidden-library": Message(
        "A library that is not allowed here",
        "attention.py uses a library that would do the lab's work; it is NumPy only.",
        "The imports of attention.py and of what it imports. PyTorch comes in at step 3, in experiments.py.",
        "7.9, step 1",
    ),
    "wrong-shape": Message(
        "Another shape",
        "The result has another shape than it should have.",
        "The axes of the last operation, and what the function returns.",
        "7.9",
    ),
    "wrong-dtype": Message(
        "Another dtype",
        "The result has another dtype than it should have.",
        "Casts and constants on the way: floats in, floats out, and never narrower than the input.",
        "7.9",
    ),
    "not-finite": Message(
        "NaN or infinity",
        "The result holds NaN or infinity where all inputs are finite.",
        "Divisions by 0, exponentials of large numbers, -inf minus -inf, and 0 times -inf (a mask multiplied by -inf).",
        "7.9, step 1",
    ),
    "not-an-array": Message(
        "Something else is returned",
        "The function returns another number or another kind of values than it should.",
        "The return line: how many values it gives, and which. Without a return line a function gives None.",
        "7.9",
    ),
    "raised": Message(
        "An exception",
        "The call ended with an exception.",
        "The line of your own code that is named.",
        "7.9",
    ),
    "timeout": Message(
        "Too slow",
        "The call reached the time limit.",
        "Loops that do not end, waiting for input, and work that grows faster than it needs to.",
        "7.9",
    ),
    "out-of-memory": Message(
        "Too much memory",
        "The call reached the memory limit.",
        "Arrays larger than the score table, copies, and lists that grow.",
        "7.9, step 6",
    ),
    "crashed": Message(
        "The process ended",
        "The call ended the whole process.",
        "Calls of exit, and recursion without an end.",
        "7.9",
    ),
    "output-flood": Message(
        "Too much output",
        "The call printed more than is kept.",
        "print in loops.",
        "7.9",
    ),
    "name-mapped": Message(
        "Another name",
        "A function of the lab has another name here, and adapters.toml says which.",
        "Nothing is wrong with it: the function is judged by the name that you gave it.",
        "7.9",
    ),
    "adapters-unusable": Message(
        "A line of adapters.toml that cannot be used",
        "adapters.toml holds something that maps no function of the lab.",
        "The line that is named: a table for the file, [attention], and below it the lab's name = your own.",
        "7.9",
    ),
    "blocked-by": Message(
        "Not judged yet",
        "A check that this one depends on did not pass.",
        "Fix what that check shows first.",
        "7.9",
    ),
    "tampering": Message(
        "Reached past its own folder",
        "The submission tried to reach past the process that it runs in.",
        "For staff.",
        "7.9",
    ),
    "unrecognised": Message(
        "Wrong, in a way that has no name here",
        "The result is wrong, and fits none of the known mistakes.",
        "The smallest input found on which it shows: work it out by hand beside your code.",
        "7.9",
    ),
}

GROUPS: dict[str, dict[str, Message]] = {
    "Softmax": _SOFTMAX,
    "Scores and values": _SCORES,
    "Masks": _MASKS,
    "Positions": _POSITIONS,
    "The cache": _CACHE,
    "Experiments": _EXPERIMENTS,
    "The submission itself": _SUBMISSION,
}
"""The codes as the reference page has them."""

MESSAGES: dict[str, Message] = {code: message for group in GROUPS.values() for code, message in group.items()}
