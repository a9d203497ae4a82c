"""Each pair is kept or rejected by a named rule, and none is lost."""

import json
import re
from collections import Counter

import pytest

from pipeline.clean import clean
from pipeline.config import CLEAN_PRESETS, CleanConfig, RunConfig
from pipeline.dag import nodes
from pipeline.download import download
from pipeline.errors import ConfigError, CorpusError
from pipeline.file_digests import FileDigests
from pipeline.recipe import validate
from pipeline.section import keyed
from pipeline.sources import Source

ENGLISH = [
    "The clock strikes  seven.",
    "",
    "Salt &amp; pepper.",
    "one two three four five six",
    "One word against many.",
    "This sentence was never translated.",
    "A cafe\u0301.",
]
GERMAN = [
    "Die Uhr\tschlägt sieben. ",
    "Nichts links.",
    "Salz &amp; Pfeffer.",
    "eins zwei drei vier fünf sechs",
    "Ein " + "sehr " * 8 + "Satz.",
    "This sentence was never translated!",
    "Ein Café.",
]


@pytest.fixture
def run_clean(downloaded, publish):
    def run(src=ENGLISH, tgt=GERMAN, packed=False, languages=("en", "de"), say=print, **config):
        raw = downloaded(src, tgt, packed)
        section = CleanConfig.model_validate(config)

        def stage(job):
            return clean(section, languages, "own", raw, job)

        return publish("clean", stage, aside=("rejected/*",), say=say)

    return run


def test_kept_rows_are_normal_and_keep_their_source_and_line(run_clean, rows_of):
    assert rows_of(run_clean()) == [
        ("The clock strikes seven.", "Die Uhr schlägt sieben.", "own", 1),
        ("Salt & pepper.", "Salz & Pfeffer.", "own", 3),
        ("one two three four five six", "eins zwei drei vier fünf sechs", "own", 4),
        ("A café.", "Ein Café.", "own", 7),
    ]


def test_rejected_rows_are_kept_with_the_rule(run_clean, rows_of):
    rejected = rows_of(run_clean(max_words=12), "rejected/*")
    assert [(line, rule) for *_, line, rule in rejected] == [
        (2, "empty"),
        (5, "ratio"),
        (6, "copied"),
    ]
    assert rejected[0][:3] == ("", "Nichts links.", "own")


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_words": 5},
        {"rules_off": ["ratio", "copied"]},
        {"preset": "none"},
        {"preset": "fairseq-compat"},
        {"drop": ["Salt", "e"], "replace": [["One.*", ""]]},
    ],
)
def test_counts_add_up_to_what_came_in(run_clean, rows_of, config):
    artifact = run_clean(**config)
    stats = artifact.stats
    assert stats["rows_in"] == len(ENGLISH) == stats["rows_kept"] + sum(stats["rejected"].values())
    assert stats["rows_kept"] == len(rows_of(artifact))
    assert stats["rejected"] == Counter(row[-1] for row in rows_of(artifact, "rejected/*"))


def test_the_rows_are_the_same_from_plain_and_packed_files(run_clean):
    plain, packed = run_clean(), run_clean(packed=True)
    assert plain.manifest.content == packed.manifest.content


def test_text_stays_as_written_where_normalising_is_off(run_clean, rows_of):
    kept = rows_of(run_clean(normalise=False))
    written = list(zip(ENGLISH, GERMAN, strict=True))
    assert [row[:2] for row in kept] == [written[line - 1] for *_, line in kept]


def test_rules_can_be_put_off_but_no_side_may_be_empty(run_clean, rows_of):
    artifact = run_clean(preset="none")
    assert [row[3] for row in rows_of(artifact)] == [1, 3, 4, 5, 6, 7]
    assert artifact.stats["rejected"] == {"empty": 1}


def test_a_source_of_which_nothing_is_kept_is_an_empty_table(run_clean, rows_of):
    artifact = run_clean(["", " "], ["a", "b"])
    assert artifact.stats == {
        "rows_in": 2,
        "rows_changed": 1,
        "rows_kept": 0,
        "rejected": {"empty": 2},
    }
    assert rows_of(artifact) == []


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.tsv", b"one\teins\ntwo\nthree\tdr\xffei\nfour\tvier\n", [1, 4]),
        ("a.jsonl", b'{"src":"one","tgt":"eins"}\n{}\n{"src":"two","tgt":"zwei"}\n', [1, 3]),
    ],
)
def test_rows_that_download_rejected_are_not_there(
    publish, rows_of, tmp_path, name, content, lines
):
    (tmp_path / name).write_bytes(content)
    source = Source.model_validate(
        {"name": "own", "pairs": str(tmp_path / name), "on_bad_rows": "reject"}
    )
    raw = publish("download", lambda job: download(source, job))
    cleaned = publish("clean", lambda job: clean(CleanConfig(), ("en", "de"), "own", raw, job))
    assert [row[3] for row in rows_of(cleaned)] == lines
    assert cleaned.stats["rows_in"] == raw.stats["rows"] == len(lines)
    assert raw.stats["rows_rejected"] == content.count(b"\n") - len(lines)


