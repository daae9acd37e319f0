"""Sizes of attention calls, and the work they make: pairs of a query and a key, tiles, bytes."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....ir.records import dataclass
from ....ir.sizes.masking import executed_share
from ..terms import Array

if TYPE_CHECKING:
    from ...machine.chip import SystolicArray

Flags: TypeAlias = NDArray[np.bool_]
# Rows of queries that a kernel gives to one thread block: what tensor units are filled with, on every chip so far.
TILE_ROWS = 128.0
# Products of the forward phase (scores, outputs) and of the backward one, by the width they run over: scores, dQ and dK
# over the width of keys, dP and dV over that of values.
FORWARD_PRODUCTS = (1.0, 1.0)
BACKWARD_PRODUCTS = (3.0, 2.0)


def _numbers(value: float) -> Array:
    return np.array(value, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Attention calls as their kernels see them; all arrays broadcast.

    Attributes:
        batch: sequences.
        heads: heads of queries.
        kv_heads: heads of keys and values; fewer than `heads` for grouped and multi-query attention.
        q_len: queries of a sequence: all its tokens in training and prefill, a chunk of them, one in decode.
        kv_len: keys of a sequence, those of the queries included.
        qk_dim: width of queries and keys.
        v_dim: width of values.
        causal: whether a query sees no later keys.
        window: keys that a query sees at most, 0 for all.
        chosen: whether those keys are chosen for each query, and not the last ones.
        softcap: whether scores are bent by a tanh.
        extra_bytes: bytes that move beside queries, keys, values and outputs: a bias, its gradient, ids of keys.
        balanced: whether the queries are an even share of all positions, as context parallelism deals them out.
        latent: whether values are part of the keys, as latent attention caches them.
        backward: whether it is the backward phase.
        operand_bytes: bytes of an element of queries and outputs.
        kv_bytes: bytes of an element of keys and values.
        dtype: what the tensor units multiply.
    """

    batch: Array
    heads: Array
    kv_heads: Array
    q_len: Array
    kv_len: Array
    qk_dim: Array
    v_dim: Array
    causal: Flags
    window: Array
    balanced: Flags
    latent: Flags
    backward: Flags
    operand_bytes: Array
    kv_bytes: Array
    dtype: str = "bf16"
    chosen: Flags = field(default_factory=lambda: np.array(False))
    softcap: Flags = field(default_factory=lambda: np.array(False))
    extra_bytes: Array = field(default_factory=lambda: _numbers(0.0))

    @classmethod
    def of(
        cls,
        batch: float,
        heads: float,
        kv_heads: float,
        q_len: float,
        kv_len: float,
        qk_dim: float = 128,
        v_dim: float | None = None,
        *,
        causal: bool = True,
        window: float = 0,
        balanced: bool = False,
        latent: bool = False,
        chosen: bool = False,
        softcap: bool = False,
        extra_bytes: float = 0,
        backward: bool = False,
        operand_bytes: float = 2,
        kv_bytes: float | None = None,
        dtype: str = "bf16",
    ) -> AttentionSizes:
        """Return one call; values are as wide as keys and kept as queries are unless told otherwise.

        >>> float(AttentionSizes.of(1, 2, 1, 4, 4).pairs())
        20.0
        """
        counts = (batch, heads, kv_heads, q_len, kv_len, qk_dim, qk_dim if v_dim is None else v_dim)
        a, h, g, q, kv, d, v = map(_numbers, counts)
        c, b, lat, back, cho, soft = (np.array(f) for f in (causal, balanced, latent, backward, chosen, softcap))
        e, ekv = _numbers(operand_bytes), _numbers(operand_bytes if kv_bytes is None else kv_bytes)
        return cls(
            batch=a, heads=h, kv_heads=g, q_len=q, kv_len=kv, qk_dim=d, v_dim=v, causal=c, window=_numbers(window),
            balanced=b, latent=lat, backward=back, operand_bytes=e, kv_bytes=ekv, dtype=dtype,
            chosen=cho, softcap=soft, extra_bytes=_numbers(extra_bytes),
        )  # fmt: skip

    @property
    def rows(self) -> Array:
        """Rows of queries over all heads."""
        return np.asarray(self.batch * self.heads * self.q_len)

    def pairs(self, windowed: bool = True) -> Array:
        """Return pairs of a query and a key that masks leave; without `windowed` as if there were no window."""
        share = executed_share(self.q_len, self.kv_len, self.causal, self.window if windowed else 0, self.balanced)
        return np.asarray(share * self.rows * self.kv_len)

    def by_phase(self, forward: float, backward: float) -> Array:
        """Return a number of the phase that each call is."""
        return np.where(self.backward, backward, forward)

    @property
    def flops_a_pair(self) -> Array:
        """FLOPs of the products for one pair: 2 (d + v) forward, 2 (3 d + 2 v) backward."""
        keys, values = map(self.by_phase, FORWARD_PRODUCTS, BACKWARD_PRODUCTS)
        return np.asarray(2.0 * (keys * self.qk_dim + values * self.v_dim))

    def flops_on(self, array: SystolicArray | None) -> Array:
        """Return the FLOPs of `flops_a_pair` as systolic arrays do them: widths that do not fill one count as if.

        Scores and dP sum over the width of keys and values; outputs, dV, dQ and dK have them as columns.
        """
        if array is None:
            return self.flops_a_pair
        summed = [np.ceil(width / array.inner) * array.inner for width in (self.qk_dim, self.v_dim)]
        columns = [np.ceil(width / array.columns) * array.columns for width in (self.qk_dim, self.v_dim)]
        forward = summed[0] + columns[1]
        return np.asarray(2.0 * np.where(self.backward, forward + 2.0 * columns[0] + summed[1], forward))

    @property
    def tiles(self) -> Array:
        """Thread blocks of `TILE_ROWS` queries of one head."""
        return np.asarray(self.batch * self.heads * np.ceil(self.q_len / TILE_ROWS))

    @property
    def keys_seen(self) -> Array:
        """Keys of a sequence that some query sees: with a window the last ones alone, chosen ones at most all apart."""
        cut = self.is_cut & ~self.balanced
        if not cut.any():
            return np.asarray(self.kv_len + 0.0 * self.q_len)
        reach = self.window + self.q_len - np.where(self.causal, 1.0, 0.0)
        reach = np.where(self.chosen, self.window * self.q_len, reach)
        return np.where(cut, np.minimum(reach, self.kv_len), self.kv_len)

    @property
    def specials_a_pair(self) -> Array:
        """Special functions of one pair: the exponential, and the tanh that bends its score."""
        return np.where(self.softcap, 2.0, 1.0)

    @property
    def is_cut(self) -> Flags:
        """Whether a window leaves keys out."""
        return np.asarray((self.window > 0) & (self.window < self.kv_len))

    @property
    def key_bytes(self) -> Array:
        """Bytes of one key and its value of one head; a latent is both."""
        return np.asarray((self.qk_dim + ~self.latent * self.v_dim) * self.kv_bytes)

    @property
    def cache_bytes(self) -> Array:
        """Bytes of the keys and values that are seen, each read once."""
        return np.asarray(self.batch * self.kv_heads * self.keys_seen * self.key_bytes)

    @property
    def query_bytes(self) -> Array:
        """Bytes of the queries."""
        return np.asarray(self.rows * self.qk_dim * self.operand_bytes)

    @property
    def output_bytes(self) -> Array:
        """Bytes of the outputs."""
        return np.asarray(self.rows * self.v_dim * self.operand_bytes)
