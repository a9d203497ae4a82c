"""The page of a finished run."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from flows.page import write_page
from flows.run import Result
from pipeline.artifact import Artifact, File, Manifest
from pipeline.sources import Source
from pipeline.stages import AVERAGE, CLEAN, DEDUP, EVALUATE, TRAIN, VOCAB, Node

HOSTILE = "<script>alert(1)</script> \x1b[31m & \u202egnol"
SCORE = {"score": 38.381, "low": 36.7, "high": 40.0, "label": "BLEU", "signature": "nrefs:1"}


@pytest.fixture
def made(tmp_path):
    """Makes the result of a stage that wrote some files."""

    def make(stage, stats, files, source=None):
        folder = tmp_path / (source or stage.name)
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        described = tuple(File(name, 0, "", None, "") for name in sorted(files))
        manifest = Manifest(
            stage=stage.name, version=1, fingerprint="0" * 64, attempt="", config={}, inputs=(),
            files=described, content="", stats=stats, tools={}, host="here",
            started_at="2026-11-30T10:00:00+00:00", took_s=1.0,
        )  # fmt: skip
        node = Node(stage, {}, {})
        if source:
            node = replace(node, source=Source(name=source, src="a.en", tgt="a.de"))
        return Result(node, Artifact(folder, manifest), cached=False, took_s=1.0, reason="new <b>")

    return make


@pytest.fixture
def page(made, tmp_path):
    """The text of a page of a whole run."""
    statistics = "measure,from,below,kept,rejected\n" + "".join(
        f"{measure},{low},{low + 1},{low + 3},1\n"
        for measure in ("src_words", "tgt_words", "log2_word_ratio")
        for low in range(4)
    )
    rows = {"rows_in": 1234567, "rows_kept": 1234000, "rejected": {"length": 500, "ratio": 67}}
    side = {"characters": 80, "uncovered": [HOSTILE], "pieces_per_word": 1.25}
    results = [
        made(CLEAN, rows, {"statistics.csv": statistics}, source="first"),
        made(CLEAN, rows | {"rejected": {}}, {"statistics.csv": statistics}, source="second"),
        made(
            DEDUP,
            rows
            | {
                "overlap": {"dev": {"both": 1, "src": 2, "tgt": 31}},
                "sources": {"first": rows | {"rows_held_out": 77}},
            },
            {},
        ),
        made(VOCAB, {"size": 8000, "src": side, "tgt": side}, {}),
        made(
            TRAIN,
            {},
            {
                "events.jsonl": '{"step": 1, "kind": "train", "metrics": {"nll": 3.0}}\n'
                '{"step": 2, "kind": "train", "metrics": {"nll": 2.5, "learning_rate": 0.1}}\n'
            },
        ),
        made(AVERAGE, {}, {}),
        made(
            EVALUATE,
            {"scores": {"test": {"bleu": SCORE, "ter": None}}},
            {
                "hypotheses/test.txt": f"{HOSTILE}\n" + "translated\n" * 20,
                "pairs/test.jsonl": '{"src": "quelle", "ref": "ziel"}\n' * 21,
            },
        ),
    ]
    path = tmp_path / "reports" / "own.html"
    write_page("own", results, path)
    return path.read_text(encoding="utf-8")


def test_every_number_is_there(page):
    for text in ("38.38", "36.7 – 40.0", "nrefs:1", "1,234,000", "500", "31", "77", "1.25"):
        assert f">{text}<" in page, text


def test_text_of_corpora_is_text_and_nothing_else(page):
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert r"&lt;script&gt;alert(1)&lt;/script&gt; \x1b[31m &amp; \u202egnol" in page


def test_the_page_is_well_formed_and_loads_nothing(page):
    opened = []
    loads = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            if tag != "meta":
                opened.append(tag)
            loads.extend(
                value
                for key, value in attrs
                if key in {"src", "href"} and not value.startswith("#")
            )

        def handle_endtag(self, tag):
            assert opened.pop() == tag

    Parser().feed(re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))
    assert opened == []
    assert loads == []
    assert len(re.findall(r"<svg", page)) == 2


def test_a_page_shows_some_translations(page):
    assert page.count("translated") == 9


def test_nothing_is_left_beside_a_page(page, tmp_path):
    assert [path.name for path in Path(tmp_path / "reports").iterdir()] == ["own.html"]
