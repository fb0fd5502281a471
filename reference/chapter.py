"""The chapter's printed numbers, as data: the worked example of 7.2, the position tables of 7.4, the sizes of 7.6.

Inputs are exact. Everything named *_PRINTED or kept in a table is rounded as the chapter prints it; tables are tuples
of rows, their columns named in the comment above.
"""

from typing import Final

import numpy as np

# 7.2: kedi sütü içti, three tokens, d = 4, d_k = d_v = 2

TOKENS: Final = ("kedi", "sütü", "içti")

# columns: animate, liquid, action, always-on
E: Final = np.array([[0.9, 0.1, 0.0, 0.5], [0.1, 0.9, 0.0, 0.5], [0.0, 0.1, 0.9, 0.5]])  # (n, d)
W_Q: Final = np.array([[2.0, 0.0], [0.0, 2.0], [2.0, 2.0], [0.0, 0.0]])  # (d, d_k)
W_K: Final = np.array([[1.5, 0.0], [0.0, 1.5], [0.0, 0.0], [0.0, 0.0]])  # (d, d_k)
W_V: Final = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.2, 0.2]])  # (d, d_v)
for _given in (E, W_Q, W_K, W_V):
    _given.flags.writeable = False

Q_PRINTED: Final = ((1.80, 0.20), (0.20, 1.80), (1.80, 2.00))
K_PRINTED: Final = ((1.35, 0.15), (0.15, 1.35), (0.00, 0.15))
V_PRINTED: Final = ((1.00, 0.20), (0.20, 1.00), (0.10, 0.20))
SCORES_PRINTED: Final = ((2.46, 0.54, 0.03), (0.54, 2.46, 0.27), (2.73, 2.97, 0.30))
SCALED_SCORES_PRINTED: Final = ((1.7395, 0.3818, 0.0212), (0.3818, 1.7395, 0.1909), (1.9304, 2.1001, 0.2121))
ICTI_EXP_PRINTED: Final = (6.8923, 8.1670, 1.2363)  # of içti's row of scaled scores
ICTI_EXP_SUM_PRINTED: Final = 16.2956
WEIGHTS_PRINTED: Final = ((0.6961, 0.1791, 0.1249), (0.1750, 0.6804, 0.1446), (0.4230, 0.5012, 0.0759))
OUTPUTS_PRINTED: Final = ((0.7444, 0.3433), (0.3256, 0.7443), (0.5308, 0.6009))

# 7.2, step 3, measured over 20,000 random pairs: d_k, std of q·k, sqrt(d_k), std after dividing by sqrt(d_k)
SCORE_SPREAD: Final = (
    (2, 1.414, 1.414, 1.000),
    (8, 2.859, 2.828, 1.011),
    (64, 8.029, 8.000, 1.004),
    (512, 22.746, 22.627, 1.005),
)
SCORE_SPREAD_PAIRS: Final = 20_000

# 7.2, step 3: average weight of the winner among 64 random keys: d_k, with 1/sqrt(d_k), without it
WINNERS_WEIGHT: Final = ((2, 0.104, 0.165), (8, 0.105, 0.420), (64, 0.108, 0.786), (512, 0.107, 0.928))
WINNERS_WEIGHT_KEYS: Final = 64

# 7.4: the shuffle test, order içti kedi sütü, un-shuffled again

PERMUTATION: Final = (2, 0, 1)
SHUFFLE_GAP_PRINTED: Final = 1.11e-16  # without positions: rounding

POSITION_SCALE: Final = 0.3  # X + 0.3 PE, the positions staying with their slots
OUTPUTS_WITH_POSITIONS_PRINTED: Final = ((0.8029, 0.7345), (0.6385, 1.0023), (0.7865, 0.8342))
SHUFFLED_WITH_POSITIONS_PRINTED: Final = ((1.1319, 0.5094), (0.7489, 0.6805), (0.8767, 0.6607))
SHUFFLE_GAP_WITH_POSITIONS_PRINTED: Final = 0.3289

# 7.4: PE at d = 4: sin(pos), cos(pos), sin(pos/100), cos(pos/100)
SINUSOIDS: Final = (
    (0.0000, 1.0000, 0.0000, 1.0000),
    (0.8415, 0.5403, 0.0100, 1.0000),
    (0.9093, -0.4161, 0.0200, 0.9998),
)

# 7.4: PE_p · PE_{p+k} over 256 positions p at d = 64: offset k, mean, std over p, range over p. The last two columns
# are rounding alone: their size is a fact, their digits are of one machine.
SINUSOID_OFFSETS: Final = (
    (0, 32.000000, 1.6e-15, 1.1e-14),
    (1, 30.916832, 7.8e-15, 4.6e-14),
    (2, 28.303862, 1.1e-14, 7.8e-14),
    (4, 23.934362, 7.4e-15, 5.0e-14),
    (8, 22.413912, 5.8e-15, 3.9e-14),
    (16, 19.372820, 5.8e-15, 3.9e-14),
    (32, 19.553972, 1.0e-14, 7.1e-14),
    (64, 13.906089, 1.2e-14, 9.1e-14),
)
SINUSOID_POSITIONS: Final = 256
SINUSOID_LENGTH_PRINTED: Final = 5.656854  # sqrt(d/2), of every position vector at d = 64

# 7.4: one query and one key, d = 64, the key at n and the query at n + offset
OFFSET_SEED: Final = 11  # default_rng(11): q, then k, as standard_normal(64)
OFFSET_POSITIONS: Final = (0, 100, 1000, 5000)
# RoPE: offset, score, spread over the four n (rounding alone: as above, its size is a fact, its digits are not)
ROPE_OFFSETS: Final = (
    (0, 2.152941, 2.2e-15),
    (1, 3.606170, 1.5e-13),
    (2, 5.453257, 3.1e-13),
    (5, 6.457170, 5.0e-13),
    (10, 8.827710, 1.4e-13),
    (50, -0.061180, 1.5e-13),
    (200, -13.740668, 4.1e-14),
)
# position vectors added to q and to k: offset, score at n = 0, at n = 100, at n = 1000, spread over all four n
ADDITIVE_OFFSETS: Final = (
    (0, 31.19, 26.98, 48.15, 26.3),
    (1, 31.82, 27.54, 47.52, 26.6),
    (10, 13.74, 20.55, 38.85, 25.1),
    (200, 1.86, 6.43, 25.00, 23.1),
)

# 7.6: one score matrix at fp16: n, entries, GiB as printed
SCORE_BYTES: Final = (
    (512, 262_144, "0.0005"),
    (4_096, 16_777_216, "0.03"),
    (32_768, 1_073_741_824, "2.00"),
    (100_000, 10_000_000_000, "18.63"),
)

# 7.6: KV cache with 16-bit values: layers, KV heads, head dim, tokens, GB (decimal) as printed
KV_CACHE: Final = (
    (32, 32, 128, 4_096, "2.1"),
    (32, 32, 128, 32_768, "17.2"),
    (80, 64, 128, 32_768, "85.9"),  # hypothetical MHA
    (80, 8, 128, 32_768, "10.7"),  # the same with GQA
    (32, 32, 128, 100_000, "52.4"),  # MHA
    (32, 8, 128, 100_000, "13.1"),  # GQA
    (32, 1, 128, 100_000, "1.6"),  # MQA
)
