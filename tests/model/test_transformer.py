"""The Transformer: sizes, masks, options, the written-out formula, decoding by steps."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model.config import BASE, BIG, BOS, PAD, ModelConfig
from model.transformer import (
    Dropout,
    Transformer,
    attention,
    pad_sequences,
    sinusoids,
    written_out_attention,
)

VOCAB = 29
TINY = {
    "dim": 16,
    "ff_dim": 24,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "max_positions": 32,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned"},
    "other head widths": {"key_dim": 3, "value_dim": 5},
    "attention bias": {"attention_bias": True},
}

every_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


def tiny(seed: int = 1, dtype: torch.dtype = torch.float64, **options: Any) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(**{**TINY, **options})
    return Transformer(config, VOCAB).to(dtype).eval()


def ids(*shape: int, seed: int = 2) -> Tensor:
    return torch.randint(4, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def pad_right(rows: Tensor, columns: int) -> Tensor:
    return torch.cat([rows, rows.new_full((len(rows), columns), PAD)], dim=1)


# Sizes


def count_parameters(config: ModelConfig, vocab_size: int = 37_000) -> int:
    with torch.device("meta"):
        model = Transformer(config, vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


def counted_by_formula(config: ModelConfig, vocab_size: int = 37_000) -> int:
    dim, heads = config.dim, config.num_heads
    attention_size = 2 * dim * heads * (config.head_key_dim + config.head_value_dim)
    feed_forward = 2 * dim * config.ff_dim + config.ff_dim + dim
    encoder_layer = attention_size + feed_forward + 4 * dim
    decoder_layer = 2 * attention_size + feed_forward + 6 * dim
    layers = config.num_encoder_layers * encoder_layer + config.num_decoder_layers * decoder_layer
    learned = 2 * config.max_positions * dim if config.positions == "learned" else 0
    return vocab_size * dim + layers + learned


def varied(**options: Any) -> ModelConfig:
    return ModelConfig(**options)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (BASE, 63_045_632),
        (BIG, 214_171_648),
        (varied(attention_bias=True), 63_082_496),
        (varied(dim=1024, ff_dim=4096, num_heads=16, attention_bias=True), 214_245_376),
        (varied(norm="pre", attention_bias=True), 63_084_544),
        (varied(dim=1024, ff_dim=4096, num_heads=16, attention_bias=True, norm="pre"), 214_249_472),
    ],
)
def test_base_and_big_have_the_derived_number_of_parameters(config: ModelConfig, count: int):
    assert count_parameters(config) == count


def test_a_source_vocabulary_adds_a_table_of_its_own_and_changes_no_other():
    joint = Transformer(ModelConfig(**TINY), VOCAB)
    torch.manual_seed(3)
    separate = Transformer(ModelConfig(**TINY), VOCAB, src_vocab_size=VOCAB + 5)
    expected = {name: weight.shape for name, weight in joint.state_dict().items()}
    found = {name: weight.shape for name, weight in separate.state_dict().items()}
    assert found.pop("src_embedding.weight") == (VOCAB + 5, TINY["dim"])
    assert found == expected
    source, target = torch.tensor([[VOCAB + 4, 5]]), torch.tensor([[4, 5]])
    separate.logits(separate.eval()(source, target)).sum().backward()
    assert separate.src_embedding.weight.grad[VOCAB + 4].abs().sum() > 0
    assert separate.embedding.weight.grad.shape == (VOCAB, TINY["dim"])


TABLE_3: dict[str, dict[str, Any]] = {
    "base": {},
    "A, 1 head": {"num_heads": 1, "key_dim": 512, "value_dim": 512},
    "A, 4 heads": {"num_heads": 4, "key_dim": 128, "value_dim": 128},
    "A, 16 heads": {"num_heads": 16, "key_dim": 32, "value_dim": 32},
    "A, 32 heads": {"num_heads": 32, "key_dim": 16, "value_dim": 16},
    "B, keys of 16": {"key_dim": 16},
    "B, keys of 32": {"key_dim": 32},
    "C, 2 layers": {"num_encoder_layers": 2, "num_decoder_layers": 2},
    "C, 4 layers": {"num_encoder_layers": 4, "num_decoder_layers": 4},
    "C, 8 layers": {"num_encoder_layers": 8, "num_decoder_layers": 8},
    "C, width 256": {"dim": 256, "key_dim": 32, "value_dim": 32},
    "C, width 1024": {"dim": 1024, "key_dim": 128, "value_dim": 128},
    "C, inner width 1024": {"ff_dim": 1024},
    "C, inner width 4096": {"ff_dim": 4096},
    "D, no dropout": {"dropout": 0.0},
    "D, dropout 0.2": {"dropout": 0.2},
    "E": {"positions": "learned"},
    "big": {"dim": 1024, "ff_dim": 4096, "num_heads": 16, "dropout": 0.3},
}


@pytest.mark.parametrize("options", TABLE_3.values(), ids=TABLE_3.keys())
def test_every_row_of_table_3_has_the_parameters_of_the_formula(options: dict[str, Any]):
    config = ModelConfig(**options)
    assert count_parameters(config) == counted_by_formula(config)


@pytest.mark.parametrize(
    ("row", "millions", "base_millions"),
    [("B, keys of 16", 58, 65), ("B, keys of 32", 60, 65), ("C, 2 layers", 36, 65)],
)
def test_rows_differ_from_base_by_what_the_paper_prints(
    row: str, millions: int, base_millions: int
):
    difference = count_parameters(BASE) - count_parameters(ModelConfig(**TABLE_3[row]))
    assert difference / 1e6 == pytest.approx(base_millions - millions, abs=1)


# Initialisation


def test_the_seed_decides_every_weight():
    one, same, other = tiny(1), tiny(1), tiny(2)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
    assert not torch.equal(one.embedding.weight, other.embedding.weight)


def test_embeddings_are_normal_with_the_papers_scale():
    torch.manual_seed(1)
    model = Transformer(ModelConfig(**TINY), 5_000)
    assert model.embedding.weight.std().item() == pytest.approx(16**-0.5, rel=0.02)


def test_each_projection_has_its_own_xavier_range():
    torch.manual_seed(1)
    config = ModelConfig(**{**TINY, "dim": 64, "key_dim": 4, "value_dim": 40})
    model = Transformer(config, VOCAB)
    attention_weights = model.encoder[0].self_attention.query_key_value.weight
    for part in attention_weights.split((16, 16, 160)):
        limit = math.sqrt(6 / sum(part.shape))
        assert part.abs().max() <= limit
        assert part.abs().max() > 0.95 * limit


def test_biases_are_zero_and_only_where_the_reference_has_them():
    biases = [name for name, _ in tiny().named_parameters() if name.endswith("bias")]
    assert not [name for name in biases if "attention" in name]
    model = tiny(attention_bias=True)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert parameter.abs().max() == 0, name
    with_bias = [name for name, _ in model.named_parameters() if "attention" in name]
    assert len([name for name in with_bias if name.endswith("bias")]) == 2 * 2 + 2 * 5


def test_source_target_and_output_share_one_matrix():
    model = tiny()
    assert [p.shape for p in model.parameters() if VOCAB in p.shape] == [(VOCAB, 16)]
    hidden_BTD = model(ids(2, 5), ids(2, 4))
    expected = hidden_BTD @ model.embedding.weight.T
    torch.testing.assert_close(model.logits(hidden_BTD), expected)


# What a state depends on


@every_variant
def test_no_position_sees_its_future(options: dict[str, Any]):
    model = tiny(**options)
    src_BS, tgt_in_BT = ids(2, 6), ids(2, 7, seed=3)
    changed_BT = tgt_in_BT.clone()
    changed_BT[:, 4:] = ids(2, 3, seed=4)
    before, after = model(src_BS, tgt_in_BT), model(src_BS, changed_BT)
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=0, atol=1e-12)
    assert (before[:, 4:] - after[:, 4:]).abs().min(dim=1).values.max() > 1e-6


@every_variant
def test_every_position_sees_its_past_and_the_whole_source(options: dict[str, Any]):
    model = tiny(**options)
    src_BS, tgt_in_BT = ids(1, 5), ids(1, 5, seed=3)
    before = model(src_BS, tgt_in_BT)
    for place in range(5):
        changed = src_BS.clone()
        changed[0, place] = (changed[0, place] - 3) % (VOCAB - 4) + 4
        assert (model(changed, tgt_in_BT) - before).abs().amax(dim=-1).min() > 1e-9
        changed = tgt_in_BT.clone()
        changed[0, place] = (changed[0, place] - 3) % (VOCAB - 4) + 4
        assert (model(src_BS, changed) - before).abs().amax(dim=-1)[0, place:].min() > 1e-9


@every_variant
def test_padding_changes_nothing(options: dict[str, Any]):
    model = tiny(**options)
    src_BS, tgt_in_BT = ids(2, 6), ids(2, 7, seed=3)
    padded = model(pad_right(src_BS, 4), pad_right(tgt_in_BT, 3))
    torch.testing.assert_close(padded[:, :7], model(src_BS, tgt_in_BT), rtol=0, atol=1e-12)


def test_padding_gets_no_gradient():
    model = tiny()
    hidden_BTD = model(pad_right(ids(2, 6), 4), ids(2, 7, seed=3))
    hidden_BTD.square().sum().backward()
    gradient = model.embedding.weight.grad
    assert gradient is not None
    assert gradient[PAD].abs().max() == 0


@every_variant
def test_a_source_of_only_padding_gives_numbers(options: dict[str, Any]):
    model = tiny(**options)
    src_BS = torch.full((2, 4), PAD)
    src_BS[0] = ids(4)
    hidden_BTD = model(src_BS, ids(2, 3))
    hidden_BTD.square().sum().backward()
    assert hidden_BTD.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(hidden_BTD[:1], model(src_BS[:1], ids(2, 3)[:1]))


def test_every_sentence_may_look_at_its_first_position():
    attend_BS = tiny().encode(torch.tensor([[5, 6, PAD], [PAD, PAD, PAD]])).attend_BS
    assert attend_BS.tolist() == [[True, True, False], [True, False, False]]


def test_encoding_leaves_its_input_alone():
    src_BS = torch.full((2, 4), PAD)
    tiny().encode(src_BS)
    assert (src_BS == PAD).all()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_word_order_matters_through_positions(positions: str):
    model = tiny(positions=positions)
    hidden_BSD = model.encode(torch.tensor([[7, 7]])).hidden_BSD
    assert (hidden_BSD[0, 0] - hidden_BSD[0, 1]).abs().max() > 1e-3


def test_sinusoids_interleave_sine_and_cosine():
    table = sinusoids(50, 8).double()
    for place in (0, 1, 49):
        for pair in range(4):
            angle = place / 10_000 ** (2 * pair / 8)
            expected = torch.tensor([math.sin(angle), math.cos(angle)], dtype=torch.float64)
            torch.testing.assert_close(
                table[place, 2 * pair : 2 * pair + 2], expected, atol=1e-6, rtol=0
            )


def test_embeddings_are_scaled_by_the_root_of_the_width():
    model = tiny(num_encoder_layers=1)
    model.encoder = nn.ModuleList()
    src_BS = ids(2, 5)
    expected = model.embedding.weight[src_BS] * 4 + sinusoids(5, 16)
    torch.testing.assert_close(model.encode(src_BS).hidden_BSD, expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_a_sequence_longer_than_the_positions_is_refused(positions: str):
    model = tiny(positions=positions)
    model.encode(ids(1, 32))
    with pytest.raises(ValueError, match=r"at most `max_positions` \(32\) tokens, but has 33\."):
        model.encode(ids(1, 33))


# Norms


def test_post_norm_normalises_what_leaves_a_layer():
    hidden_BSD = tiny(norm="post").encode(ids(3, 6)).hidden_BSD
    torch.testing.assert_close(hidden_BSD.mean(-1), torch.zeros(3, 6, dtype=torch.float64))
    assert hidden_BSD.var(-1, correction=0).mean().item() == pytest.approx(1, abs=1e-3)


def test_pre_norm_leaves_a_path_without_norms():
    model = tiny(norm="pre")
    model.encoder_norm = nn.Identity()
    for layer in model.encoder:
        nn.init.zeros_(layer.self_attention.output.weight)
        nn.init.zeros_(layer.feed_forward.outer.weight)
    embedded = model.embedding.weight[ids(2, 5)] * 4 + sinusoids(5, 16)
    torch.testing.assert_close(model.encode(ids(2, 5)).hidden_BSD, embedded)


# Attention


@pytest.mark.parametrize("value_dim", [8, 5])
def test_fused_attention_equals_the_written_out_formula(value_dim: int):
    torch.manual_seed(1)
    queries, keys = torch.randn(2, 3, 7, 8).double(), torch.randn(2, 3, 7, 8).double()
    values = torch.randn(2, 3, 7, value_dim).double()
    is_token_BS = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    for attend in (None, is_token_BS[:, None, None, :]):
        expected, weights_BHQK = written_out_attention(queries, keys, values, attend)
        torch.testing.assert_close(attention(queries, keys, values, attend), expected)
        torch.testing.assert_close(weights_BHQK.sum(-1), torch.ones(2, 3, 7).double())
    assert weights_BHQK[1, :, :, 4:].abs().max() == 0


def test_causal_weights_lie_below_the_diagonal():
    torch.manual_seed(1)
    queries = torch.randn(1, 2, 5, 8)
    _, weights_BHQK = written_out_attention(queries, queries, queries, None)
    assert weights_BHQK.triu(1).abs().max() == 0


def test_scores_are_divided_by_the_root_of_the_key_width():
    query = torch.full((1, 1, 1, 16), 1.0)
    keys = torch.stack([torch.zeros(16), torch.full((16,), 0.5)])[None, None]
    attend = torch.ones(1, 1, 1, 2, dtype=torch.bool)
    _, weights = written_out_attention(query, keys, keys, attend)
    assert weights[0, 0, 0, 1].item() == pytest.approx(1 / (1 + math.exp(-16 * 0.5 / 4)))


# Dropout


def test_training_without_dropout_equals_evaluation():
    model = tiny(dropout=0.0)
    src_BS, tgt_in_BT = ids(2, 6), ids(2, 7, seed=3)
    expected = model(src_BS, tgt_in_BT)
    assert torch.equal(model.train()(src_BS, tgt_in_BT), expected)


@pytest.mark.parametrize("option", ["dropout", "attention_dropout", "ff_dropout"])
def test_each_dropout_acts_in_training_only_and_follows_the_seed(option: str):
    model = tiny(**{"dropout": 0.0, option: 0.5})
    src_BS, tgt_in_BT = ids(2, 6), ids(2, 7, seed=3)
    clean = model(src_BS, tgt_in_BT)
    assert torch.equal(model(src_BS, tgt_in_BT), clean)
    model.train()
    runs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        runs.append(model(src_BS, tgt_in_BT))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert not torch.equal(runs[0], clean)


def test_paper_dropout_is_on_sub_layers_and_embedded_sums_only():
    model = tiny(dropout=0.3)
    active = [
        name for name, part in model.named_modules() if isinstance(part, Dropout) and part.share
    ]
    sub_layers = [name for name in active if name != "dropout"]
    assert "dropout" in active
    assert all(".add_norms." in name for name in sub_layers)
    assert len(sub_layers) == 2 * 2 + 2 * 3
    assert not [part for part in model.modules() if isinstance(part, nn.Dropout)]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999999])
def test_dropout_drops_its_share_and_keeps_the_mean(share: float):
    torch.manual_seed(1)
    dropout = Dropout(share)
    dropped = dropout(torch.ones(1_001, 1_003))
    assert (dropped == 0).double().mean().item() == pytest.approx(share, abs=2e-3)
    assert dropped[dropped > 0].unique().numel() == 1
    if share < 0.9:
        assert dropped.mean().item() == pytest.approx(1, abs=5e-3)


def test_dropout_is_independent_between_neighbours():
    torch.manual_seed(1)
    kept = (Dropout(0.5)(torch.ones(100_000)) > 0).double() - 0.5
    for distance in range(1, 9):
        assert abs((kept[distance:] * kept[:-distance]).mean().item()) < 0.004


def test_dropout_passes_gradients_where_it_kept():
    torch.manual_seed(1)
    x = torch.randn(5, 7, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(dropped == 0, 0.0, dropped / x).detach())


# Decoding by steps


def step_through(model: Transformer, src_BS: Tensor, tgt_in_BT: Tensor) -> Tensor:
    """Read a prefix per sentence token by token, in beam 1 of 3."""
    state = model.start(model.encode(src_BS))
    parent_BW = torch.tensor([[0, 1, 2]]).expand(len(src_BS), -1)
    steps = []
    for place in range(tgt_in_BT.shape[1]):
        token_BW = ids(len(src_BS), 3, seed=place)
        token_BW[:, 1] = tgt_in_BT[:, place]
        steps.append(model.step(token_BW, parent_BW, state)[:, 1])
    return torch.stack(steps, dim=1)


@every_variant
def test_steps_equal_whole_prefixes(options: dict[str, Any]):
    model = tiny(**options)
    src_BS, tgt_in_BT = pad_right(ids(3, 6), 2), ids(3, 8, seed=3)
    stepped = step_through(model, src_BS, tgt_in_BT)
    torch.testing.assert_close(stepped, model(src_BS, tgt_in_BT), rtol=0, atol=1e-12)


def test_beams_take_over_their_parents_prefixes():
    model = tiny()
    src_BS = ids(2, 5)
    state = model.start(model.encode(src_BS))
    prefix_BWT = torch.full((2, 2, 1), BOS)
    model.step(prefix_BWT[..., -1], torch.zeros(2, 2, dtype=torch.long), state)
    for place, parents in enumerate([[[0, 0], [1, 0]], [[1, 1], [1, 0]], [[0, 1], [0, 0]]]):
        parent_BW, token_BW = torch.tensor(parents), ids(2, 2, seed=place)
        taken_BWT = prefix_BWT.gather(1, parent_BW[..., None].expand_as(prefix_BWT))
        prefix_BWT = torch.cat([taken_BWT, token_BW[..., None]], dim=2)
        hidden_BWD = model.step(token_BW, parent_BW, state)
    expected = torch.stack([model(src_BS, prefix_BWT[:, w])[:, -1] for w in range(2)], dim=1)
    torch.testing.assert_close(hidden_BWD, expected, rtol=0, atol=1e-12)


def test_sentences_that_leave_change_nothing_for_the_others():
    model = tiny()
    src_BS, token_BW = ids(3, 5), ids(3, 2, seed=3)
    parent_BW = torch.tensor([[0, 1]] * 3)
    kept = torch.tensor([0, 2])
    state, smaller = (model.start(model.encode(src_BS)) for _ in range(2))
    model.step(token_BW, parent_BW, state)
    model.step(token_BW, parent_BW, smaller)
    smaller.keep(kept)
    whole = model.step(token_BW, parent_BW, state)
    part = model.step(token_BW[kept], parent_BW[kept], smaller)
    torch.testing.assert_close(part, whole[kept], rtol=0, atol=1e-12)


def test_beams_share_the_source():
    model = tiny()
    state = model.start(model.encode(ids(2, 5)))
    model.step(ids(2, 7), torch.zeros(2, 7, dtype=torch.long), state)
    for cache in state.caches:
        assert cache.source is not None
        assert cache.source.keys.shape == (2, 4, 5, 4)


def test_sequences_are_padded_at_the_end():
    assert pad_sequences([[5, 6, 7], [], [8]]).tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]
    assert pad_sequences([[], []]).tolist() == [[PAD], [PAD]]
    assert pad_sequences([(5,)]).dtype == torch.int64
