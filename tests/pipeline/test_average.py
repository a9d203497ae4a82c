import dataclasses
import io
import json
import os
import shutil
from dataclasses import asdict

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file

from model import checkpoint
from model.config import ModelConfig
from model.transformer import Transformer
from pipeline.artifact import Identity, Root
from pipeline.average import average
from pipeline.config import RunConfig
from pipeline.errors import TradukoError
from pipeline.translating.bundle import load_bundle

MODEL = ModelConfig(dim=8, ff_dim=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    max_positions=300)  # fmt: skip
VOCAB_SIZE = 24


@pytest.fixture(scope="module")
def pieces():
    """A SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ein haus im wald", "a house in the wood"] * 4),
        model_writer=model,
        model_type="char",
        vocab_size=VOCAB_SIZE,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path / "root", lambda line: None)


@pytest.fixture
def vocab(root, pieces):
    def build(out, work):
        (out / "tokenizer.model").write_bytes(pieces)
        (out / "tokenizer.json").write_text('{"normalise": true}\n')
        return {}

    return root.produce(Identity("vocab", 1, {}, ()), build)[0]


@pytest.fixture
def trained(root, pieces):
    """What `train` makes: checkpoints of these weights, after 10, 20, … steps."""
    size = sentencepiece.SentencePieceProcessor(model_proto=pieces).get_piece_size()

    def make(fill, *numbers, best=()):
        def build(out, work):
            for index, number in enumerate(numbers, 1):
                history = {"best": best, "skipped": None}
                meta = {"history": history}
                path = checkpoint.save(work, 10 * index, fill(size, number), None, meta)
                (out / path.name).mkdir()
                for file in path.iterdir():
                    os.link(file, out / path.name / file.name)
            (out / "events.jsonl").write_text("")
            return {}

        config = {"fill": fill.__name__, "numbers": numbers, "best": best}
        return root.produce(Identity("train", 1, config, ()), build)[0]

    return make


def constant(size, number):
    """Weights that are all the same number."""
    names = Transformer(MODEL, size).state_dict()
    return {name: torch.full_like(tensor, number) for name, tensor in names.items()}


def random(size, seed):
    torch.manual_seed(seed)
    return Transformer(MODEL, size).state_dict()


@pytest.fixture
def recipe():
    def make(last, **average):
        return RunConfig.model_validate(
            {
                "name": "test",
                "src": "en",
                "tgt": "de",
                "root": "/secret/place",
                "download": {
                    "train": [{"name": "text", "builtin": {"split": "train"}}],
                    "dev": [{"name": "dev", "builtin": {"split": "dev"}}],
                },
                "model": asdict(MODEL),
                "average": {"last": last, **average},
                "train": {"keep_best_checkpoints": 3},
                "evaluate": {"beam_size": 7},
                "compute": {"num_workers": 4},
            }
        )

    return make


@pytest.mark.parametrize(("last", "mean"), [(1, 32.0), (2, 24.0), (4, 15.0), (5, 12.4)])
def test_the_last_checkpoints_are_averaged(trained, vocab, recipe, make_job, last, mean):
    job = make_job()
    stats = average(recipe(last), trained(constant, 2, 4, 8, 16, 32), vocab, job)
    steps = [10, 20, 30, 40, 50][-last:]
    assert stats["checkpoints"] == [f"step-{step:08d}" for step in steps]
    weights = load_file(job.out / "model.safetensors")
    assert all(torch.equal(w, torch.full_like(w, mean)) for w in weights.values())
    assert stats["parameters"] == sum(w.numel() for w in weights.values())


@pytest.mark.parametrize(("best", "steps"), [(1, [30]), (2, [10, 30]), (3, [10, 30])])
def test_the_best_by_dev_loss_are_averaged(trained, vocab, recipe, make_job, best, steps):
    train = trained(constant, 2, 4, 8, 16, best=[[1.5, 30], [1.7, 10]])
    said = []
    job = dataclasses.replace(make_job(), say=said.append)
    stats = average(recipe(1, best=best), train, vocab, job)
    assert stats["checkpoints"] == [f"step-{step:08d}" for step in steps]
    weights = load_file(job.out / "model.safetensors")
    mean = {1: 8.0, 2: 5.0, 3: 5.0}[best]
    assert all(torch.equal(w, torch.full_like(w, mean)) for w in weights.values())
    assert said == (
        ["average: only 2 checkpoints were measured on the dev set"] if best == 3 else []
    )


def test_the_best_need_a_measurement(trained, vocab, recipe, make_job):
    with pytest.raises(TradukoError, match=r"`average\.best` needs checkpoints that were measured"):
        average(recipe(1, best=1), trained(constant, 2, 4), vocab, make_job())


def test_the_mean_of_equal_checkpoints_has_their_bits(trained, vocab, recipe, make_job):
    train, job = trained(random, 3, 3, 3), make_job()
    average(recipe(3), train, vocab, job)
    expected = load_file(train.path("step-00000010/weights.safetensors"))
    found = load_file(job.out / "model.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_checkpoint_that_is_not_averaged_does_not_matter(trained, vocab, recipe, make_job):
    train, job = trained(random, 1, 2, 3), make_job()
    train.path("step-00000010/weights.safetensors").write_bytes(b"")
    average(recipe(2), train, vocab, job)
    assert (job.out / "model.safetensors").exists()


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_named(trained, vocab, recipe, make_job, damage):
    train = trained(random, 1, 2)
    path = train.path("step-00000020/weights.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content if damage == "flipped" else content[:-100])
    with pytest.raises(TradukoError, match=r"step-00000020 is damaged: weights\.safetensors"):
        average(recipe(2), train, vocab, make_job())


def test_the_bundle_is_complete_and_needs_nothing_else(
    root, trained, vocab, recipe, make_job, tmp_path
):
    job = make_job()
    average(recipe(2), trained(random, 1, 2), vocab, job)
    assert sorted(path.name for path in job.out.iterdir()) == [
        "config.json", "model.safetensors", "recipe.json", "tokenizer.json", "tokenizer.model",
    ]  # fmt: skip
    job.out.rename(tmp_path / "elsewhere")
    shutil.rmtree(root.folder)
    bundle = load_bundle(tmp_path / "elsewhere")
    assert (bundle.src, bundle.tgt) == ("en", "de")
    assert bundle.model.config == MODEL
    assert bundle.model.vocab_size == bundle.tokenizer.vocab_size


def test_the_recipe_says_what_made_the_model_and_not_where(trained, vocab, recipe, make_job):
    job = make_job()
    average(recipe(1), trained(random, 1), vocab, job)
    text = (job.out / "recipe.json").read_text()
    assert json.loads(text).keys() == {
        "name", "src", "tgt", "seed", "download", "clean", "dedup", "vocab", "tokenize",
        "model", "train", "average",
    }  # fmt: skip
    assert "/secret/place" not in text
