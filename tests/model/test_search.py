"""Beam search: exact where it can be, greedy with one beam, the same in every batch."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch import Tensor

from model.config import BOS, EOS, PAD, ModelConfig, SearchConfig
from model.memory import Memory
from model.search import Extras, Hypothesis, Search, Stopped, beam_search, length_penalty
from model.transformer import Transformer, pad_sequences


def sharp_model(
    vocab_size: int = 13, seed: int = 1, max_positions: int = 64, end_bias: float = 1.0
) -> Transformer:
    """A random model in fp64 that has opinions: some sentences end early, some late."""
    torch.manual_seed(seed)
    config = ModelConfig(
        dim=16,
        ff_dim=32,
        num_heads=2,
        num_encoder_layers=1,
        num_decoder_layers=2,
        norm="pre",
        max_positions=max_positions,
    )
    model = Transformer(config, vocab_size).double().eval()
    with torch.no_grad():
        model.decoder_norm.weight.mul_(2.5)
        model.decoder_norm.bias.add_(end_bias * model.embedding.weight[EOS])
        for layer in model.decoder:
            layer.self_attention.output.weight.mul_(2)
            layer.cross_attention.output.weight.mul_(3)
    return model


def sentences(count: int, vocab_size: int = 13, seed: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [
        [*torch.randint(4, vocab_size, (n,), generator=generator).tolist(), EOS] for n in lengths
    ]


def search_all(
    model: Transformer, sources: list[list[int]], config: SearchConfig, batch_size: int
) -> list[list[Hypothesis]]:
    batches = [sources[i : i + batch_size] for i in range(0, len(sources), batch_size)]
    return [
        found for batch in batches for found in beam_search(model, pad_sequences(batch), config)
    ]


class WholePrefixes:
    """A decoding state without a cache."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.prefix_BWT = torch.zeros(len(memory.attend_BS), 1, 0, dtype=torch.long)

    def keep(self, rows_B: Tensor):
        self.memory = Memory(*(part[rows_B] for part in self.memory))
        self.prefix_BWT = self.prefix_BWT[rows_B]


def decode_without_cache(model: Transformer, monkeypatch: pytest.MonkeyPatch):
    """Let the model read whole prefixes in every step."""

    def step(token_BW: Tensor, parent_BW: Tensor, state: WholePrefixes) -> Tensor:
        beam_size, length = token_BW.shape[1], state.prefix_BWT.shape[2]
        taken_BWT = state.prefix_BWT.gather(1, parent_BW[..., None].expand(-1, -1, length))
        state.prefix_BWT = torch.cat([taken_BWT, token_BW[..., None]], dim=2)
        memory = Memory(*(part.repeat_interleave(beam_size, dim=0) for part in state.memory))
        hidden = model.decode(state.prefix_BWT.flatten(0, 1), memory)[:, -1]
        return hidden.unflatten(0, (-1, beam_size))

    monkeypatch.setattr(model, "start", WholePrefixes)
    monkeypatch.setattr(model, "step", step)


def forced_log_prob(model: Transformer, source: list[int], tokens: tuple[int, ...]) -> float:
    """Log-probability of target tokens, read from whole prefixes."""
    tgt_in_BT = torch.tensor([[BOS, *tokens[:-1]]])
    with torch.no_grad():
        log_probs_TV = model.logits(model(torch.tensor([source]), tgt_in_BT))[0].log_softmax(-1)
    return sum(log_probs_TV[place, token].item() for place, token in enumerate(tokens))


def greedy(model: Transformer, source: list[int], max_length: int) -> tuple[int, ...]:
    ids: list[int] = []
    while len(ids) < max_length:
        with torch.no_grad():
            hidden_BTD = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))
        logits_V = model.logits(hidden_BTD[0, -1])
        logits_V[[PAD, BOS]] = -math.inf
        token = int(logits_V.argmax())
        if token == EOS:
            break
        ids.append(token)
    return tuple(ids)


def tokens_of(hypothesis: Hypothesis, max_length: int) -> tuple[int, ...]:
    """With EOS, but where the longest length cut the hypothesis off."""
    return hypothesis.ids if len(hypothesis.ids) == max_length else (*hypothesis.ids, EOS)


