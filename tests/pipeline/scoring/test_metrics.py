"""Scores against sacreBLEU's own, and against those that others computed."""

import csv
import gzip
import json
import random
from importlib.util import find_spec

import pytest
import sacrebleu
from sacrebleu.metrics.chrf import CHRF

from pipeline.errors import ConfigError
from pipeline.reading.formats import read_corpus
from pipeline.scoring import metrics
from pipeline.scoring.metrics import (
    Kind,
    check_tokenizer,
    count_all,
    measures,
    sacre,
    tokenizer_for,
)

GERMAN = Kind("de", "13a")


def score(hypotheses, references, kind=GERMAN):
    return metrics.scores(kind, count_all(kind, hypotheses, references))


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
    ter = sacrebleu.corpus_ter(changed, [references])
    assert scores["ter"]["score"] == pytest.approx(ter.score, abs=0.005001)


@pytest.mark.parametrize("seed", range(2))
def test_intervals_are_sacrebleus_own(seed, monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    changed, references = disturbed(seed)
    scores = score(changed, references)
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    for name, metric in (("bleu", sacrebleu.BLEU()), ("ter", sacrebleu.TER())):
        found = metric.corpus_score(changed, [references], n_bootstrap=1000)
        assert scores[name]["low"] == pytest.approx(found._mean - found._ci, abs=0.0051)
        assert scores[name]["high"] == pytest.approx(found._mean + found._ci, abs=0.0051)


def test_signatures_say_how_it_was_scored():
    scores = score(["ein Haus"], ["das Haus"])
    version = sacrebleu.__version__
    assert scores["bleu"]["signature"] == (
        f"nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    )
    assert scores["chrf2"]["signature"] == (
        f"nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"
    )
    assert scores["ter"]["signature"] == (
        "nrefs:1|bs:1000|seed:12345|case:lc|tok:tercom|norm:no|punct:yes|asian:no|"
        f"version:{version}"
    )


def test_every_score_has_a_label_of_its_own_and_a_signature():
    found = score(["ein Haus"], ["das Haus"], GERMAN._replace(paper=True))
    assert list(found) == [
        "bleu", "chrf2", "ter", "exact_match", "bleu_tokenised_split", "bleu_lowercased",
    ]  # fmt: skip
    assert len({values["label"] for values in found.values()}) == len(found)
    assert len({values["signature"] for values in found.values()}) == len(found)


def test_compounds_are_split_on_both_sides_for_german_alone():
    hypotheses, references = ["ein rich-text Format hier"], ["das rich-text Format hier"]
    german = score(hypotheses, references, Kind("de", "13a", paper=True))
    french = score(hypotheses, references, Kind("fr", "13a", paper=True))
    assert "ATAT" in german["bleu_tokenised_split"]["signature"]
    assert "compounds split" in german["bleu_tokenised_split"]["label"]
    assert german["bleu_tokenised_split"]["score"] > french["bleu_tokenised"]["score"]
    assert french["bleu_tokenised"]["label"] == "BLEU of the paper (tokenised)"


@pytest.mark.parametrize(
    ("tgt", "chosen", "tokenizer"),
    [
        ("de", "auto", "13a"),
        ("zh", "auto", "zh"),
        ("zh_TW", "auto", "zh"),
        ("ja", "auto", "ja-mecab"),
        ("ko-KR", "auto", "ko-mecab"),
        ("ja", "char", "char"),
    ],
)
def test_the_tokenizer_is_what_sacrebleu_prescribes(tgt, chosen, tokenizer):
    assert tokenizer_for(tgt, chosen) == tokenizer


def test_chinese_is_scored_by_character():
    found = score(["我喜欢红色的猫"], ["我喜欢黑色的猫"], Kind("zh", "zh"))
    assert "tok:zh|" in found["bleu"]["signature"]
    assert 0 < found["bleu"]["score"] < 100


@pytest.mark.parametrize(("tokenizer", "module"), [("ja-mecab", "MeCab"), ("ko-mecab", "mecab_ko")])
def test_a_tokenizer_whose_package_is_missing_is_named_with_its_extra(tokenizer, module):
    if find_spec(module):
        pytest.skip(f"{module} is installed")
    extra = tokenizer[:2]
    with pytest.raises(ConfigError, match=rf"{tokenizer}.*pip install 'traduko\[{extra}\]'"):
        check_tokenizer(tokenizer)


def test_exact_matches_are_counted_without_white_space():
    found = score(["ein  Haus ", "der Wald"], ["ein Haus", "Der Wald"])
    assert found["exact_match"]["score"] == 50.0


@pytest.mark.parametrize("seed", range(8))
def test_the_interval_contains_the_score(seed):
    found = score(*disturbed(seed))
    exact = found.pop("exact_match")  # often none, and then without width
    assert exact["low"] <= exact["score"] <= exact["high"]
    for values in found.values():
        assert values["low"] <= values["score"] <= values["high"]
        assert values["low"] < values["high"]


def test_perfect_hypotheses_score_100_and_have_no_edits():
    _, references = disturbed(1)
    for name, values in score(references, references, GERMAN._replace(paper=True)).items():
        best = 0.0 if name == "ter" else 100.0
        assert (values["low"], values["score"], values["high"]) == (best, best, best)


def test_few_matches_are_scored_though_many_samples_have_none():
    _, references = disturbed(1, num_sentences=5)
    values = score([references[0], "", "", "", ""], references)["chrf2"]
    assert values["low"] <= values["score"] <= values["high"]
    assert 0 < values["score"] < 60


def test_blank_hypotheses_score_0():
    _, references = disturbed(1)
    for name, values in score([""] * len(references), references).items():
        worst = 100.0 if name == "ter" else 0.0
        assert (values["low"], values["score"], values["high"]) == (worst, worst, worst)


def read_gz(path):
    text = gzip.decompress(path.read_bytes()).decode()
    assert text.endswith("\n")
    return text[:-1].split("\n")


@pytest.mark.slow
def test_scores_of_16_systems_are_those_that_others_computed(shared_data):
    """mteval-v13a and v14, chrF++.py and tercom, to the digits that they give."""
    folder = shared_data / "wmt" / "system_outputs"
    with (folder / "expected_scores.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    bleu, chrf2, ter, *_ = measures(GERMAN)
    by_name = {
        "BLEU-13a": (bleu, 1.0),
        "BLEU intl": (sacre("bleu_intl", "BLEU (intl)", sacrebleu.BLEU(tokenize="intl")), 1.0),
        "chrF": (chrf2, 1.0),
        "chrF++": (sacre("chrf2++", "chrF2++", CHRF(word_order=2, eps_smoothing=True)), 1.0),
        "TER": (ter, 0.01),
    }
    assert len({row["hyp"] for row in rows}) == 16
    for row in rows:
        hypotheses, references = (read_gz(folder / f"{row[side]}.gz") for side in ("hyp", "refs"))
        measure, unit = by_name[row["metric"]]
        found = unit * measure.score_of(measure.counts_of(hypotheses, references).sum(0).tolist())
        digits = len(row["expected"].partition(".")[2])
        assert f"{found:.{digits}f}" == f"{float(row['expected']):.{digits}f}", row


def test_newstest2014_has_one_score_from_sgm_and_from_plain_text(shared_data, tmp_path):
    wmt = shared_data / "wmt"
    plain = read_gz(wmt / "newstest" / "newstest2014.en-de.de.gz")
    for side, name in (("src", "src.en"), ("tgt", "ref.de")):
        packed = wmt / "sgm" / f"newstest2014-deen-{name}.sgm.gz"
        (tmp_path / side).write_bytes(gzip.decompress(packed.read_bytes()))
    (tmp_path / "layout.json").write_text(json.dumps({"format": "sgm"}))
    from_sgm = [text for batch in read_corpus(tmp_path) for text in batch["tgt"].to_pylist()]
    assert len(from_sgm) == len(plain) == metrics.NEWSTEST2014_FULL
    draw = random.Random(1)
    hypotheses = [" ".join(w for w in line.split() if draw.random() < 0.9) for line in plain]
    kind = GERMAN._replace(quick=True)
    assert score(hypotheses, plain, kind) == score(hypotheses, from_sgm, kind)
