"""Attention in NumPy: steps 1, 2, 4 and 7. NumPy only: no attention library, and no torch in this file.

Shapes: n queries, m keys, d model width, d_k key width, d_v value width; `...` stands for any number of leading
batch axes (none, one or more). So Q.shape[-1] is d_k whatever stands in front, and Q.shape[1] is not. Inputs are
float32 or float64.

Replace every `raise NotImplementedError(...)`, top to bottom: later functions use earlier ones.
"""

import numpy as np


def softmax(x, axis=-1):
    """Exponentials divided by their sum along `axis`. Any shape in, the same shape out.

        softmax(x)_j = exp(x_j) / sum_k exp(x_k)                                        (section 7.2, step 4)

    exp(1000) is infinity, so subtract the largest entry along `axis` first: it changes nothing in the result (why?).
    The result is finite and sums to 1 for entries up to 1e6. `x` itself is left as it was. keepdims=True helps.
    """
    raise NotImplementedError(
        "Write softmax: subtract the maximum along axis, exponentiate, divide by the sum along axis."
    )


def project(X, W_Q, W_K, W_V):
    """Queries, keys and values of every token.

        Q = X W_Q        K = X W_K        V = X W_V                                      (section 7.2, step 1)

    X (..., n, d), W_Q and W_K (d, d_k), W_V (d, d_v)  ->  Q (..., n, d_k), K (..., n, d_k), V (..., n, d_v)
    """
    raise NotImplementedError("Write project: multiply X by each of the three matrices and return (Q, K, V).")


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    """Every query looks at every key, and takes a weighted average of the values.

        A = softmax(Q Kᵀ / sqrt(d_k))        output = A V                                (section 7.2, steps 2 to 5)

    Q (..., n, d_k), K (..., m, d_k), V (..., m, d_v)  ->  (output (..., n, d_v), weights A (..., n, m))

    mask    boolean, broadcastable to (..., n, m); True means "may attend". A hidden key gets a weight of exactly 0,
            and the weights of the others still sum to 1: so the mask acts on the scores, before the softmax.
    scale   what the scores are multiplied by; None means 1 / sqrt(d_k).
    """
    raise NotImplementedError(
        "Write scaled_dot_product_attention: scores, scale, mask, softmax, then weights @ V; return (output, weights)."
    )


def self_attention(X, W_Q, W_K, W_V, mask=None):
    """Attention of a sequence to itself: project, then attend. Returns (output (..., n, d_v), weights (..., n, n)).

    (section 7.2: the worked example "kedi sütü içti" is this function on a (3, 4) input)
    """
    raise NotImplementedError("Write self_attention: project X, then call scaled_dot_product_attention with the mask.")


def causal_mask(n_queries, n_keys=None):
    """Who may look at whom when text is read left to right: boolean (n_queries, n_keys), True where a query may attend.

    A token sees itself and all before it. `n_keys` is `n_queries` when not given. With more keys than queries, the
    queries are the last positions: causal_mask(1, 5) is all True, causal_mask(2, 3) is

        [[True, True, False],
         [True, True, True ]]                                                   (section 7.5; section 7.9, step 7)
    """
    raise NotImplementedError(
        "Write causal_mask: query i stands at position n_keys - n_queries + i and sees the keys up to there."
    )


def sinusoidal_positions(n, d):
    """One vector a position, (n, d) with d even; positions count from 0.

        PE[pos, 2i] = sin(pos / 10000^(2i/d))        PE[pos, 2i+1] = cos(pos / 10000^(2i/d))      (section 7.4)

    Columns 2i and 2i+1 are a pair with one frequency.
    """
    raise NotImplementedError("Write sinusoidal_positions: sines in the even columns, cosines in the odd ones.")