@pytest.mark.parametrize(("seed", "end_bias"), [(1, 1.0), (1, 2.0), (3, 3.0)])
@pytest.mark.parametrize("exponent", [0.6, 9.0])
def test_one_beam_is_greedy_search(seed: int, end_bias: float, exponent: float):
    model, sources = sharp_model(seed=seed, end_bias=end_bias), sentences(8, seed=seed)
    config = SearchConfig(beam_size=1, length_penalty=exponent, max_extra_tokens=6)
    found = search_all(model, sources, config, 8)
    expected = [greedy(model, source, len(source) + 6) for source in sources]
    assert [hypotheses[0].ids for hypotheses in found] == expected
    assert len({len(ids) for ids in expected}) > 1


@pytest.mark.parametrize("exponent", [-0.7, 0.0, 0.6, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_beam_as_wide_as_all_prefixes_finds_the_best(exponent: float, seed: int):
    model, source, max_length = sharp_model(6, seed), [4, EOS], 4
    all_ids = [
        ids
        for length in range(max_length + 1)
        for ids in itertools.product((1, 4, 5), repeat=length)
    ]
    scored: list[tuple[float, tuple[int, ...]]] = []
    for ids in all_ids:
        tokens = ids if len(ids) == max_length else (*ids, EOS)
        log_prob = forced_log_prob(model, source, tokens)
        scored.append((log_prob / length_penalty(len(tokens), exponent), ids))
    scored.sort(reverse=True)
    config = SearchConfig(
        beam_size=len(all_ids), length_penalty=exponent, max_extra_tokens=2, num_best=5
    )
    found = beam_search(model, torch.tensor([source]), config)[0]
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in scored[:5]]
    assert [hypothesis.score for hypothesis in found] == pytest.approx(
        [score for score, _ in scored[:5]], rel=1e-9
    )


def test_results_do_not_depend_on_the_batch():
    model, sources = sharp_model(), sentences(8)
    config = SearchConfig(beam_size=4, max_extra_tokens=8, num_best=3)
    alone = search_all(model, sources, config, 1)
    for batch_size in (3, 8):
        batched = search_all(model, sources, config, batch_size)
        for one, other in zip(alone, batched, strict=True):
            assert [hypothesis.ids for hypothesis in one] == [h.ids for h in other]
            for left, right in zip(one, other, strict=True):
                assert left.score == pytest.approx(right.score, rel=1e-12)


def test_no_batch_size_and_no_cache_changes_a_translation_in_fp64(monkeypatch: pytest.MonkeyPatch):
    model, sources, config = sharp_model(), sentences(70), SearchConfig(max_extra_tokens=8)
    alone, *others = (search_all(model, sources, config, size) for size in (1, 7, 64))
    decode_without_cache(model, monkeypatch)
    others += [search_all(model, sources, config, size) for size in (1, 64)]
    for other in others:
        assert [found[0].ids for found in other] == [found[0].ids for found in alone]
    assert len({len(found[0].ids) for found in alone}) > 5


def test_in_fp32_translations_differ_in_ties_only(monkeypatch: pytest.MonkeyPatch):
    model, sources, config = (
        sharp_model().float(),
        sentences(200),
        SearchConfig(max_extra_tokens=8),
    )
    alone, *others = (search_all(model, sources, config, size) for size in (1, 7, 64))
    decode_without_cache(model, monkeypatch)
    others.append(search_all(model, sources, config, 64))
    for other in others:
        pairs = [(one[0], two[0]) for one, two in zip(alone, other, strict=True)]
        different = [(one, two) for one, two in pairs if one.ids != two.ids]
        assert len(different) <= len(sources) // 200
        assert all(abs(one.score - two.score) < 1e-4 for one, two in different)


def test_bf16_finds_what_fp32_finds_but_for_close_calls():
    model, sources, config = sharp_model(), sentences(40), SearchConfig(max_extra_tokens=8)
    exact = search_all(model, sources, config, 40)
    coarse = search_all(model.bfloat16(), sources, config, 40)
    close = [
        one[0].score == pytest.approx(two[0].score, abs=0.1)
        for one, two in zip(exact, coarse, strict=True)
    ]
    assert sum(close) > 30


def test_results_do_not_depend_on_padding():
    model, sources = sharp_model(), sentences(3)
    src_BS = pad_sequences(sources)
    wide_BS = torch.cat([src_BS, torch.full((3, 7), PAD)], dim=1)
    for narrow, wide in zip(
        beam_search(model, src_BS, SearchConfig()),
        beam_search(model, wide_BS, SearchConfig()),
        strict=True,
    ):
        assert narrow[0].ids == wide[0].ids
        assert narrow[0].score == pytest.approx(wide[0].score, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_equal_teacher_forcing(dtype: torch.dtype):
    model, sources = sharp_model().to(dtype), sentences(6)
    config = SearchConfig(beam_size=4, max_extra_tokens=5, num_best=4)
    for source, found in zip(sources, search_all(model, sources, config, 6), strict=True):
        for hypothesis in found:
            tokens = tokens_of(hypothesis, len(source) + 5)
            forced = forced_log_prob(model, source, tokens)
            assert hypothesis.log_prob == pytest.approx(forced, abs=1e-5)
            penalty = ((5 + len(tokens)) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(hypothesis.log_prob / penalty, rel=1e-12)


def test_the_n_best_are_sorted_distinct_and_begin_with_the_best():
    model, sources = sharp_model(), sentences(8)
    many = search_all(model, sources, SearchConfig(num_best=4), 8)
    one = search_all(model, sources, SearchConfig(num_best=1), 8)
    for found, best in zip(many, one, strict=True):
        assert len(found) == 4
        assert len({hypothesis.ids for hypothesis in found}) == 4
        scores = [hypothesis.score for hypothesis in found]
        assert scores == sorted(scores, reverse=True)
        assert best[0].ids == found[0].ids


@pytest.mark.parametrize("exponent", [-0.7, 0.0, 0.6, 2.0])
@pytest.mark.parametrize("num_best", [1, 3])
def test_stopping_early_changes_nothing(
    exponent: float, num_best: int, monkeypatch: pytest.MonkeyPatch
):
    model, sources = sharp_model(end_bias=2.5), sentences(8)
    config = SearchConfig(
        beam_size=16, length_penalty=exponent, num_best=num_best, max_extra_tokens=9
    )
    early, early_steps = count_steps(model, sources, config)
    monkeypatch.setattr(Search, "_bound", lambda *_: math.inf)
    late, late_steps = count_steps(model, sources, config)
    assert early == late
    assert early_steps <= late_steps


def test_stopping_early_saves_steps(monkeypatch: pytest.MonkeyPatch):
    model, sources = sharp_model(), sentences(8)
    _, early_steps = count_steps(model, sources, SearchConfig(beam_size=12, length_penalty=0.0))
    monkeypatch.setattr(Search, "_bound", lambda *_: math.inf)
    _, late_steps = count_steps(model, sources, SearchConfig(beam_size=12, length_penalty=0.0))
    assert early_steps < late_steps


def count_steps(
    model: Transformer, sources: list[list[int]], config: SearchConfig
) -> tuple[list[list[tuple[int, ...]]], int]:
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    hook = model.decoder_norm.register_forward_hook(count)
    found = [
        [hypothesis.ids for hypothesis in beam_search(model, torch.tensor([source]), config)[0]]
        for source in sources
    ]
    hook.remove()
    return found, steps


def test_padding_and_begin_are_never_generated():
    model, sources = sharp_model(), sentences(8)
    with torch.no_grad():
        model.decoder_norm.bias.add_(20 * model.embedding.weight[[PAD, BOS]].sum(0))
    for found in search_all(model, sources, SearchConfig(num_best=4), 8):
        for hypothesis in found:
            assert not {PAD, BOS, EOS} & set(hypothesis.ids)


def test_hypotheses_end_at_the_length_of_their_own_source_plus_the_extra():
    model, sources = sharp_model(), [[5, EOS], [5, 6, 7, 8, EOS]]
    with torch.no_grad():
        model.decoder_norm.bias.sub_(40 * model.embedding.weight[EOS])
    found = beam_search(model, pad_sequences(sources), SearchConfig(max_extra_tokens=3))
    assert [len(hypotheses[0].ids) for hypotheses in found] == [2 + 3, 5 + 3]


def test_hypotheses_fit_the_positions():
    model = sharp_model(max_positions=6)
    with torch.no_grad():
        model.decoder_norm.bias.sub_(40 * model.embedding.weight[EOS])
    found = beam_search(model, torch.tensor([[5, 6, EOS]]), SearchConfig())
    assert len(found[0][0].ids) == 6


def test_an_empty_source_still_has_a_translation():
    found = beam_search(sharp_model(), pad_sequences([[], [5, EOS]]), SearchConfig())
    assert [len(hypotheses) for hypotheses in found] == [1, 1]
    assert beam_search(sharp_model(), pad_sequences([[]]), SearchConfig(max_extra_tokens=0))[0]


def test_no_sentences_give_no_translations():
    assert beam_search(sharp_model(), torch.zeros(0, 3, dtype=torch.long), SearchConfig()) == []


def test_the_length_penalty_is_the_papers():
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(100, 0.0) == 1


def test_a_model_in_training_is_refused():
    with pytest.raises(ValueError, match=r"must be in evaluation mode, but is training: call eval"):
        beam_search(sharp_model().train(), torch.tensor([[5, EOS]]), SearchConfig())


def test_a_model_that_gives_no_numbers_is_refused():
    model = sharp_model()
    with torch.no_grad():
        model.embedding.weight[7] = math.nan
    with pytest.raises(ValueError, match="must be a number, but the model gives NaN"):
        beam_search(model, torch.tensor([[5, EOS]]), SearchConfig())


def test_searching_does_not_change_its_input():
    src_BS: Tensor = pad_sequences([[5, 6, EOS], [], [7, EOS]])
    before = src_BS.clone()
    beam_search(sharp_model(), src_BS, SearchConfig())
    assert torch.equal(src_BS, before)


def test_a_search_can_be_ended_from_outside():
    asked = iter([False, False, True])
    extras = Extras(is_stopped=lambda: next(asked))
    with pytest.raises(Stopped):
        beam_search(sharp_model(), pad_sequences(sentences(3)), SearchConfig(), extras)
    assert next(asked, None) is None


# Forced prefixes


def test_a_forced_prefix_begins_every_hypothesis_and_counts_in_its_score():
    model, sources = sharp_model(), sentences(6)
    prefixes = [[], [4], [5, 6], [7, 8, 9], [4, 4], []]
    config = SearchConfig(num_best=3, max_extra_tokens=6)
    found = beam_search(model, pad_sequences(sources), config, Extras(prefixes))
    free = beam_search(model, pad_sequences(sources), config)
    for row, (source, prefix) in enumerate(zip(sources, prefixes, strict=True)):
        for hypothesis in found[row]:
            assert list(hypothesis.ids[: len(prefix)]) == prefix
            forced = forced_log_prob(model, source, tokens_of(hypothesis, len(source) + 6))
            assert hypothesis.log_prob == pytest.approx(forced, abs=1e-9)
        if not prefix:
            assert [h.ids for h in found[row]] == [h.ids for h in free[row]]


def test_forcing_what_greedy_search_finds_changes_nothing():
    model, sources = sharp_model(), sentences(6)
    config = SearchConfig(beam_size=1)
    free = beam_search(model, pad_sequences(sources), config)
    prefixes = [found[0].ids[: row % 4] for row, found in enumerate(free)]
    forced = beam_search(model, pad_sequences(sources), config, Extras(prefixes))
    assert [found[0].ids for found in forced] == [found[0].ids for found in free]


def test_a_prefix_as_long_as_the_longest_translation_is_the_translation():
    config = SearchConfig(max_extra_tokens=1)
    (found,) = beam_search(sharp_model(), torch.tensor([[5, EOS]]), config, Extras([[4, 5, 6]]))
    assert [hypothesis.ids for hypothesis in found] == [(4, 5, 6)]


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (
            [4, 5, 6, 7],
            r"at most as many tokens as its translation \(3\), but that of sentence 1 has 4",
        ),
        ([4, EOS], "that of sentence 1 holds padding, begin or end"),
    ],
)
def test_a_prefix_that_cannot_be_is_refused(prefix: list[int], message: str):
    config = SearchConfig(max_extra_tokens=1)
    with pytest.raises(ValueError, match=message):
        beam_search(
            sharp_model(), pad_sequences([[5, EOS]] * 2), config, Extras(prefixes=[[], prefix])
        )


# Samples


def sample_all(model: Transformer, sources: list[list[int]], config: SearchConfig, size: int):
    found = []
    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        numbers = range(start, start + len(some))
        found += beam_search(model, pad_sequences(some), config, Extras(numbers=numbers))
    return [[hypothesis.ids for hypothesis in hypotheses] for hypotheses in found]


def test_samples_depend_on_seed_and_sentence_number_and_not_on_the_batch():
    model, sources = sharp_model(), sentences(12)
    config = SearchConfig(sample=True, num_best=5, beam_size=1, max_extra_tokens=6)
    alone = sample_all(model, sources, config, 1)
    assert sample_all(model, sources, config, 5) == sample_all(model, sources, config, 12) == alone
    assert all(len(found) == 5 for found in alone)
    assert sample_all(model, sources, dataclasses.replace(config, seed=2), 12) != alone
    turned = sample_all(model, sources[6:] + sources[:6], config, 12)
    assert turned[6:] + turned[:6] != alone


def test_samples_have_the_models_probabilities():
    model, count = sharp_model(vocab_size=8), 1000
    source = [4, 5, EOS]
    hidden_BTD = model(torch.tensor([source]), torch.tensor([[BOS]]))
    logits_V = model.logits(hidden_BTD[0, 0]).detach()
    logits_V[[PAD, BOS]] = -math.inf
    config = SearchConfig(sample=True, num_best=count, max_extra_tokens=0, temperature=1.5)
    (found,) = beam_search(model, torch.tensor([source]), config)
    first_N = torch.tensor([(*hypothesis.ids, EOS)[0] for hypothesis in found])
    drawn_V = torch.bincount(first_N, minlength=8) / count
    expected_V = (logits_V / 1.5).softmax(-1)
    error_V = (expected_V * (1 - expected_V) / count).sqrt()
    assert ((drawn_V - expected_V).abs() <= 4 * error_V).all()


@pytest.mark.parametrize("options", [{"temperature": 1e-6}, {"top_k": 1}])
def test_samples_of_the_likeliest_alone_are_greedy_search(options: dict[str, float]):
    model, sources = sharp_model(), sentences(6)
    config = SearchConfig(sample=True, max_extra_tokens=6, **options)  # type: ignore[arg-type]
    expected = [[greedy(model, source, len(source) + 6)] for source in sources]
    assert sample_all(model, sources, config, 6) == expected


def test_a_samples_score_is_the_models():
    model, source = sharp_model(), [4, 7, EOS]
    config = SearchConfig(sample=True, num_best=6, temperature=2.0, top_k=5, max_extra_tokens=3)
    (found,) = beam_search(model, torch.tensor([source]), config)
    for hypothesis in found:
        forced = forced_log_prob(model, source, tokens_of(hypothesis, len(source) + 3))
        assert hypothesis.log_prob == pytest.approx(forced, abs=1e-9)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_alignments_name_a_source_position_for_each_token():
    model, sources = sharp_model(), sentences(6)
    config = SearchConfig(align_layer=2, num_best=3, max_extra_tokens=5)
    found = beam_search(model, pad_sequences(sources), config)
    plain = beam_search(model, pad_sequences(sources), dataclasses.replace(config, align_layer=0))
    for source, some, bare in zip(sources, found, plain, strict=True):
        alone = beam_search(model, torch.tensor([source]), config)[0]
        assert [h.alignment for h in some] == [h.alignment for h in alone]
        assert [h.ids for h in some] == [h.ids for h in bare]
        for hypothesis in some:
            assert len(hypothesis.alignment) == len(hypothesis.ids)
            assert set(hypothesis.alignment) <= set(range(len(source)))
        assert not any(h.alignment for h in bare)
