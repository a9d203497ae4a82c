import pytest
import torch

from model.schedule import learning_rate
from model.transformer import Transformer
from pipeline.errors import ConfigError
from pipeline.recipe import origins, parse_overrides, read_recipe, shipped_recipes
from pipeline.section import keyed


def write(folder, text, name="own.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


OWN = """
name = "own"
src = "en"
tgt = "de"
[[download.train]]
name = "mine"
src = "corpus.en"
tgt = { path = "sub/corpus.de" }
"""


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_is_valid_and_says_what_it_is(name):
    assert read_recipe(name).name == name
    assert len(shipped_recipes()[name]) > 20


def test_the_multi30k_recipe_pins_every_file():
    download = read_recipe("multi30k").download
    for source in (*download.train, *download.dev, *download.test):
        assert source.src.sha256
        assert source.tgt.sha256
        assert source.num_rows


def test_paths_are_relative_to_the_recipe_that_names_them(tmp_path):
    [source] = read_recipe(write(tmp_path, OWN)).download.train
    assert source.src.path == str(tmp_path / "corpus.en")
    assert source.tgt.path == str(tmp_path / "sub" / "corpus.de")


def test_a_recipe_extends_another_tables_merge_and_lists_replace(tmp_path):
    (tmp_path / "base").mkdir()
    write(tmp_path / "base", OWN + "[clean]\nmax_words = 7\nmax_chars = 70\n")
    path = write(tmp_path, 'extends = "base/own.toml"\nname = "mine"\n[clean]\nmax_words = 8\n')
    config = read_recipe(path)
    assert (config.name, config.clean.max_words, config.clean.max_chars) == ("mine", 8, 70)
    assert config.download.train[0].src.path == str(tmp_path / "base" / "corpus.en")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.max_steps=7", 7),
        ("train.max_steps = 7", 7),
        ("train.precision=bf16", "bf16"),
        ('train.precision="bf16"', "bf16"),
        ("clean.normalise=false", False),
        ("clean.max_word_ratio=1.5", 1.5),
        ("train.label_smoothing=0", 0),
    ],
)
def test_an_override_is_a_toml_value_or_plain_text(override, expected):
    section, name = override.partition("=")[0].strip().split(".")
    config = read_recipe("quickstart", parse_overrides([override]))
    assert getattr(getattr(config, section), name) == expected


