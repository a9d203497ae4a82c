"""Batches searched side by side: the same whoever does it, ended at once, leaving torch as it was."""

import threading
import time

import pytest
import torch

from model.config import EOS, ModelConfig, SearchConfig
from model.search import Stopped, beam_search
from model.transformer import Transformer, pad_sequences
from pipeline.errors import TradukoError
from pipeline.translating.decoding import Batch, TorchEngine, cut_batches

CONFIG = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2)
SEARCH = SearchConfig(beam_size=3, num_best=3, max_extra_tokens=10, align_layer=1)


@pytest.fixture
def model():
    torch.manual_seed(2)
    return Transformer(CONFIG, 50).eval()


def some_batches(count=12, size=8):
    generator = torch.Generator().manual_seed(1)
    return [
        Batch(torch.randint(4, 50, (size, 3 + n), generator=generator).tolist(), range(size))
        for n in range(count)
    ]


def search_all(engine, batches, search=SEARCH):
    waits = [engine.submit(batch, search) for batch in batches]
    return [wait() for wait in waits]


def test_any_number_of_workers_gives_the_same_bits(model):
    found = []
    for num_workers in (1, 2, 3):
        with TorchEngine(model, num_workers) as engine:
            assert engine.num_workers == num_workers
            found.append(search_all(engine, some_batches()))
    assert found[0] == found[1] == found[2]
    assert len({hypotheses[0].ids for batch in found[0] for hypotheses in batch}) > 50


def test_what_an_engine_finds_is_what_a_search_finds(model):
    model.double()
    (batch,) = some_batches(1)
    with TorchEngine(model, 2) as engine:
        (found,) = search_all(engine, [batch])
    src_BS = pad_sequences([[*ids, EOS] for ids in batch.sources])
    expected = beam_search(model, src_BS, SEARCH)
    assert [[h.ids for h in some] for some in found] == [[h.ids for h in some] for some in expected]


def test_workers_have_a_thread_each_and_the_callers_setting_stays(model):
    seen = []
    hook = model.decoder_norm.register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with TorchEngine(model) as engine:
            assert engine.num_workers == 3
            assert torch.get_num_threads() == number_in_new_thread() == 3
            search_all(engine, some_batches(4))
        assert torch.get_num_threads() == number_in_new_thread() == 3
    finally:
        torch.set_num_threads(before)
        hook.remove()
    assert set(seen) == {1}


def number_in_new_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def test_an_error_comes_from_the_batch_that_has_it_and_the_others_are_unharmed(model):
    good, bad = some_batches(1)[0], Batch([[5]], [0], [[EOS]])
    with TorchEngine(model, 2) as engine:
        waits = [engine.submit(batch, SEARCH) for batch in (good, bad, good)]
        assert waits[0]() == waits[2]()
        with pytest.raises(TradukoError, match="holds padding, begin or end"):
            waits[1]()


def test_leaving_early_ends_what_is_under_way_within_a_step(model):
    with torch.no_grad():
        model.embedding.weight[EOS] = 0  # hardly ever likely: searches go on to the longest length
    long = Batch([[5] * 900], [0])
    with TorchEngine(model, 1) as engine:
        wait = engine.submit(long, SearchConfig(beam_size=8))
        never = engine.submit(long, SearchConfig())
        time.sleep(0.1)
        started_s = time.perf_counter()
    assert time.perf_counter() - started_s < 5
    with pytest.raises(Stopped):
        wait()
    del never


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([], 10, []),
        ([1, 1], 10, []),
        ([3, 1, 5, 2], 10, [[2, 0], [3]]),
        ([20, 20], 10, [[0], [1]]),
        ([2, 2, 2], 4, [[0, 1], [2]]),
    ],
)
def test_batches_are_cut_at_the_budget_longest_first(lengths, budget, batches):
    assert cut_batches(lengths, budget) == batches
