"""A recipe for one's own text: it runs as it is, and says why."""

import gzip
import json
import re
import tomllib

import pytest

from flows.init import MIN_PAIRS, OwnText, Size, measure, suggest, write_recipe
from pipeline.errors import ConfigError, CorpusError
from pipeline.recipe import read_recipe
from pipeline.sources import Source


@pytest.fixture
def write(tmp_path):
    """Writes pairs in a format: the files."""

    def write(pairs, kind="moses", name="corpus"):
        sides = {"src": f"{name}.en", "tgt": f"{name}.de"}
        if kind == "moses":
            for index, file in enumerate(sides.values()):
                text = "".join(f"{pair[index]}\n" for pair in pairs)
                (tmp_path / file).write_text(text, encoding="utf-8")
            return [tmp_path / file for file in sides.values()]
        rows = {
            "tsv": lambda src, tgt: f"{src}\t{tgt}\n",
            "jsonl": lambda src, tgt: json.dumps({"src": src, "tgt": tgt}) + "\n",
            "coded": lambda src, tgt: json.dumps({"de": tgt, "en": src, "id": 1}) + "\n",
        }
        path = tmp_path / f"{name}.{'jsonl' if kind == 'coded' else kind}.gz"
        text = "".join(rows[kind](*pair) for pair in pairs)
        path.write_bytes(gzip.compress(text.encode()))
        return [path]

    return write


@pytest.fixture
def init(tmp_path):
    """Writes a recipe and reads it back: its text, and what it resolves to."""

    def init(*train, dev=(), test=(), target=None, languages=("en", "de"), **options):
        target = target or tmp_path / "my.toml"
        write_recipe(target, OwnText(*languages, train, dev, test), **options)
        return target.read_text(encoding="utf-8"), read_recipe(str(target))

    return init


@pytest.fixture(scope="session")
def tatoeba(shared_data):
    def lines(side):
        with gzip.open(shared_data / "tatoeba_de_en" / f"train.{side}.gz", "rt") as file:
            return [next(file).rstrip("\n") for _ in range(2000)]

    return list(zip(lines("en"), lines("de"), strict=True))


def few(number, word="word"):
    return [(f"{word} {n} of it", f"{word} {n} davon ist da") for n in range(number)]


def test_the_formats_give_the_same_numbers(write, init, tatoeba):
    configs = {}
    for kind in ("moses", "tsv", "jsonl", "coded"):
        _, config = init(write(tatoeba, kind), force=True)
        configs[kind] = config.model_dump(exclude={"download"})
        [source] = config.download.train
        assert source.name == "corpus"
        assert source.columns == (("en", "de") if kind == "coded" else None)
    assert list(configs.values()) == [configs["moses"]] * 4
    assert configs["moses"]["dedup"]["holdout"] == {"dev": 100, "test": 100}


def test_a_recipe_is_short_and_each_choice_has_its_reason(write, init, tatoeba):
    text, config = init(write(tatoeba))
    assert "# 2,000 pairs: 4,7" in text
    assert len(text.splitlines()) < 50
    for choice in ("size", "dropout", "max_steps", "warmup_steps", "lr_scale", "last"):
        [line] = re.findall(rf"^{choice} = .*", text, re.MULTILINE)
        assert re.search(r" # \w+", line), line
    assert config.name == "my"
    assert (config.src, config.tgt) == ("en", "de")
    assert config.model.dim == 128


