"""What a model is, how it is trained and searched: the paper's base and big, and every knob of its Table 3.

Plain dataclasses, so that reading a recipe loads no torch. Types are checked where a recipe is
read (pydantic validates these classes as fields); ranges are checked here, on every construction.
Table and section numbers are those of Vaswani et al. (2017).
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Token ids that mean the same in every vocabulary: padding, unknown, begin, end of sentence."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of one Transformer. The defaults are the paper's base model.

    Raises:
        ValueError: If a value is out of its range, or the values do not fit together.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    dim: int = 512
    """Width of embeddings and hidden states (d_model). At least 1; even for sinusoidal positions."""
    ff_dim: int = 2048
    """Inner width of the feed-forward sub-layers (d_ff). At least 1."""
    num_heads: int = 8
    """Attention heads (h). At least 1; divides `dim`, unless both widths per head are given."""
    num_encoder_layers: int = 6
    """Encoder layers (N). At least 1."""
    num_decoder_layers: int = 6
    """Decoder layers (N). At least 1."""
    norm: Literal["post", "pre"] = "post"
    """Where a sub-layer is normalised: "post" its sum with the input (the paper), "pre" its input."""
    dropout: float = 0.1
    """Probability on sub-layer outputs and on embedding + position sums (P_drop). 0 <= p < 1."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Sine and cosine waves (the paper), or one learned table per side (Table 3, row E)."""
    max_positions: int = 1024
    """Longest sequence in tokens, BOS or EOS included; the rows of a learned table. At least 1."""
    key_dim: int | None = None
    """Width of queries and keys per head (d_k; Table 3, rows A and B). None: `dim` / `num_heads`."""
    value_dim: int | None = None
    """Width of values per head (d_v; Table 3, row A). None: `dim` / `num_heads`."""
    attention_bias: bool = False
    """Whether attention projections have a bias. The reference implementation has none."""
    attention_dropout: float = 0.0
    """Probability on attention weights. The paper has none: off. 0 <= p < 1."""
    ff_dropout: float = 0.0
    """Probability after the ReLU of the feed-forward. The paper has none: off. 0 <= p < 1."""

    def __post_init__(self) -> None:
        for name in ("dim", "ff_dim", "num_heads", "num_encoder_layers", "num_decoder_layers"):
            _check_at_least(self, name, 1)
        _check_at_least(self, "max_positions", 1)
        for name in ("key_dim", "value_dim"):
            if getattr(self, name) is not None:
                _check_at_least(self, name, 1)
        for name in ("dropout", "attention_dropout", "ff_dropout"):
            _check_fraction(self, name)
        _check_one_of(self, "norm", ("post", "pre"))
        _check_one_of(self, "positions", ("sinusoidal", "learned"))
        self._check_widths()

    def _check_widths(self) -> None:
        if None in (self.key_dim, self.value_dim) and self.dim % self.num_heads:
            message = f"`num_heads` must divide `dim` ({self.dim}), but is {self.num_heads}."
            raise ValueError(message)
        if self.positions == "sinusoidal" and self.dim % 2:
            raise ValueError(f"`dim` must be even for sinusoidal `positions`, but is {self.dim}.")

    @property
    def head_key_dim(self) -> int:
        """Width of queries and keys per head, resolved."""
        return self.dim // self.num_heads if self.key_dim is None else self.key_dim

    @property
    def head_value_dim(self) -> int:
        """Width of values per head, resolved."""
        return self.dim // self.num_heads if self.value_dim is None else self.value_dim


