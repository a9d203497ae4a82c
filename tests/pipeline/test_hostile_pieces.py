"""What vocabulary and pieces make of the hostile corpora: every character comes back, no mark is met."""

import pytest

from model.config import BOS, EOS, PAD, UNK
from pipeline.config import RunConfig
from pipeline.errors import ConfigError
from pipeline.pieces.tokenizer import Tokenizer

# All that `clean` accepts as two files of lines, but for those that another stage is there for.
CASES = [
    "00_clean",
    "01_u2028",
    "03_u0085",
    "23_nul",
    "24_controls",
    "78_html_entities",
    "79_zero_width",
    "81_nfc_nfd",
    "82_emoji",
    "83_spm_meta",
    "84_special_tokens",
    "85_whitespace",
    "86_odd_codepoints",
    "95_markup",
]


@pytest.fixture
def index(shared_data):
    """What each case is and what a user is owed, as the index says."""
    lines = (shared_data / "hostile" / "index.tsv").read_text("utf-8").split("\n")
    names, *rows = [line.split("\t") for line in lines if line]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


@pytest.fixture
def build(shared_data, index, build_stages, tmp_path):
    def run(case, last="tokenize", **sections):
        src, tgt = index[case]["files"].split(" ")
        files = shared_data / "hostile" / "files"
        source = {"name": case, "src": str(files / src), "tgt": str(files / tgt)}
        recipe = {"name": case, "src": "en", "tgt": "de", "download": {"train": [source]}}
        return build_stages(RunConfig.model_validate(recipe | sections), tmp_path / "root", last)

    return run


@pytest.mark.parametrize("case", CASES)
def test_every_pair_comes_back_and_no_text_is_a_mark(build, index, rows_of, case):
    assert index[case]["verdict"] in {"accept", "clean"}
    made = build(case, vocab={"kind": "bpe", "size": 400, "byte_fallback": True})
    stats = made["tokenize"].stats
    assert stats["rows_kept"] == made["dedup"].stats["rows_kept"] > 0
    assert stats["round_trip"] == {"share": 1.0, "changed": 0, "examples": []}
    ids = {piece for pair in rows_of(made["tokenize"]) for side in pair for piece in side}
    assert ids.isdisjoint({PAD, UNK, BOS, EOS})


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_special_tokens_and_meta_signs_are_ordinary_text_without_bytes_too(build, rows_of, kind):
    for case in ("83_spm_meta", "84_special_tokens"):
        made = build(case, vocab={"kind": kind, "size": 70})
        assert made["tokenize"].stats["round_trip"]["share"] == 1
        for src, tgt in rows_of(made["tokenize"]):
            assert src
            assert tgt
            assert {PAD, UNK, BOS, EOS}.isdisjoint([*src, *tgt])


def test_emoji_come_back_whole(build, rows_of, shared_data):
    made = build("82_emoji", vocab={"kind": "bpe", "size": 330, "byte_fallback": True})
    tokenizer = Tokenizer(made["vocab"].folder)
    found = {tokenizer.decode([src])[0] for src, _ in rows_of(made["tokenize"])}
    written = (shared_data / "hostile" / "files" / "82_emoji" / "train.en").read_text("utf-8")
    assert found == set(written.split("\n")[:-1])


def test_a_vocabulary_too_large_for_one_pair_is_refused_with_the_largest(build):
    with pytest.raises(ConfigError, match=r"`vocab\.size` must be at most (\d+) for these 1 train"):
        build("32_one_pair", "vocab")