@pytest.mark.parametrize("number", [10, 12, 30, 100])
def test_the_vocabulary_of_a_small_text_can_be_learnt(
    write, init, tatoeba, tmp_path, build_up_to_vocab, number
):
    _, config = init(write(tatoeba[:: len(tatoeba) // number][:number]))
    stats = build_up_to_vocab(config)
    assert stats["dedup"]["held_out"] == {kind: max(1, number // 20) for kind in ("dev", "test")}
    assert stats["vocab"]["size"] == config.vocab.size


@pytest.fixture
def build_up_to_vocab(tmp_path, make_job):
    import dataclasses

    from pipeline.artifact import Root
    from pipeline.dag import nodes
    from pipeline.file_digests import FileDigests

    def build(config):
        root, done = Root(tmp_path / "root", lambda line: None), {}
        for node in nodes(config, FileDigests(tmp_path / "digests.json")):
            if node.stage.name in {"download", "clean", "dedup", "vocab"}:

                def stage(out, work, node=node):
                    job = dataclasses.replace(make_job(node.stage.name), out=out, work=work)
                    return node.stage.run(node, config, done, job)

                done[node.name], _ = root.produce(node.identity(done), stage)
        return {name: artifact.stats for name, artifact in done.items()}

    return build


def test_given_sets_are_named_and_not_held_out(write, init):
    train, more = write(few(400), name="train"), write(few(400, "other"), "tsv", "train")
    dev, test = write(few(5), name="dev"), write(few(6), "jsonl", "test")
    text, config = init(train, more, dev=[dev], test=[test])
    names = [[source.name for source in group] for group in (config.download.train, config.download.dev, config.download.test)]  # fmt: skip
    assert names == [["train", "train-2"], ["dev"], ["test"]]
    assert "holdout" not in text
    assert "# 800 pairs" in text
    _, config = init(train, dev=[dev], force=True)
    assert config.dedup.holdout.model_dump() == {"dev": 0, "test": 20}


def test_a_source_does_not_take_the_name_of_a_held_out_set(write, init):
    _, config = init(write(few(40), name="test"))
    assert [source.name for source in config.download.train] == ["test-2"]


def test_paths_are_relative_to_the_recipe_wherever_one_stands(write, init, tmp_path, monkeypatch):
    write(few(40))
    (tmp_path / "sub").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    from pathlib import Path

    train = [Path("../corpus.en"), Path("../corpus.de")]
    text, config = init(train, target=Path("../sub/my.toml"))
    assert 'src = "../corpus.en"' in text
    assert config.download.train[0].src.path == str(tmp_path / "corpus.en")


@pytest.mark.parametrize(
    "name",
    ['say "cheese"', "back\\slash", "ümläut 中文", "a\ttab", "del\x7f", "#[x] = 'y'", "a\nb"],
)
def test_any_file_name_is_quoted(write, init, tmp_path, name):
    path = tmp_path / f"{name}.tsv"
    path.write_bytes(gzip.decompress(write(few(40), "tsv")[0].read_bytes()))
    _, config = init([path])
    assert config.download.train[0].pairs.path == str(path)


def test_a_file_name_that_is_no_utf8_is_refused(write, init, tmp_path):
    path = tmp_path / "a\udcff.tsv"
    try:
        path.write_bytes(gzip.decompress(write(few(40), "tsv")[0].read_bytes()))
    except OSError:
        pytest.skip("this file system takes no such name")
    with pytest.raises(ConfigError, match=r"must be UTF-8, but is not. Rename it"):
        init([path])


def test_names_that_no_recipe_may_have_are_mended(write, init, tmp_path):
    _, config = init(write(few(40), name="мой-корпус"), target=tmp_path / "_мой.toml")
    assert config.name == "own"
    assert config.download.train[0].name == "train"
    _, config = init(write(few(40)), name="my text!", force=True)
    assert config.name == "my-text"


def test_what_is_there_is_not_overwritten_unless_forced(write, init, tmp_path):
    (tmp_path / "my.toml").write_text("mine")
    with pytest.raises(ConfigError, match=r"my.toml is there already.*--force"):
        init(write(few(40)))
    assert (tmp_path / "my.toml").read_text() == "mine"
    text, _ = init(write(few(40)), force=True)
    assert "mine" not in text


@pytest.mark.parametrize("number", [1, 9])
def test_too_few_pairs_are_refused(write, init, tmp_path, number):
    message = rf"at least {MIN_PAIRS} training pairs, but here are {number}\. Give more text"
    with pytest.raises(CorpusError, match=message):
        init(write(few(number)))
    assert not (tmp_path / "my.toml").exists()


def test_a_wrong_file_is_named_at_once(write, init, tmp_path):
    src, tgt = write(few(40))
    with pytest.raises(CorpusError, match=r"nowhere.de` does not exist"):
        init([src, tmp_path / "nowhere.de"])
    with pytest.raises(CorpusError, match=r"nowhere.tsv` does not exist"):
        init([tmp_path / "nowhere.tsv"])
    with pytest.raises(CorpusError, match=r"nowhere.en` does not exist"):
        init([src, tgt], dev=[[tmp_path / "nowhere.en", tgt]])
    tgt.write_text(tgt.read_text() + "one more\n")
    with pytest.raises(CorpusError, match=r"corpus.en` has 40 lines and `.*corpus.de` has 41"):
        init([src, tgt])
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tb\nc\n")
    with pytest.raises(CorpusError, match=r"bad.tsv`: line 2 has 1 column, not 2"):
        init([bad])
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"english": "a"}\n')
    with pytest.raises(CorpusError, match=r"has no `src` \(its keys: `english`\)"):
        init([bad])
    assert not (tmp_path / "my.toml").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": ("English", "de")}, "`src` .*pattern"),
        ({"target": "my.txt"}, r"name must end in .toml, but is .*my.txt"),
        ({"target": "nowhere/my.toml"}, "nowhere must be a folder"),
    ],
)
def test_what_makes_no_recipe_is_refused(write, init, tmp_path, options, message):
    if "target" in options:
        options = {"target": tmp_path / options["target"]}
    with pytest.raises(ConfigError, match=message):
        init(write(few(40)), **options)


def test_what_is_no_corpus_is_refused(write, init, tmp_path):
    files = write(few(40))
    with pytest.raises(ConfigError, match=r"--train takes two aligned files, or one named .tsv"):
        init(files[:1])
    with pytest.raises(ConfigError, match=r"--dev takes two.*Say --dev again for each further"):
        init(files, dev=[[*files, *files]])
    with pytest.raises(ConfigError, match=r"`download.train` .*at least 1 item"):
        init()


def test_both_sides_are_counted(write):
    src, tgt = write([("one two", "eins"), ("one  ", "zwei drei vier")])
    source = Source.model_validate({"name": "x", "src": str(src), "tgt": str(tgt)})
    assert measure([source]) == Size(2, 3, 4, 6, len(set("onetwoeinszweidreivier")))
    assert measure([source, source]).pairs == 4


@pytest.mark.parametrize("characters", [30, 90, 1_000, 5_000, 20_000])
@pytest.mark.parametrize("pairs", [10, 300, 20_000, 150_000, 700_000, 4_500_000])
@pytest.mark.parametrize("length", [2, 7, 30])
def test_any_amount_of_text_gets_a_sound_suggestion(pairs, length, characters):
    words = pairs * length
    distinct = min(200_000, max(20, int(4 * words**0.7)))
    found = suggest(Size(pairs, words, words + pairs, distinct, characters))
    required = characters * found.character_coverage
    assert required + 7 < found.vocab_size <= characters + 32_000
    assert found.max_steps >= found.num_averaged * found.checkpoint_every_steps
    assert 1 <= found.warmup_steps < found.max_steps / 2
    assert 0.001 < found.lr_scale <= 1
    assert 1 <= found.holdout <= min(2000, pairs // 10 or 1)


def test_known_texts_get_what_is_known_to_work():
    multi30k = suggest(Size(29_000, 345_020, 322_383, 39_488, 110))
    assert (multi30k.tier.dim, multi30k.tier.num_layers, multi30k.dropout) == (256, 3, 0.2)
    assert (multi30k.vocab_size, multi30k.max_steps) == (8_000, 3_600)
    assert (multi30k.warmup_steps, multi30k.lr_scale) == (800, 0.8)
    wmt14 = suggest(Size(4_500_000, 110_000_000, 105_000_000, 200_000, 900))
    assert (wmt14.tier.dim, wmt14.tier.num_layers, wmt14.tier.norm) == (512, 6, "post")
    assert (wmt14.max_steps, wmt14.warmup_steps, wmt14.lr_scale) == (100_000, 4_000, 1.0)
    assert wmt14.vocab_size == 32_000


def test_larger_texts_get_no_smaller_models():
    sizes = [
        Size(n, 12 * n, 12 * n, int(12 * n**0.7), 90) for n in (100, 3_000, 10**5, 10**6, 10**7)
    ]
    found = [suggest(size) for size in sizes]
    for ordered in (
        [each.tier.dim for each in found],
        [each.vocab_size for each in found],
        [each.max_steps for each in found],
        [-each.dropout for each in found],
    ):
        assert ordered == sorted(ordered)


def test_a_written_recipe_is_toml_with_no_field_twice(write, init):
    text, _ = init(write(few(40)))
    assert set(tomllib.loads(text)) == {
        "name", "src", "tgt", "download", "dedup", "vocab", "model", "train", "average",
    }  # fmt: skip