@dataclass(frozen=True)
class TrainConfig:
    """How one model is trained. The defaults are the paper's base recipe.

    Raises:
        ValueError: If a value is out of its range.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    max_steps: int = 100_000
    """Optimizer steps in all. At least 1. The paper: 100,000 (base), 300,000 (big)."""
    tokens_per_micro_batch: int = 3_200
    """Most tokens of a micro-batch, padding included, on its longer side. At least 1."""
    micro_batches_per_step: int = 8
    """Micro-batches whose gradients make one step; caps the useful workers. A power of two.

    With 3,200 tokens each, a step has about the paper's 25,000 source and target tokens.
    """
    warmup_steps: int = 4_000
    """Steps over which the learning rate rises. At least 1."""
    lr_scale: float = 1.0
    """Factor on the paper's learning rate. Above 0."""
    label_smoothing: float = 0.1
    """Probability spread evenly over the vocabulary (epsilon_ls). 0 <= p < 1."""
    adam_beta1: float = 0.9
    """Decay of Adam's first moment. 0 <= b < 1."""
    adam_beta2: float = 0.98
    """Decay of Adam's second moment. 0 <= b < 1."""
    adam_epsilon: float = 1e-9
    """Added to the root of Adam's second moment. Above 0."""
    clip_norm: float = 0.0
    """Largest global norm of a step's gradient. 0: no clipping, as in the paper."""
    weight_decay: float = 0.0
    """Decoupled weight decay per unit of learning rate. At least 0; the paper has none."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format of matrix products; weights and optimizer state are always fp32."""
    checkpoint_every_steps: int = 1_000
    """Steps between checkpoints. At least 1."""
    keep_checkpoints: int = 5
    """Newest checkpoints whose weights are kept for averaging. At least 1. Paper: 5, 20 (big)."""
    keep_best_checkpoints: int = 1
    """Checkpoints of the lowest dev loss whose weights are kept as well. At least 0."""
    dev_every_steps: int = 1_000
    """Steps between measurements of the loss on the dev set. At least 1."""
    patience: int = 0
    """Measurements in a row without a lower dev loss that end the training early. 0: never."""
    max_bad_steps: int = 10
    """Steps in a row without a finite gradient, after which the run rolls back: it returns once to
    its last checkpoint before them and skips all data since; the next time it fails. At least 1."""
    compile: bool = False
    """Whether torch.compile makes the model's code: faster on GPUs, other rounding."""
    init_from: str | None = None
    """A model bundle whose weights training starts from. None: the seeded initialisation."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "tokens_per_micro_batch", "micro_batches_per_step"):
            _check_at_least(self, name, 1)
        for name in ("warmup_steps", "checkpoint_every_steps", "keep_checkpoints"):
            _check_at_least(self, name, 1)
        for name in ("dev_every_steps", "max_bad_steps"):
            _check_at_least(self, name, 1)
        for name in ("label_smoothing", "adam_beta1", "adam_beta2"):
            _check_fraction(self, name)
        for name in ("lr_scale", "adam_epsilon"):
            _check_positive(self, name)
        for name in ("clip_norm", "weight_decay", "keep_best_checkpoints", "patience"):
            _check_at_least(self, name, 0)
        _check_one_of(self, "precision", ("fp32", "bf16"))
        if self.micro_batches_per_step.bit_count() != 1:
            value = self.micro_batches_per_step
            raise ValueError(f"`micro_batches_per_step` must be a power of two, but is {value}.")


@dataclass(frozen=True)
class SearchConfig:
    """How translations are searched for. The defaults are the paper's (section 6.1).

    Raises:
        ValueError: If a value is out of its range.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    beam_size: int = 4
    """Hypotheses followed at once. At least 1; 1 is greedy search."""
    length_penalty: float = 0.6
    """Exponent alpha of ((5 + length) / 6)^alpha, which divides log-probabilities. Finite."""
    max_extra_tokens: int = 50
    """How many tokens a translation may have more than its source. At least 0."""
    num_best: int = 1
    """Hypotheses returned per sentence. At least 1; at most `beam_size`, unless they are drawn."""
    sample: bool = False
    """Whether to draw `num_best` translations instead of seeking the likeliest."""
    temperature: float = 1.0
    """What log-probabilities are divided by before drawing: below 1 for likelier ones. Above 0."""
    top_k: int = 0
    """How many of the likeliest tokens are drawn from. 0: all."""
    seed: int = 1
    """Of the random numbers, which depend on it, the sentence's number and the place alone."""
    align_layer: int = 0
    """Decoder layer, from 1, whose attention over the source aligns tokens. 0: no alignment."""

    def __post_init__(self) -> None:
        for name in ("beam_size", "num_best"):
            _check_at_least(self, name, 1)
        for name in ("max_extra_tokens", "top_k", "align_layer"):
            _check_at_least(self, name, 0)
        _check_positive(self, "temperature")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"`length_penalty` must be finite, but is {self.length_penalty}.")
        if self.num_best > self.beam_size and not self.sample:
            raise ValueError(
                f"`num_best` must be at most `beam_size` ({self.beam_size}), but is {self.num_best}."
            )


def _check_at_least(config: object, name: str, least: int) -> None:
    value = getattr(config, name)
    if not least <= value < math.inf:
        raise ValueError(f"`{name}` must be at least {least} and finite, but is {value}.")


def _check_positive(config: object, name: str) -> None:
    value = getattr(config, name)
    if not 0 < value < math.inf:
        raise ValueError(f"`{name}` must be above 0 and finite, but is {value}.")


def _check_fraction(config: object, name: str) -> None:
    value = getattr(config, name)
    if not 0 <= value < 1:
        raise ValueError(f"`{name}` must be at least 0 and below 1, but is {value}.")


def _check_one_of(config: object, name: str, choices: Collection[str]) -> None:
    value = getattr(config, name)
    if value not in choices:
        listed = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"`{name}` must be {listed}, but is {value!r}.")


# At the end, since building them runs the checks above.
BASE = ModelConfig()
"""The paper's base model."""
BIG = ModelConfig(dim=1024, ff_dim=4096, num_heads=16, dropout=0.3)
"""The paper's big model, with its dropout for English-German (English-French has 0.1)."""