def test_mirrors_join_those_of_the_recipe(tmp_path):
    path = write(tmp_path, OWN + '[download.mirrors]\n"http://a/" = "copy"\n')
    config = read_recipe(path, {"download.mirrors": {"http://b/": "/elsewhere"}})
    assert config.download.mirrors == {
        "http://a/": str(tmp_path / "copy"),
        "http://b/": "/elsewhere",
    }


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("clean.max_wrods=3", "`clean.max_wrods` is not a field.*Did you mean `clean.max_words`"),
        ("trian.max_steps=3", "`trian` is not a field of a recipe. Did you mean `train`"),
        ("train.max_step=3", "Did you mean `train.max_steps`"),
        ("model.num_head=3", "Did you mean `model.num_heads`"),
        ("zzz=3", "`zzz` is not a field of a recipe. There are: name, src, tgt"),
        ("train.max_steps=many", "`train.max_steps` must be a valid integer.*but is 'many'"),
        (
            "clean.rules_off=['lenght']",
            "`clean.rules_off.0` must be 'length', 'ratio'.*but is 'lenght'",
        ),
        ("clean.max_words=0", "`clean.max_words` must be greater than or equal to 1, but is 0"),
        ("vocab.kind=wordpiece", "`vocab.kind` must be 'unigram' or 'bpe', but is 'wordpiece'"),
        ("train=3", "`train` must be a dictionary"),
        ("clean.max_words.x=3", "`clean.max_words` must be a valid integer"),
        ("model.num_heads=7", r"In `model`: `num_heads` must divide `dim` \(128\), but is 7"),
        ("train.warmup_steps=0", "In `train`: `warmup_steps` must be at least 1"),
        ("average.last=99", r"`average.last` must be at most `train.keep_checkpoints` \(5\)"),
        (
            "average.best=2",
            r"`average.best` must be at most `train.keep_best_checkpoints` \(1\), but",
        ),
        (
            "evaluate.paper_scores=['tset']",
            r"must name sets of `download.test` \(test, .*names tset",
        ),
        ("evaluate.bleu_tokenizer=14", "`evaluate.bleu_tokenizer` must be 'auto', '13a'"),
        ("compute.num_workers=3", "`compute.num_workers` must divide.*but is 3"),
        ("compute.num_workers=[2, 1]", r"must be \[least, most\].*but is \[2, 1\]"),
        ("compute.num_workers=[1, 99]", r"`train.micro_batches_per_step` \(\d\), but is \[1, 99\]"),
        (
            "compute.resources.train.custom={CPU=1}",
            r"`compute.resources.train.custom`: must not name Ray's own `CPU`: say `num_cpus` inst",
        ),
        ("compute.resources.clean.custom={GPU=1}", "must not name Ray's own `GPU`"),
        (
            "compute.resources.clean.custom={big=0}",
            r"`.*custom.big` must be greater than 0, but is",
        ),
        (
            "tokenize.max_pieces=600",
            r"`tokenize.max_pieces` \+ 1 must be at most `train.tokens_per",
        ),
        ("src=English", "`src` must match pattern|`src` String must match|`src` .*pattern"),
        ("nonsense", "An override must read section.field=value, but is `nonsense`"),
        ("name.x=1", "`name.x` cannot be overridden: `name` is no section"),
        ("download.train=[]", "`download.train` .*at least 1 item"),
        (
            "download.train=[{name='a', src='x'}]",
            "`src` and `tgt` must both be given, or `builtin`",
        ),
        ("download.train=[{name='a', srx='x'}]", "Did you mean `download.train.0.src`"),
        ("download.train=[{name='../a', src='x', tgt='y'}]", "`download.train.0.name` .*pattern"),
        ("download.train=[{name='dev', src='x', tgt='y'}]", "names must be unique, but dev is"),
        ("download.train=[{name='a', src={sha256='x'}, tgt='y'}]", "sha256"),
        (
            "download.train=[{name='a', src='https://me:secret@host/a', tgt='y'}]",
            "`url` must hold no user name or password",
        ),
    ],
)
def test_a_wrong_override_is_one_clear_line(override, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe("quickstart", parse_overrides([override]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not valid TOML"),
        ('extends = "own.toml"', "extends itself"),
        ("extends = 3", "`extends` in .* must name a recipe"),
        ('extends = "quikstart"', "No recipe is named `quikstart`. Did you mean `quickstart`"),
        ('src = "en"', "`name` is missing: every recipe must give it"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_one_clear_line(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_recipe(write(tmp_path, text))


def test_a_missing_recipe_is_named():
    with pytest.raises(ConfigError, match=r"Recipe file nowhere.toml does not exist"):
        read_recipe("nowhere.toml")


def test_fields_at_their_default_and_those_of_speed_are_not_keyed():
    config = read_recipe("quickstart", {"evaluate.tokens_per_batch": 1, "evaluate.beam_size": 4})
    assert "evaluate" not in keyed(config) or keyed(config)["evaluate"] == {}
    assert keyed(config, defaults=True)["evaluate"] == {
        "beam_size": 4,
        "length_penalty": 0.6,
        "max_extra_tokens": 50,
        "bleu_tokenizer": "auto",
        "paper_scores": [],
        "comet": None,
        "every_checkpoint": False,
    }
    assert keyed(read_recipe("quickstart", {"evaluate.beam_size": 2}))["evaluate"] == {
        "beam_size": 2
    }


def test_each_field_knows_the_file_that_gives_it(tmp_path):
    write(tmp_path, OWN + "[clean]\nmax_words = 7\nmax_chars = 70\n", "base.toml")
    path = write(tmp_path, 'extends = "base.toml"\n[clean]\nmax_words = 8\n')
    given = origins(path)
    assert given["clean.max_words"] == "own.toml"
    assert given["clean.max_chars"] == given["download.train"] == given["src"] == "base.toml"
    assert "clean.min_words" not in given


@pytest.mark.parametrize("recipe", shipped_recipes())
def test_a_shipped_recipe_says_what_each_file_must_be_and_how_its_text_may_be_used(recipe):
    download = read_recipe(recipe).download
    for source in (*download.train, *download.dev, *download.test):
        assert source.builtin or source.licence, source.name
        for file in (source.src, source.tgt):
            assert file is None or file.sha256 or file.md5, source.name


@pytest.mark.parametrize(
    ("recipe", "parameters"),
    [("wmt14-en-de-base", 63_045_632), ("wmt14-en-de-big", 214_171_648)],
)
def test_the_papers_recipes_train_the_papers_models(recipe, parameters):
    config = read_recipe(recipe)
    with torch.device("meta"):
        model = Transformer(config.model, config.vocab.size)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    train = config.train
    assert train.tokens_per_micro_batch * train.micro_batches_per_step == 25_600
    assert (train.adam_beta2, train.clip_norm, train.weight_decay) == (0.98, 0.0, 0.0)
    rates = [learning_rate(step, config.model.dim, train.warmup_steps, train.lr_scale) for step in (4000, 8000)]  # fmt: skip
    assert rates[0] == pytest.approx(6.99e-4 if recipe.endswith("base") else 4.94e-4, rel=1e-2)
    assert rates[0] > rates[1]


def test_the_best_checkpoints_need_a_dev_set(tmp_path):
    path = write(tmp_path, OWN + "[average]\nbest = 1\n")
    with pytest.raises(ConfigError, match=r"`average.best` needs a dev set"):
        read_recipe(path)
    assert read_recipe(path, {"dedup.holdout.dev": 10}).average.best == 1


@pytest.mark.parametrize("pair", ["en-de", "en-fr"])
@pytest.mark.parametrize("size", ["base", "big"])
def test_the_papers_recipes_ask_for_its_own_scores(pair, size):
    config = read_recipe(f"wmt14-{pair}-{size}")
    assert config.evaluate.paper_scores == ["newstest2014"]
