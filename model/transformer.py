"""The Transformer, in the paper's order and with its names (Vaswani et al., 2017, section 3).

Axes, as suffixes of tensors: B sentences, S source positions, T target positions, Q and K query
and key positions, D width (d_model), H heads, E width per head (d_k or d_v), V vocabulary,
W beams, P decoded past of all beams. `attend_…` is True where a query may look at a key; it may
have size 1 on an axis along which it is the same.

Padding (`PAD`) stands at the end of a row. Padded positions get states too, but no other position
depends on them: drop them, as the loss does.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, linear, relu, scaled_dot_product_attention

from model.config import PAD, ModelConfig
from model.memory import DecodingState, KeysValues, LayerCache, Memory


class Transformer(nn.Module):
    """The encoder-decoder. `forward` trains it, `encode`, `start` and `step` search with it.

    One table of embeddings serves source, target and output (section 3.4). Where the source has a
    vocabulary of its own, of `src_vocab_size`, it has a table of its own; target and output share.
    """

    def __init__(
        self, config: ModelConfig, vocab_size: int, src_vocab_size: int | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.src_vocab_size = src_vocab_size
        self.embedding = nn.Embedding(vocab_size, config.dim)
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        if src_vocab_size is not None:
            self.src_embedding = nn.Embedding(src_vocab_size, config.dim)
            nn.init.normal_(self.src_embedding.weight, std=config.dim**-0.5)
        self.src_positions = Positions(config)
        self.tgt_positions = Positions(config)
        self.dropout = Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Pre-norm leaves the sum of all sub-layers without a norm: one more on each side.
        self.encoder_norm = nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.dim) if config.norm == "pre" else nn.Identity()

    def forward(self, src_BS: Tensor, tgt_in_BT: Tensor) -> Tensor:
        """Return the states hidden_BTD from which `logits` predicts the token after each prefix.

        `tgt_in_BT` is the target shifted right: it begins with BOS and lacks the last token.
        """
        return self.decode(tgt_in_BT, self.encode(src_BS))

    def encode(self, src_BS: Tensor) -> Memory:
        """Encode sentences. One of padding alone gives finite states without a meaning."""
        attend_BS = src_BS != PAD
        attend_BS[:, :1] = True
        embedding = self.embedding if self.src_vocab_size is None else self.src_embedding
        x_BSD = self._embed(src_BS, embedding, self.src_positions, start=0)
        for layer in self.encoder:
            x_BSD = layer(x_BSD, attend_BS[:, None, None, :])
        return Memory(self.encoder_norm(x_BSD), attend_BS)

    def decode(self, tgt_in_BT: Tensor, memory: Memory) -> Tensor:
        """Return hidden_BTD for whole target prefixes; no position sees the ones after it."""
        x_BTD = self._embed(tgt_in_BT, self.embedding, self.tgt_positions, start=0)
        for layer in self.decoder:
            x_BTD = layer(x_BTD, None, memory)
        return self.decoder_norm(x_BTD)

    def cross_weights(self, tgt_in_BT: Tensor, memory: Memory, layer: int) -> Tensor:
        """Return the weights (B, H, T, S) with which decoder layer `layer`, from 1, sees the source."""
        x_BTD = self._embed(tgt_in_BT, self.embedding, self.tgt_positions, start=0)
        for below in self.decoder[: layer - 1]:
            x_BTD = below(x_BTD, None, memory)
        top = self.decoder[layer - 1]
        assert isinstance(top, DecoderLayer)
        return top.cross_weights(x_BTD, memory)

    def logits(self, hidden_D: Tensor) -> Tensor:
        """Return unnormalised log-probabilities (…, V) of hidden states (…, D)."""
        return linear(hidden_D, self.embedding.weight)

    def start(self, memory: Memory) -> DecodingState:
        """Begin to decode token by token. The state takes `memory` over, and changes it."""
        attend_BWP = memory.attend_BS.new_zeros(len(memory.attend_BS), 1, 0)
        return DecodingState(memory.detach(), attend_BWP, [LayerCache() for _ in self.decoder])

    @torch.no_grad()
    def step(self, token_BW: Tensor, parent_BW: Tensor, state: DecodingState) -> Tensor:
        """Read one more token per beam and return hidden_BWD, which predicts the next one.

        Beam w goes on from the prefix that beam parent_BW[:, w] had after the last step; so there
        may be more beams than before, or fewer. Before the first step there is one, without a
        token: all parents are 0. Changes `state`.
        """
        token_BW1 = token_BW[..., None]
        x_BW1D = self._embed(token_BW1, self.embedding, self.tgt_positions, start=state.length)
        x_BWD = x_BW1D[:, :, 0]
        state.branch(parent_BW)
        for layer, cache in zip(self.decoder, state.caches, strict=True):
            x_BWD = layer(x_BWD, state.attend_BWP[:, None], state.memory, cache)
        return self.decoder_norm(x_BWD)

    def _embed(self, ids: Tensor, embedding: nn.Module, positions: nn.Module, start: int) -> Tensor:
        scaled = embedding(ids) * math.sqrt(self.config.dim)
        return self.dropout(scaled + positions(start, ids.shape[-1]))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.feed_forward = FeedForward(config)
        self.add_norms = nn.ModuleList(AddNorm(config) for _ in range(2))

    def forward(self, x_BSD: Tensor, attend_BHSS: Tensor) -> Tensor:
        """Return states of the shape of `x_BSD`."""
        x_BSD = self.add_norms[0](x_BSD, lambda y: self.self_attention(y, attend_BHSS))
        return self.add_norms[1](x_BSD, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, attention over the source, then feed-forward (section 3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.cross_attention = CrossAttention(config)
        self.feed_forward = FeedForward(config)
        self.add_norms = nn.ModuleList(AddNorm(config) for _ in range(3))

    def forward(
        self,
        x_BQD: Tensor,
        attend_BHQK: Tensor | None,
        memory: Memory,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """`attend_BHQK` None: every position sees itself and those before it."""
        x_BQD = self.add_norms[0](x_BQD, lambda y: self.self_attention(y, attend_BHQK, cache))
        x_BQD = self.add_norms[1](x_BQD, lambda y: self.cross_attention(y, memory, cache))
        return self.add_norms[2](x_BQD, self.feed_forward)

    def cross_weights(self, x_BTD: Tensor, memory: Memory) -> Tensor:
        """Return the weights (B, H, T, S) with which `forward` looks at the source."""
        x_BTD = self.add_norms[0](x_BTD, lambda y: self.self_attention(y, None))
        around_cross_attention = self.add_norms[1]
        assert isinstance(around_cross_attention, AddNorm)
        if around_cross_attention.is_pre_norm:
            x_BTD = around_cross_attention.norm(x_BTD)
        return self.cross_attention.weights(x_BTD, memory)


class AddNorm(nn.Module):
    """Residual connection, dropout and layer normalisation around a sub-layer (section 5.4)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.norm = nn.LayerNorm(config.dim)
        self.dropout = Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return LayerNorm(x + Dropout(Sublayer(x))), or x + Dropout(Sublayer(LayerNorm(x)))."""
        if self.is_pre_norm:
            return x_BTD + self.dropout(sublayer(self.norm(x_BTD)))
        return self.norm(x_BTD + self.dropout(sublayer(x_BTD)))


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence over itself (section 3.2.2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        key_width = config.num_heads * config.head_key_dim
        value_width = config.num_heads * config.head_value_dim
        self.widths = (key_width, key_width, value_width)
        bias = config.attention_bias
        self.query_key_value = projection(config.dim, *self.widths, bias=bias)
        self.output = projection(value_width, config.dim, bias=bias)

    def forward(
        self, x_BQD: Tensor, attend_BHQK: Tensor | None, cache: LayerCache | None = None
    ) -> Tensor:
        """With a cache, look at its past too: K is then longer than Q."""
        parts = self.query_key_value(x_BQD).split(self.widths, dim=-1)
        queries, keys, values = (split_heads(part, self.num_heads) for part in parts)
        if cache is not None:
            keys, values = cache.extend(KeysValues(keys, values))
        share = self.dropout if self.training else 0.0
        return self.output(join_heads(attention(queries, keys, values, attend_BHQK, share)))


class CrossAttention(nn.Module):
    """Multi-head attention of the target over the encoded source (section 3.2.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads, self.dropout = config.num_heads, config.attention_dropout
        key_width = config.num_heads * config.head_key_dim
        value_width = config.num_heads * config.head_value_dim
        self.widths = (key_width, value_width)
        bias = config.attention_bias
        self.query = projection(config.dim, key_width, bias=bias)
        self.key_value = projection(config.dim, *self.widths, bias=bias)
        self.output = projection(value_width, config.dim, bias=bias)

    def forward(self, x_BQD: Tensor, memory: Memory, cache: LayerCache | None = None) -> Tensor:
        """With a cache, project the source only once."""
        queries = split_heads(self.query(x_BQD), self.num_heads)
        keys, values = self._project(memory, cache)
        attend_BHQS = memory.attend_BS[:, None, None, :]
        share = self.dropout if self.training else 0.0
        return self.output(join_heads(attention(queries, keys, values, attend_BHQS, share)))

    def weights(self, x_BQD: Tensor, memory: Memory) -> Tensor:
        """Return the weights (B, H, Q, S) with which `forward` looks at the source."""
        queries = split_heads(self.query(x_BQD), self.num_heads)
        keys, values = self._project(memory, None)
        attend_BHQS = memory.attend_BS[:, None, None, :]
        return written_out_attention(queries, keys, values, attend_BHQS)[1]

    def _project(self, memory: Memory, cache: LayerCache | None) -> KeysValues:
        if cache is not None and cache.source is not None:
            return cache.source
        parts = self.key_value(memory.hidden_BSD).split(self.widths, dim=-1)
        source = KeysValues(*(split_heads(part, self.num_heads) for part in parts))
        if cache is not None:
            cache.source = source
        return source


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, at each position alike (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = projection(config.dim, config.ff_dim)
        self.outer = projection(config.ff_dim, config.dim)
        self.dropout = Dropout(config.ff_dropout)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return states of the shape of `x_BTD`."""
        return self.outer(self.dropout(relu(self.inner(x_BTD))))


class Dropout(nn.Module):
    """Zero a share of all numbers while training, and scale the others up (section 5.4).

    On a CPU torch draws one number per element for this, which takes 7 % of a training step of a
    small model. Here 16 bits per element do: the share is rounded to a multiple of 2^-16.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` itself in evaluation; else draw from torch's global generator."""
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return dropout(x, self.share)
        return x * self._draw_scale(x)

    def _draw_scale(self, x: Tensor) -> Tensor:
        values = 2**16
        dropped_values = min(round(self.share * values), values - 1)
        drawn = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64).random_(-(2**63), None)
        bits = drawn.view(torch.int16)[: x.numel()].view(x.shape)
        is_kept = bits >= dropped_values - values // 2
        return is_kept.to(x.dtype).mul_(values / (values - dropped_values))


class Positions(nn.Module):
    """What is added to embeddings to tell places apart (section 3.5; learned: Table 3, row E)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.positions == "learned":
            self.table = nn.Parameter(torch.empty(config.max_positions, config.dim))
            nn.init.normal_(self.table, std=config.dim**-0.5)
        else:
            waves = sinusoids(config.max_positions, config.dim)
            self.register_buffer("table", waves, persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Return the rows (T, D) of `length` places from `start` on.

        Raises:
            ValueError: If the table ends before.
        """
        if start + length > len(self.table):
            raise ValueError(
                f"A sequence must have at most `max_positions` ({len(self.table)}) tokens, but has "
                f"{start + length}. Raise `max_positions`, or leave out longer sentences."
            )
        return self.table[start : start + length]


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, attend_BHQK: Tensor | None, drop: float = 0.0
) -> Tensor:
    """Scaled dot-product attention by torch's fused kernels.

    Args:
        queries: (B, H, Q, E).
        keys: (B, H, K, E).
        values: (B, H, K, E').
        attend_BHQK: True where a query may look. None: causal, with Q = K.
        drop: Share of the attention weights to drop.

    Returns:
        (B, H, Q, E').
    """
    return scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=attend_BHQK,
        dropout_p=drop,
        is_causal=attend_BHQK is None,
    )


def written_out_attention(
    queries: Tensor, keys: Tensor, values: Tensor, attend_BHQK: Tensor | None
) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / √d_k) V, equation 1: what `attention` computes, to read and to look at.

    Returns:
        The result (B, H, Q, E') and the weights (B, H, Q, K).
    """
    scores_BHQK = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if attend_BHQK is None:
        attend_BHQK = torch.ones_like(scores_BHQK, dtype=torch.bool).tril()
    weights_BHQK = scores_BHQK.masked_fill(~attend_BHQK, -math.inf).softmax(dim=-1)
    return weights_BHQK @ values, weights_BHQK


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, Q, H·E) → (B, H, Q, E), without a copy."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def join_heads(heads_BHQE: Tensor) -> Tensor:
    """(B, H, Q, E) → (B, Q, H·E)."""
    return heads_BHQE.transpose(1, 2).flatten(2)


def sinusoids(num_positions: int, dim: int) -> Tensor:
    """Return the table (num_positions, D): sine in even columns, cosine in odd ones (3.5)."""
    position = torch.arange(num_positions, dtype=torch.float64)[:, None]
    wavelength = 10_000 ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = position / wavelength
    waves = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    return waves.to(torch.get_default_dtype())


@torch.no_grad()
def projection(in_width: int, *out_widths: int, bias: bool = True) -> nn.Linear:
    """One matrix for several projections of the same input, side by side; biases are 0.

    Each is drawn Xavier uniform by itself: being fused must not narrow its range.
    """
    fused = nn.Linear(in_width, sum(out_widths), bias=bias)
    for part in fused.weight.split(out_widths):
        nn.init.xavier_uniform_(part)
    if bias:
        nn.init.zeros_(fused.bias)
    return fused


def pad_sequences(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Return ids (B, longest) as int64, with PAD at the end; at least one column wide."""
    width = max([1, *map(len, sequences)])
    return torch.tensor([[*ids, *[PAD] * (width - len(ids))] for ids in sequences])
