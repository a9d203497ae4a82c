"""A model exported to CTranslate2 translates as our own search does."""

import sys

import pytest
import torch

from model.config import BOS, EOS, PAD, ModelConfig, SearchConfig
from pipeline.errors import ConfigError, InputError, TradukoError
from pipeline.translating.bundle import load_bundle
from pipeline.translating.ctranslate2_engine import Ctranslate2Engine, is_export
from pipeline.translating.decoding import Batch, TorchEngine
from pipeline.translating.export import export_ctranslate2
from pipeline.translating.translator import Options, Translator

TEXTS = ["the man sees the house", "", "a wood", "der mann im haus", "the house in the wood."] * 4


@pytest.fixture(scope="module", params=["pre", "post"])
def folder(request, tmp_path_factory, make_bundle):
    """A model that has opinions, as a trained one: it ends, and never says PAD or BOS."""
    shape = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=2,
                        norm=request.param, max_positions=60)  # fmt: skip
    folder = make_bundle(tmp_path_factory.mktemp(request.param), shape)
    sharpen(folder)
    return folder


@torch.no_grad()
def sharpen(folder):
    from safetensors.torch import save_file

    model = load_bundle(folder).model
    last = (
        model.decoder_norm if model.config.norm == "pre" else model.decoder[-1].add_norms[-1].norm
    )
    last.weight.mul_(2.5)
    last.bias.add_(1.5 * model.embedding.weight[EOS])
    for layer in model.decoder:
        layer.cross_attention.output.weight.mul_(3)
    last.weight[0], last.bias[0], model.embedding.weight[:, 0] = 0, 1, 0
    model.embedding.weight[[PAD, BOS], 0] = -20
    save_file(model.state_dict(), folder / "model.safetensors")


@pytest.fixture(scope="module")
def exported(folder, tmp_path_factory):
    pytest.importorskip("ctranslate2")
    out = tmp_path_factory.mktemp("exported") / "new"
    export_ctranslate2(folder, out)
    return out


def some_batch(size=60):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 12, (size,), generator=generator).tolist()
    ids = [torch.randint(4, 48, (n,), generator=generator).tolist() for n in lengths]
    return Batch(ids, range(size))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_both_engines_find_the_same_with_the_same_scores(folder, exported, beam_size, alpha):
    search = SearchConfig(beam_size, alpha, max_extra_tokens=6)
    with TorchEngine(load_bundle(folder).model, 2) as ours:
        expected = ours.submit(some_batch(), search)()
    with Ctranslate2Engine(exported, "cpu", 2) as theirs:
        found = theirs.submit(some_batch(), search)()
    same = [one[0].ids == two[0].ids for one, two in zip(found, expected, strict=True)]
    assert sum(same) >= 58
    for one, two in zip(found, expected, strict=True):
        if one[0].ids == two[0].ids:
            assert one[0].score == pytest.approx(two[0].score, abs=1e-4)
            assert one[0].log_prob == pytest.approx(two[0].log_prob, abs=1e-4)
    assert len({len(h[0].ids) for h in expected}) > 2


def test_each_sentence_has_its_own_longest_length(folder, exported):
    search = SearchConfig(max_extra_tokens=2)
    batch = Batch([[5], [6] * 30, [7, 8]], range(3))
    with Ctranslate2Engine(exported, "cpu", 1) as engine:
        together = engine.submit(batch, search)()
        alone = [engine.submit(Batch([ids], [0]), search)()[0] for ids in batch.sources]
    assert [[h.ids for h in some] for some in together] == [[h.ids for h in some] for some in alone]
    assert len(together[0][0].ids) <= 4


def test_the_n_best_are_sorted_and_as_many_as_asked_for(exported):
    search = SearchConfig(beam_size=4, num_best=3, max_extra_tokens=6)
    with Ctranslate2Engine(exported, "cpu", 1) as engine:
        for found in engine.submit(some_batch(), search)():
            scores = [hypothesis.score for hypothesis in found]
            assert len(found) == 3
            assert scores == sorted(scores, reverse=True)


def test_a_translator_takes_a_bundle_or_an_export(folder, exported):
    options = Options(SearchConfig(max_extra_tokens=6))
    results = [
        [line.text for line in translator.translate(TEXTS, options)]
        for translator in (
            Translator.load(exported, threads=2),
            Translator.load(folder, engine="ctranslate2", threads=1),
            Translator.load(folder, device="cpu"),
        )
    ]
    assert results[0] == results[1]
    assert sum(map(str.__eq__, results[0], results[2])) >= 18
    assert results[0][1] == ""


def test_int8_is_smaller_and_still_translates(folder, exported, tmp_path):
    about = export_ctranslate2(folder, tmp_path / "int8", "int8")
    assert about["quantization"] == "int8"
    size, small = ((path / "model.bin").stat().st_size for path in (exported, tmp_path / "int8"))
    assert small < 0.8 * size
    found = list(Translator.load(tmp_path / "int8", threads=1).translate(TEXTS))
    assert len(found) == len(TEXTS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options(SearchConfig(sample=True)), "gives no samples: take the engine torch"),
        (Options(prefix="a"), "gives no prefixes"),
        (Options(alignments="words"), "gives no alignments"),
    ],
)
def test_what_the_engine_has_not_is_refused(exported, options, message):
    with pytest.raises(ConfigError, match=message):
        list(Translator.load(exported).translate(["a man"], options))


def test_a_folder_that_holds_something_is_left_alone(folder, tmp_path):
    pytest.importorskip("ctranslate2")
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match="must be a new or empty folder, but is not"):
        export_ctranslate2(folder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_the_package_it_says_what_to_install(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(InputError, match=r"is not installed: pip install 'traduko\[export\]'"):
        export_ctranslate2(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_heads_of_another_width_are_refused(tmp_path, make_bundle):
    pytest.importorskip("ctranslate2")
    shape = ModelConfig(dim=16, ff_dim=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                        key_dim=4)  # fmt: skip
    with pytest.raises(InputError, match=r"`key_dim` \(4\) and `value_dim` \(8\) must be 8"):
        export_ctranslate2(make_bundle(tmp_path, shape), tmp_path / "out")


def test_an_export_is_told_from_a_bundle(folder, exported):
    assert is_export(exported)
    assert not is_export(folder)
    with pytest.raises(InputError, match="holds a model for CTranslate2: take that engine"):
        Translator.load(exported, engine="torch")
    with pytest.raises(InputError, match="must be an exported model"):
        Ctranslate2Engine(folder)


def test_a_tokenizer_of_another_model_is_refused(folder, tmp_path):
    pytest.importorskip("ctranslate2")
    export_ctranslate2(folder, tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").write_text('{"normalise": false}\n')
    with pytest.raises(TradukoError, match="do not belong together"):
        Translator.load(tmp_path / "out")