def test_rows_that_normalising_changed_are_counted(run_clean):
    assert run_clean().stats["rows_changed"] == 3  # lines 1, 3 and 7
    assert run_clean(normalise=False).stats["rows_changed"] == 0
    assert run_clean(preset="none", replace=[["never", "not"]]).stats["rows_changed"] == 1


def test_replacements_come_in_order_after_normalising_and_leave_normal_text(run_clean, rows_of):
    replace = [["Salt & p", "P"], ["^Peppe(.)", "  \\1\\1u\u0308"], ["Salz & ", ""]]
    kept = rows_of(run_clean(["Salt &amp; pepper."], ["Salz &amp; Pfeffer."], replace=replace))
    assert [row[:2] for row in kept] == [("rrü.", "Pfeffer.")]


def test_dropped_rows_are_those_with_a_pattern_on_either_side(run_clean, rows_of):
    artifact = run_clean(drop=["^Salt & ", "Café"], preset="none", normalise=True)
    assert artifact.stats["rejected"] == {"empty": 1, "drop": 2}
    assert [row[3] for row in rows_of(artifact)] == [1, 4, 5, 6]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"drop": ["fine", "("]}, "In `clean.drop`: pattern `(` is no pattern of RE2: missing )"),
        (
            {"drop": ["x*"]},
            "In `clean.drop`: pattern `x*` finds something in every text, and would",
        ),
        (
            {"replace": [["a(?=b)", ""]]},
            "In `clean.replace`: pattern `a(?=b)` is no pattern of RE2",
        ),
        ({"replace": [["a", r"\1"]]}, "pattern `a` is no pattern of RE2: Invalid replacement"),
        ({"preset": "mild"}, "`clean.preset` must be 'default', 'fairseq-compat' or 'none'"),
        ({"rules_off": ["empty"]}, "`clean.rules_off.0` must be 'length', 'ratio'"),
        ({"max_word_chars": 1000}, "`clean.max_word_chars` must be less than or equal to 999"),
    ],
)
def test_faults_of_the_section_are_told(config, words):
    download = {"train": [{"name": "own", "src": "a.en", "tgt": "a.de"}]}
    recipe = {"name": "own", "src": "en", "tgt": "de", "download": download, "clean": config}
    with pytest.raises(ConfigError, match=re.escape(words)):
        validate(recipe)


@pytest.mark.parametrize(("preset", "values"), CLEAN_PRESETS.items())
def test_a_field_beside_a_preset_wins_and_the_fingerprint_holds_what_comes_out(preset, values):
    section = CleanConfig.model_validate({"preset": preset})
    assert keyed(section) == values
    assert CleanConfig.model_validate(values) == section.model_copy(update={"preset": "default"})
    given = {"max_word_ratio": 1.8, "normalise": True, "rules_off": ["urls"]}
    chosen = CleanConfig.model_validate({"preset": preset, **given})
    assert {name: getattr(chosen, name) for name in given} == given
    whole = chosen.model_dump(mode="json")
    assert CleanConfig.model_validate(whole) == chosen


def test_compatible_cleaning_makes_punctuation_plain_and_looks_at_the_ratio_alone(
    run_clean, rows_of
):
    src = ["“It’s — 5 %”", "Same text here.", "one two three", "one two three four", "12:30"]
    tgt = ["„Das – …“", "Same text here.", "eins zwei", "eins zwei", "12:30"]
    artifact = run_clean(src, tgt, preset="fairseq-compat")
    assert artifact.stats["rejected"] == {"ratio": 1}
    kept = rows_of(artifact)
    assert kept[0][:2] == ('"It\'s - 5%"', '"Das - ..."')
    assert [row[3] for row in kept] == [1, 2, 3, 5]


def test_languages_that_cannot_be_checked_are_told(run_clean):
    told = []
    run_clean(languages=("tlh", "de"), say=told.append)
    assert told == [
        "The model of languages does not know `tlh`: whether sentences are in it is not checked."
    ]
    run_clean(languages=("tlh", "de"), say=told.append, rules_off=["language"])
    run_clean(say=told.append)
    assert len(told) == 1


