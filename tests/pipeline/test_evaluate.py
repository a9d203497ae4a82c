import io
import json
from collections import Counter
from dataclasses import dataclass, replace

import pytest
import sacrebleu
import sentencepiece
import torch
from safetensors.torch import load_file

import pipeline.translating.portions
from flows.cluster import Cluster
from model import checkpoint
from model.config import ModelConfig, SearchConfig
from model.transformer import Transformer
from pipeline.artifact import Identity, Root, digest_json
from pipeline.config import EvaluateConfig
from pipeline.errors import CorpusError
from pipeline.evaluate import evaluate
from pipeline.ray_compute import RayCompute
from pipeline.scoring.metrics import Kind, count_all, scores
from pipeline.text import normalise
from pipeline.translating.bundle import write_bundle

MODEL = ModelConfig(dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
                    max_positions=300)  # fmt: skip
SOURCES = [
    "a house in the wood",
    "",
    "the man\u2028sees the house",
    "the\u0085wood",
    "a house\rin the wood",
    "   ",
    "the man \x0b sees \x1c the \u2029 wood",
    "🏠",
]
REFERENCES = [
    "ein haus im wald",
    "der wald",
    "der mann\u2028sieht das haus",
    "",
    "ein haus\u0085im wald",
    "\x0c",
    "der mann sieht den wald",
    "das haus",
]


@pytest.fixture
def root(tmp_path):
    return Root(tmp_path / "root", lambda line: None)


@pytest.fixture
def average(root, tmp_path):
    """A bundle that translates, if not well."""

    def build(out, work):
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([text for text in SOURCES + REFERENCES if text.strip()] * 3),
            model_writer=model,
            model_type="char",
            vocab_size=60,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            minloglevel=2,
        )
        vocab = tmp_path / "vocab"
        vocab.mkdir()
        (vocab / "tokenizer.model").write_bytes(model.getvalue())
        (vocab / "tokenizer.json").write_text('{"normalise": false}\n')
        pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        torch.manual_seed(1)
        weights = Transformer(MODEL, pieces.get_piece_size()).state_dict()
        write_bundle(out, weights, MODEL, ("en", "de"), vocab)
        return {}

    return root.produce(Identity("average", 1, {}, ()), build)[0]


@pytest.fixture
def train_artifact(root, average):
    """Two checkpoints of other weights, of the model's shape."""
    weights = load_file(average.folder / "model.safetensors")

    def build(out, work):
        for step in (10, 20):
            checkpoint.save(
                out, step, {name: w * step / 20 for name, w in weights.items()}, None, {}
            )
        return {}

    return root.produce(Identity("train", 1, {}, ()), build)[0]


@pytest.fixture
def test_set(root):
    """What `download` makes of a test set."""

    def make(src, tgt):
        def build(out, work):
            for side, lines in (("src", src), ("tgt", tgt)):
                text = "".join(f"{line}\n" for line in lines)
                (out / side).write_text(text, encoding="utf-8", newline="\n")
            return {}

        return root.produce(Identity("download", 1, {"text": [src, tgt]}, ()), build)[0]

    return make


@dataclass(frozen=True)
class Echo:
    """A bundle whose translations are the texts themselves."""

    asked: list

    def translate(self, texts, search, tokens_per_batch):
        self.asked.append((list(texts), search, tokens_per_batch))
        return list(texts)


@pytest.fixture
def echo(monkeypatch):
    bundle = Echo([])
    monkeypatch.setattr(pipeline.translating.portions, "load_bundle", lambda folder, device: bundle)
    return bundle


def hypotheses(job, name):
    text = (job.out / "hypotheses" / f"{name}.txt").read_bytes().decode()
    assert text.endswith("\n")
    return text[:-1].split("\n")


def test_a_model_gives_one_line_for_each_source_line(average, test_set, make_job):
    job = make_job()
    config = EvaluateConfig(beam_size=2, max_extra_tokens=3, tokens_per_batch=40)
    evaluate(config, average, {"odd": test_set(SOURCES, REFERENCES)}, job)
    lines = hypotheses(job, "odd")
    assert len(lines) == len(SOURCES)
    assert (lines[1], lines[5]) == ("", "")
    assert any(lines), "it says something"


def test_what_ends_a_line_to_others_is_no_part_of_a_hypothesis(average, test_set, make_job, echo):
    job = make_job()
    evaluate(EvaluateConfig(), average, {"odd": test_set(SOURCES, REFERENCES)}, job)
    lines = hypotheses(job, "odd")
    assert Counter(echo.asked[0][0]) == Counter(SOURCES)
    assert lines == [" ".join(source.split()) for source in SOURCES]
    assert (job.out / "hypotheses" / "odd.txt").read_text().splitlines() == lines


def test_scores_are_written_and_returned_by_set(average, test_set, make_job, echo):
    job = make_job()
    sets = {
        "first": test_set(SOURCES, REFERENCES),
        "second": test_set(REFERENCES, SOURCES),
        "same": test_set(REFERENCES, REFERENCES),
    }
    stats = evaluate(EvaluateConfig(), average, sets, job)
    assert json.loads((job.out / "scores.json").read_text()) == stats["scores"]
    assert list(stats["scores"]) == ["first", "second", "same"]
    kind = Kind("de", "13a")
    counts = count_all(kind, hypotheses(job, "first"), REFERENCES)
    assert stats["scores"]["first"] == scores(kind, counts)
    assert stats["scores"]["second"] != stats["scores"]["first"]
    names = sorted(path.relative_to(job.out).as_posix() for path in job.out.rglob("*.*"))
    assert names == [
        "by_length.json",
        *(f"hypotheses/{name}.txt" for name in ("first", "same", "second")),
        *(f"pairs/{name}.jsonl" for name in ("first", "same", "second")),
        "scores.json",
        "sets.json",
    ]


