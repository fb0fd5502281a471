# lab 7.9, own attempt, one function at a time
import numpy as np


def softmax(x, axis=-1):
    # subtract the row maximum first, as the lab says
    row_max = np.max(x, axis=axis, keepdims=True)
    exps = np.exp(x - row_max)
    total = np.sum(exps, axis=axis, keepdims=True)
    return exps / total


def project(X, W_Q, W_K, W_V):
    queries = np.matmul(X, W_Q)
    keys = np.matmul(X, W_K)
    values = np.matmul(X, W_V)
    return (queries, keys, values)


def scaled_dot_product_attention(Q, K, V, mask=None, scale=None):
    # 1. how well does each query match each key
    if Q.ndim > 2:
        shown = None if mask is None else np.broadcast_to(mask, (*Q.shape[:-1], K.shape[-2]))
        items = [
            scaled_dot_product_attention(Q[i], K[i], V[i], mask=None if shown is None else shown[i], scale=scale)
            for i in range(len(Q))
        ]
        return np.stack([o for o, w in items]), np.stack([w for o, w in items])
    scores = np.zeros((len(Q), len(K)), Q.dtype)
    for i, query in enumerate(Q):
        for j, key in enumerate(K):
            scores[i, j] = sum(a * b for a, b in zip(query, key))
    # 2. keep the spread of the scores independent of the width
    if scale is None:
        scores = scores / float(Q.shape[-1]) ** 0.5
    else:
        scores = scores * scale
    # 3. hide what may not be seen
    if mask is not None:
        scores = np.where(mask, scores, -1e30)
    # 4. shares
    weights = softmax(scores, axis=-1)
    # 5. blend the values
    output = np.matmul(weights, V)
    return output, weights


def self_attention(X, W_Q, W_K, W_V, mask=None):
    queries, keys, values = project(X, W_Q, W_K, W_V)
    output, weights = scaled_dot_product_attention(queries, keys, values, mask=mask)
    return output, weights


def causal_mask(n_queries, n_keys=None):
    if n_keys is None:
        n_keys = n_queries
    first = n_keys - n_queries  # position of query 0
    visible = np.zeros((n_queries, n_keys), dtype=bool)
    for query in range(n_queries):
        for key in range(n_keys):
            visible[query, key] = key <= first + query
    return visible


def sinusoidal_positions(n, d):
    table = np.empty((n, d))
    for position in range(n):
        for pair in range(d // 2):
            angle = position / 10000.0 ** (2 * pair / d)
            table[position, 2 * pair] = np.sin(angle)
            table[position, 2 * pair + 1] = np.cos(angle)
    return table
