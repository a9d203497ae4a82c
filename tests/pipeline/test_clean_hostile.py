"""What cleaning does to the hostile corpora: which rule takes which pairs, and what is mended."""

import pytest

from pipeline.clean import clean
from pipeline.config import CleanConfig
from pipeline.download import download
from pipeline.sources import Source

# By case: the lines that each rule takes. What is in no list is kept. Where the index says `?`:
# a shifted corpus (26) looks right pair by pair; odd code points (86) are removed, and the rest of
# the pair stays; of copies (91) the sentence goes, and the time, which has no letter, but not the
# name; sentences in another language (92) go.
TAKEN = {
    "00_clean": {},
    "01_u2028": {},
    "02_u2029": {},
    "03_u0085": {},
    "04_vt": {},
    "06_fs_gs_rs": {},
    "21_mojibake": {"mojibake": [1, 6, 7]},
    "23_nul": {},
    "24_controls": {},
    "26_shifted": {},
    "27_empty_lines": {"empty": [2, 6, 9]},
    "28_blank_lines": {"empty": [2, 4, 6, 8, 9]},
    "33_long_line": {"length": [6]},
    "34_long_token": {"length": [6]},
    "78_html_entities": {},
    "79_zero_width": {},
    "81_nfc_nfd": {},
    "82_emoji": {},
    "83_spm_meta": {},
    "84_special_tokens": {},
    "85_whitespace": {},
    "86_odd_codepoints": {},
    "91_copied": {"copied": [2], "letters": [7]},
    "92_wrong_language": {"language": [3, 6, 9]},
    "93_length_ratio": {"ratio": [4, 7]},
    "94_punctuation_only": {"letters": [2, 3]},
    "95_markup": {},
}
# Pairs that the index leaves to a choice: NULs are removed, and their pairs stay.
LEFT = {"23_nul": 10, "26_shifted": 10, "81_nfc_nfd": 20, "86_odd_codepoints": 10, "91_copied": 8}
LEFT |= {"92_wrong_language": 7}  # 81: the other 10 are duplicates, which is not for `clean` to say
EQUAL_TO_CLEAN = [
    "01_u2028",
    "02_u2029",
    "03_u0085",
    "04_vt",
    "06_fs_gs_rs",
    "07_crlf",
    "08_crlf_one_side",
    "13_bom_both",
    "14_bom_inside",
    "23_nul",
    "79_zero_width",
    "83_spm_meta",
    "85_whitespace",
]


@pytest.fixture
def left_to_clean(shared_data):
    """Pairs in and left by case, as the index says."""
    lines = (shared_data / "hostile" / "index.tsv").read_text("utf-8").split("\n")
    return {line.split("\t")[0]: line.split("\t")[4] for line in lines[1:] if line}


@pytest.fixture
def cleaned_case(shared_data, publish):
    def run(case, **config):
        folder = shared_data / "hostile" / "files" / case
        sides = {"src": str(folder / "train.en"), "tgt": str(folder / "train.de")}
        source = Source.model_validate({"name": case, **sides})
        raw = publish("download", lambda job: download(source, job))
        section, languages = CleanConfig(**config), ("en", "de")
        return publish(
            "clean",
            lambda job: clean(section, languages, case, raw, job),
            aside=("rejected/*",),
        )

    return run


@pytest.mark.parametrize("case", TAKEN)
def test_each_rule_takes_the_pairs_that_are_meant_for_it(
    cleaned_case, left_to_clean, rows_of, case
):
    artifact = cleaned_case(case)
    taken = {}
    for *_, line, rule in rows_of(artifact, "rejected/*"):
        taken.setdefault(rule, []).append(line)
    assert taken == TAKEN[case]
    pairs_in, _, left = left_to_clean[case].partition("/")
    expected = LEFT[case] if case in LEFT else int(left)
    assert (artifact.stats["rows_in"], artifact.stats["rows_kept"]) == (int(pairs_in), expected)


@pytest.mark.parametrize("case", EQUAL_TO_CLEAN)
def test_harmless_damage_is_mended(cleaned_case, rows_of, case):
    whole, mended = cleaned_case("00_clean"), cleaned_case(case)
    differing = [
        line
        for (*one, _, line), (*other, _, _) in zip(rows_of(whole), rows_of(mended), strict=True)
        if one != other
    ]
    assert differing == []
    assert whole.stats["rows_changed"] == 0
    assert mended.stats["rows_changed"] > 0 or case in {
        "07_crlf",
        "08_crlf_one_side",
        "13_bom_both",
    }


def test_mended_sentences_come_out_as_they_should(cleaned_case, rows_of, shared_data):
    entities = rows_of(cleaned_case("78_html_entities"))
    assert entities[3][0] == "Two boats <here> 'tied' up &amp; down."
    assert len({row[:2] for row in rows_of(cleaned_case("81_nfc_nfd"))}) == 10
    emoji = rows_of(cleaned_case("82_emoji"))[9][0]
    written = (shared_data / "hostile" / "files" / "82_emoji" / "train.en").read_text("utf-8")
    assert emoji == written.split("\n")[9]


@pytest.mark.parametrize("case", ["21_mojibake", "92_wrong_language", "94_punctuation_only"])
def test_without_cleaning_all_pairs_with_two_sides_are_left(cleaned_case, case):
    assert cleaned_case(case, preset="none").stats["rows_kept"] == 10