def test_the_search_is_the_configs(average, test_set, make_job, echo):
    config = EvaluateConfig(beam_size=3, length_penalty=1.5, max_extra_tokens=7, tokens_per_batch=9)
    evaluate(config, average, {"odd": test_set(SOURCES, REFERENCES)}, make_job())
    assert echo.asked[0][1:] == (SearchConfig(3, 1.5, 7), 9)


def test_references_are_read_as_they_are(average, test_set, make_job, echo):
    raw = ["cafe\u0301  au lait", "die\u00a0Straße ist &amp;lt; lang", "“Haus” ﬁnden", "\ufeffWald"]
    settled = [normalise(text) for text in raw]
    stats = evaluate(EvaluateConfig(), average, {"odd": test_set(settled, raw)}, make_job())
    found = stats["scores"]["odd"]["chrf2"]["score"]
    assert found == pytest.approx(sacrebleu.corpus_chrf(settled, [raw]).score, abs=0.005)
    assert found < 99, "the references differ from their normal form"


def test_sides_of_different_length_are_refused(average, test_set, make_job, echo):
    with pytest.raises(CorpusError, match=r"8 lines and .* has 7"):
        evaluate(EvaluateConfig(), average, {"odd": test_set(SOURCES, REFERENCES[:7])}, make_job())


def test_what_compare_needs_is_kept(average, test_set, make_job, echo):
    job = make_job()
    evaluate(EvaluateConfig(), average, {"odd": test_set(SOURCES, REFERENCES)}, job)
    lines = (job.out / "pairs" / "odd.jsonl").read_bytes().decode().split("\n")[:-1]
    rows = [json.loads(line) for line in lines]
    assert [(row["src"], row["ref"]) for row in rows] == list(zip(SOURCES, REFERENCES, strict=True))
    described = json.loads((job.out / "sets.json").read_text())
    assert (described["src"], described["tgt"], described["tokenizer"]) == ("en", "de", "13a")
    assert described["sets"]["odd"]["sentences"] == len(SOURCES)
    assert described["sets"]["odd"]["references"] == digest_json(REFERENCES)


def test_bleu_by_length_counts_every_sentence_once(average, test_set, make_job, echo):
    sources = [" ".join(["word"] * size) for size in (0, 1, 10, 11, 20, 21, 61, 100)] + ["東" * 35]
    stats = evaluate(EvaluateConfig(), average, {"odd": test_set(sources, sources)}, make_job())
    found = stats["bleu_by_length"]["odd"]
    assert {name: bucket["sentences"] for name, bucket in found.items()} == {
        "0-10": 3, "11-20": 2, "21-30": 1, "31-40": 1, "61-": 2,
    }  # fmt: skip
    assert all(bucket["bleu"]["label"] == "BLEU (13a)" for bucket in found.values())


@pytest.mark.parametrize(("size", "remark"), [(3_003, ""), (2_737, "filtered"), (9, "has 3,003")])
def test_newstest2014_whole_and_filtered_are_told_apart(
    average, test_set, make_job, echo, size, remark
):
    said = []
    job = replace(make_job(), say=said.append)
    lines = ["Ein well-known Wort."] * size
    config = EvaluateConfig(paper_scores=["newstest2014"])
    stats = evaluate(config, average, {"newstest2014": test_set(lines, lines)}, job)
    found = stats["scores"]["newstest2014"]
    assert [found[name]["score"] for name in ("bleu", "bleu_tokenised_split", "bleu_lowercased")] == [100.0] * 3  # fmt: skip
    assert all((remark in score["label"]) for score in found.values())
    assert len(said) == bool(remark)
    assert len({score["label"] for score in found.values()}) == len(found)


def test_every_kept_checkpoint_is_scored(average, train_artifact, test_set, make_job):
    job = make_job()
    config = EvaluateConfig(beam_size=1, max_extra_tokens=3, every_checkpoint=True)
    sets = {"odd": test_set(SOURCES, REFERENCES)}
    evaluate(config, average, sets, job, train_artifact)
    curve = json.loads((job.out / "curve.json").read_text())
    assert [point["step"] for point in curve["odd"]] == [10, 20]
    assert curve["odd"][0]["bleu"]["signature"].startswith("nrefs:1|")
    assert (job.out / "curve.svg").read_text().startswith("<?xml")


@pytest.fixture
def ray_compute():
    cluster = Cluster(None)
    yield RayCompute(cluster.connect)
    cluster.leave()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # it warns of its own settings
def test_translations_are_the_same_on_any_number_of_workers(
    average, test_set, make_job, ray_compute, monkeypatch
):
    monkeypatch.setattr(pipeline.translating.portions, "ROWS_PER_PORTION", 3)
    config = EvaluateConfig(beam_size=2, max_extra_tokens=5, tokens_per_batch=60)
    sets = {"odd": test_set(SOURCES, REFERENCES), "two": test_set(REFERENCES, SOURCES)}
    here, there = make_job("here"), make_job("there", ray_compute)
    assert evaluate(config, average, sets, here) == evaluate(config, average, sets, there)
    for name in sets:
        assert hypotheses(here, name) == hypotheses(there, name)