def test_cleaning_is_keyed_by_languages_and_by_the_model_of_them(tmp_path):
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("eins\n")
    source = {"name": "own", "src": str(tmp_path / "a"), "tgt": str(tmp_path / "b")}
    recipe = {"name": "own", "src": "en", "download": {"train": [source]}}
    configs = [RunConfig.model_validate({**recipe, "tgt": tgt}) for tgt in ("de", "nl")]
    digests = FileDigests(tmp_path / "digests.json")
    one, other = (
        next(node for node in nodes(config, digests) if node.stage.name == "clean")
        for config in configs
    )
    assert one.short_config != other.short_config
    assert "lid.176.ftz" in one.stage.tools()["model of languages"]


# The hostile corpora, from their files to the rows that are left. Right behaviour and pairs left
# are in the index beside them; here is only what differs or is ours to choose.
CASES = """
    00_clean 01_u2028 02_u2029 03_u0085 04_vt 06_fs_gs_rs 07_crlf 08_crlf_one_side 09_cr_only
    11_no_final_newline 12_extra_final_blank 13_bom_both 14_bom_inside 15_utf16le_bom
    17_latin1_line 18_cesu8_surrogate 20_utf8_cut_at_eof 21_mojibake 23_nul 24_controls 25_unequal
    26_shifted 27_empty_lines 28_blank_lines 29_same_file 30_empty_files 32_one_pair 33_long_line
    34_long_token 35_many_lines 36_gz_clean 37_gz_truncated 39_gz_zero_padding 40_gz_multi_member
    42_gz_is_text 43_text_is_gz 45_gz_bomb 78_html_entities 79_zero_width 81_nfc_nfd 82_emoji
    83_spm_meta 84_special_tokens 85_whitespace 86_odd_codepoints 88_duplicates 89_same_source
    90_same_target 91_copied 92_wrong_language 93_length_ratio 94_punctuation_only 95_markup
    97_leak 99_directory
""".split()  # noqa: SIM905 - 60 quoted names are hard to read
LEFT = {
    "23_nul": 10,  # NULs are removed, the pairs stay
    "26_shifted": 10,  # cannot be seen from one pair
    "42_gz_is_text": 10,  # told by first bytes, not by name
    "43_text_is_gz": 10,  # the same
    "86_odd_codepoints": 10,  # odd code points are removed, the rest of each pair stays
    "88_duplicates": 10,  # deduplication ignores case
    "91_copied": 8,  # names may be the same; a time alone has no letter
    "92_wrong_language": 7,  # swapped, and French on one side
}
SLOW = {"35_many_lines"}


@pytest.fixture
def index(shared_data):
    """Of each hostile corpus of aligned text: files, verdict, pairs in and left."""
    folder = shared_data / "hostile"
    lines = (folder / "index.tsv").read_text("utf-8").split("\n")
    rows = [line.split("\t") for line in lines[1:] if line]
    return {
        case: ([folder / "files" / name for name in files.split()], verdict, counts)
        for case, files, form, verdict, counts, *_ in rows
        if form in {"moses", "moses.gz", "moses+test"}
    }


@pytest.fixture
def left_of(tmp_path, build_stages):
    """What is left of a corpus after download, clean and dedup, as a run of the recipe does it."""

    def run(src, tgt, *held_out):
        names = zip(("train", "test"), ((src, tgt), held_out), strict=True)
        download = {
            name: [{"name": name, "src": str(files[0]), "tgt": str(files[1])}]
            for name, files in names
            if files
        }
        config = RunConfig.model_validate(
            {"name": "hostile", "src": "en", "tgt": "de", "download": download}
        )
        return build_stages(config, tmp_path / "root", "dedup")

    return run


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES]
)
def test_of_each_hostile_corpus_what_should_be_left_is_left(index, left_of, case):
    files, verdict, counts = index[case]
    if verdict == "reject" and case not in LEFT:
        with pytest.raises(CorpusError, match=re.escape(files[0].name) + "|" + files[1].name):
            left_of(*files)
        return
    pairs_in, _, left = counts.partition("/")
    artifacts = left_of(*files)
    if verdict != "reject":
        assert artifacts["download:train"].stats["rows"] == int(pairs_in)
    expected = LEFT[case] if case in LEFT else int(left)
    assert artifacts["dedup"].stats["rows_kept"] == expected


def test_the_hostile_cases_are_all_of_the_formats_that_are_read(index):
    assert list(index) == CASES


def test_training_lines_that_a_test_set_holds_are_removed_and_no_others(index, left_of, rows_of):
    files, *_ = index["97_leak"]
    expected = json.loads((files[0].parent / "expected_leak.json").read_text())
    artifacts = left_of(*files)
    removed = [
        line
        for name in ("clean:train", "dedup")
        for *_, line, _rule in rows_of(artifacts[name], "rejected/*")
    ]
    assert sorted(removed) == expected["removed_lines_1_based"]
    assert artifacts["dedup"].stats["rows_kept"] == expected["left"]
