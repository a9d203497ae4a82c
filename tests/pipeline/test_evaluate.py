import io
import json
import random
from dataclasses import dataclass

import pytest
import sacrebleu
import sentencepiece
import torch

import pipeline.evaluate
from model.config import ModelConfig, SearchConfig
from model.transformer import Transformer
from pipeline.artifact import Identity, Root
from pipeline.bundle import write_bundle
from pipeline.config import EvaluateConfig
from pipeline.errors import CorpusError
from pipeline.evaluate import evaluate, score
from pipeline.text import normalise

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

    def translate(self, texts, search, tokens_per_batch, progress):
        self.asked.append((list(texts), search, tokens_per_batch))
        progress(len(texts), len(texts), "sentences")
        return list(texts)


@pytest.fixture
def echo(monkeypatch):
    bundle = Echo([])
    monkeypatch.setattr(pipeline.evaluate, "load_bundle", lambda folder: bundle)
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
    assert echo.asked[0][0] == SOURCES
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
    assert stats["scores"]["first"] == score(hypotheses(job, "first"), REFERENCES)
    assert stats["scores"]["second"] != stats["scores"]["first"]
    names = sorted(path.relative_to(job.out).as_posix() for path in job.out.rglob("*.*"))
    assert names == [*(f"hypotheses/{name}.txt" for name in ("first", "same", "second")), "scores.json"]  # fmt: skip


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


def disturbed(seed, num_sentences=40):
    """Made-up references, and hypotheses that differ here and there."""
    draw = random.Random(seed)
    words = ["der", "die", "das", "Haus", "Wald", "Mann", "sieht", "im", ",", ".", "3,5", "Straße"]
    references = [
        " ".join(draw.choices(words, k=draw.randint(1, 20))) for _ in range(num_sentences)
    ]
    share = draw.random()
    changed = [
        " ".join(w if draw.random() > share else draw.choice(words) for w in text.split())
        for text in references
    ]
    return changed, references


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_sacrebleus_own(seed):
    changed, references = disturbed(seed)
    scores = score(changed, references)
    bleu = sacrebleu.corpus_bleu(changed, [references])
    chrf = sacrebleu.corpus_chrf(changed, [references])
    assert scores["bleu"]["score"] == pytest.approx(bleu.score, abs=0.005001)
    assert scores["chrf2"]["score"] == pytest.approx(chrf.score, abs=0.005001)
    assert scores["ter"] is None


def test_signatures_say_how_it_was_scored():
    scores = score(["ein Haus"], ["das Haus"])
    version = sacrebleu.__version__
    assert scores["bleu"]["signature"] == (
        f"nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    )
    assert scores["chrf2"]["signature"] == (
        f"nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_interval_contains_the_score(seed):
    for values in (v for v in score(*disturbed(seed)).values() if v):
        assert values["low"] <= values["score"] <= values["high"]
        assert values["low"] < values["high"]


def test_perfect_hypotheses_score_100():
    _, references = disturbed(1)
    for values in (v for v in score(references, references).values() if v):
        assert (values["low"], values["score"], values["high"]) == (100.0, 100.0, 100.0)


def test_few_matches_are_scored_though_many_samples_have_none():
    _, references = disturbed(1, num_sentences=5)
    values = score([references[0], "", "", "", ""], references)["chrf2"]
    assert values["low"] <= values["score"] <= values["high"]
    assert 0 < values["score"] < 60


def test_blank_hypotheses_score_0():
    _, references = disturbed(1)
    for values in (v for v in score([""] * len(references), references).values() if v):
        assert (values["low"], values["score"], values["high"]) == (0.0, 0.0, 0.0)
