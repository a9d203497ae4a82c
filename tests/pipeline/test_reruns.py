"""Changing one field of a recipe reruns exactly what depends on it: a property of every field.

`DEPENDS` says for each field which nodes of the graph it enters. Whoever adds a field says so here.
"""

import dataclasses
import typing
from types import UnionType

import pytest
from pydantic import BaseModel

from pipeline import dag
from pipeline.artifact import Root, digest_json
from pipeline.config import RunConfig
from pipeline.dag import Selection, nodes, plan
from pipeline.errors import ConfigError
from pipeline.file_digests import FileDigests
from pipeline.recipe import read_recipe

DEPENDS = {
    (): """
        name root download.mirrors evaluate.tokens_per_batch
        compute.num_workers compute.threads_per_worker compute.accelerator compute.log_every_steps
        compute.resources.clean.num_cpus compute.resources.clean.memory_gib
        compute.resources.dedup.num_cpus compute.resources.dedup.memory_gib
        compute.resources.tokenize.num_cpus compute.resources.tokenize.memory_gib
        compute.resources.train.num_cpus compute.resources.train.memory_gib
        compute.resources.evaluate.num_cpus compute.resources.evaluate.memory_gib
        compute.resources.clean.custom compute.resources.dedup.custom
        compute.resources.tokenize.custom compute.resources.train.custom
        compute.resources.evaluate.custom
    """,
    ("clean:train", "average"): "src tgt",
    ("clean:train",): """
        clean.punctuation clean.replace clean.drop clean.min_words clean.max_words clean.max_chars
        clean.max_word_ratio clean.max_char_ratio clean.max_short_words clean.max_word_chars
        clean.min_letter_words clean.min_letter_chars clean.min_copy_similarity
        clean.min_number_overlap clean.same_tags clean.min_language_score clean.rules_off
    """,
    ("clean:train", "vocab"): "clean.normalise clean.preset",
    ("dedup",): """
        dedup.exact dedup.near dedup.decontaminate dedup.min_overlap_chars
        dedup.holdout.dev dedup.holdout.test
    """,
    ("vocab",): """
        vocab.joint vocab.kind vocab.size vocab.tgt_size vocab.max_sentences
        vocab.character_coverage vocab.byte_fallback vocab.user_symbols vocab.init_from
    """,
    ("tokenize",): "tokenize.max_pieces tokenize.rows_per_shard",
    ("train",): """
        seed train.max_steps train.tokens_per_micro_batch train.micro_batches_per_step
        train.warmup_steps train.lr_scale train.label_smoothing train.adam_beta1 train.adam_beta2
        train.adam_epsilon train.clip_norm train.weight_decay train.precision
        train.checkpoint_every_steps train.keep_checkpoints train.keep_best_checkpoints
        train.dev_every_steps train.patience train.max_bad_steps train.compile train.init_from
    """,
    ("train", "average"): """
        model.dim model.ff_dim model.num_heads model.num_encoder_layers model.num_decoder_layers
        model.norm model.dropout model.positions model.max_positions model.key_dim model.value_dim
        model.attention_bias model.attention_dropout model.ff_dropout
    """,
    ("average",): "average.last average.best",
    ("evaluate",): """
        evaluate.beam_size evaluate.length_penalty evaluate.max_extra_tokens evaluate.bleu_tokenizer
        evaluate.paper_scores evaluate.comet evaluate.every_checkpoint
    """,
}
"""The nodes that a field enters by itself; what is made from those follows."""

RESUMABLE = {"train.max_steps"}
"""Fields that train anew from the checkpoints that are there."""

VALUES = {
    "clean.preset": ["none"],
    "src": ["fr"],
    "tgt": ["fr"],
    "evaluate.paper_scores": [["test"]],
    "vocab.character_coverage": [0.95],
    "vocab.init_from": ["{bundle}"],
    "train.init_from": ["{bundle}"],
}
"""Other values of fields for which their type tells none that is valid."""

GIVEN = {
    "dedup.exact": {"dedup.near": False},
    "dedup.holdout.dev": {"download.dev": [], "dedup.holdout.dev": 7},
    "dedup.holdout.test": {"download.test": [], "dedup.holdout.test": 7},
    "vocab.tgt_size": {"vocab.joint": False},
}
"""What a recipe must say for a field to have another value."""

OWN, NAME, NOTHING = "its download", "what names it", "nothing"
OF_SOURCES = {
    "name": ("files", "other", NAME),
    **{
        f"{place}.{field}": (base, value, reruns)
        for place, base in (("src", "files"), ("tgt", "files"), ("pairs", "pairs"))
        for field, value, reruns in (("md5", "0" * 32, NOTHING), ("bytes", 7, NOTHING))
    },
    **{
        f"{place}.{field}": (base, value, OWN)
        for place in ("src", "tgt", "pairs")
        for field, base, value in (
            ("path", "pairs" if place == "pairs" else "files", "{other file}"),
            ("url", "addresses", "https://example.org/other.tsv"),
            ("sha256", "digests", "b" * 64),
            ("member", "archives", "other.tsv"),
        )
    },
    "format": ("pairs", "jsonl", OWN),
    "columns": ("pairs", [1, 0], OWN),
    "header": ("pairs", True, OWN),
    "on_bad_rows": ("files", "reject", OWN),
    "builtin.corpus": ("builtin", None, NOTHING),
    "builtin.split": ("builtin", "test_num", OWN),
    "builtin.num_train": ("builtin", 2_000, OWN),
    "num_rows": ("files", 7, NOTHING),
    "licence": ("files", "CC0", NOTHING),
    "citation": ("files", "ours", NOTHING),
}
"""Of a source's fields: a source that has it, another value, and what that reruns."""

NAMED_BY = {"train": ("clean:other", "dedup"), "dev": ("dedup", "tokenize"), "test": ("dedup", "evaluate")}  # fmt: skip
"""The nodes that a source's name enters, by what the source is for."""

KINDS = tuple(NAMED_BY)


def leaves(section, prefix=""):
    """Every field of a section, dotted, with its type."""
    for name, annotation in annotations(section).items():
        inner = next((kind for kind in types_in(annotation) if annotations(kind)), None)
        if inner:
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, annotation


def annotations(section):
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {name: field.annotation for name, field in section.model_fields.items()}
    if isinstance(section, type) and dataclasses.is_dataclass(section):
        return {field.name: field.type for field in dataclasses.fields(section)}
    return {}


def types_in(annotation):
    yield annotation
    for inner in typing.get_args(annotation):
        yield from types_in(inner)


def others(kind, value):
    """Values of a type that are not `value`; not all of them need be valid."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return [choice for choice in arguments if choice != value]
    if origin in (list, tuple):
        return [[others(inner, None)[0] for inner in arguments]]
    if origin is dict:
        return [{"https://example.org/": "https://example.com/"}, {"highmem": 1}]
    if origin in (typing.Annotated, typing.Union, UnionType):
        inner_types = arguments[:1] if origin is typing.Annotated else arguments
        return [other for inner in inner_types for other in others(inner, value)]
    return [other for other in PLAIN[kind](value) if other != value]


PLAIN = {
    bool: lambda value: [not value],
    int: lambda value: [1, 2, 64] if not isinstance(value, int) else [value + 1, value * 2, value // 2],
    float: lambda value: [value / 2, value * 2, value + 0.25],
    str: lambda value: ["other"],
    type(None): lambda value: [None],
}  # fmt: skip

FIELDS = dict(leaves(RunConfig))
DIRECT = {field: direct for direct, fields in DEPENDS.items() for field in fields.split()}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files that recipes name, and a root."""
    folder = tmp_path_factory.mktemp("reruns")
    for name in (
        "train.en",
        "train.de",
        "dev.en",
        "dev.de",
        "test.en",
        "test.de",
        "other.tsv",
        "p.tsv",
    ):
        (folder / name).write_text(f"{name}\tand more\n")
    for names in dag.BUNDLE_FILES.values():
        for name in names:
            (folder / name).write_text(name)
    (folder / "own.toml").write_text('name = "own"\nsrc = "en"\ntgt = "de"\n')
    return folder


@pytest.fixture(scope="module")
def recipe(place):
    """Reads the recipe with overrides; none if they do not fit."""
    sources = {f"download.{kind}": [source(place, "files", kind)] for kind in KINDS}

    def read(overrides):
        return read_recipe(str(place / "own.toml"), sources | overrides)

    return read


def source(place, base, kind):
    """A source of one of five forms."""
    more = {
        "files": {"src": {"path": f"{place}/{kind}.en"}, "tgt": {"path": f"{place}/{kind}.de"}},
        "pairs": {"pairs": {"path": f"{place}/p.tsv"}},
        "builtin": {"builtin": {"split": "train"}},
    }
    return {"name": kind, **more[base]}


def addressed(place, kind, field, base):
    """A source with an address in the field's place."""
    known = {"addresses": {}, "digests": {"sha256": "a" * 64}, "archives": {"member": "a.tsv"}}
    ending = "zip" if base == "archives" else "tsv"
    at = field.partition(".")[0]
    given = source(place, "pairs" if at == "pairs" else "files", kind)
    return given | {at: {"url": f"https://example.org/a.{ending}", **known[base]}, "format": "tsv" if at == "pairs" else "text"}  # fmt: skip


@pytest.fixture(scope="module")
def statuses(place):
    """What a plan says of a recipe once another one has been built."""
    digests = FileDigests(place / "digests.json")

    def compare(before, after):
        root = Root(place / digest_json(before.model_dump(mode="json")), lambda line: None)
        ready = build(nodes(before, digests), root)
        graph = nodes(after, digests)
        planned = plan(graph, root, Selection.of(None, None, force=False), {})
        return Changes(ready, nodes(before, digests), graph, {step.node.name: step.status for step in planned})  # fmt: skip

    return compare


class Changes(typing.NamedTuple):
    ready: dict
    before: list
    after: list
    planned: dict

    def enters(self):
        """Names of the nodes whose artifact changes even if all their inputs stay."""
        renamed = {n.name: o.name for n, o in zip(self.after, self.before, strict=True)}
        ready = self.ready | {new: self.ready[old] for new, old in renamed.items()}
        made = {ready[name].manifest.fingerprint for name in self.ready}
        return {node.name for node in self.after if node.identity(ready).fingerprint not in made}

    def work_keys(self):
        [old, new] = (next(n for n in graph if n.name == "train") for graph in (self.before, self.after))  # fmt: skip
        return old.work_key(self.ready), new.work_key(self.ready)


def build(graph, root):
    """Small artifacts of all nodes, each of them with content of its own."""
    ready = {}
    for node in graph:
        identity = node.identity(ready)
        ready[node.name], _ = root.produce(identity, lambda out, work, f=identity.fingerprint: write(out, f))  # fmt: skip
    return ready


def write(out, text):
    (out / "rows.txt").write_text(text)
    return {}


def expected_plan(graph, enters):
    """By node: `run` where something enters, `depends` from there on."""
    told = {}
    for node in graph:
        if any(told[name] != "cached" for name in node.inputs):
            told[node.name] = "depends"
        else:
            told[node.name] = "run" if node.name in enters else "cached"
    return told


def test_every_field_says_what_depends_on_it():
    of_sources = {f"download.{kind}.{field}" for kind in KINDS for field in OF_SOURCES}
    assert set(FIELDS) == set(DIRECT) | of_sources, "say in DEPENDS which nodes the field enters"
    assert sum(len(fields.split()) for fields in DEPENDS.values()) == len(DIRECT), "said twice"


def other_recipes(recipe, place, field):
    """The recipe, and all others in which just this field has another valid value."""
    given = GIVEN.get(field, {})
    before = recipe(given)
    value = before
    for name in field.split("."):
        value = getattr(value, name)
    found = []
    for other in VALUES.get(field) or others(FIELDS[field], value):
        overrides = {field: str(place) if other == "{bundle}" else other}
        try:
            found.append(recipe(given | overrides))
        except ConfigError:
            continue
    return before, [after for after in found if after != before]


@pytest.mark.parametrize("field", sorted(DIRECT))
def test_a_field_reruns_what_depends_on_it_alone(recipe, place, statuses, field):
    before, changed = other_recipes(recipe, place, field)
    assert changed, f"no other valid value of {field} is known: give one in VALUES"
    for after in changed:
        changes = statuses(before, after)
        assert changes.enters() == set(DIRECT[field])
        assert changes.planned == expected_plan(changes.after, DIRECT[field])
        old, new = changes.work_keys()
        assert (old == new) == (field in RESUMABLE or "train" not in DIRECT[field])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", sorted(OF_SOURCES))
def test_a_sources_field_reruns_its_download_alone(recipe, place, statuses, kind, field):
    base, value, reruns = OF_SOURCES[field]
    if value is None:
        assert len(others(FIELDS[f"download.{kind}.{field}"], "quickstart")) == 0, "say another"
        return
    forms = ("files", "pairs", "builtin")
    given = source(place, base, kind) if base in forms else addressed(place, kind, field, base)
    value = str(place / "other.tsv") if value == "{other file}" else value
    after = recipe({f"download.{kind}": [changed_at(given, field, value)]})
    changes = statuses(recipe({f"download.{kind}": [given]}), after)
    enters = {OWN: {f"download:{kind}"}, NAME: set(NAMED_BY[kind]), NOTHING: set()}[reruns]
    assert changes.enters() == enters
    assert changes.planned == expected_plan(changes.after, enters)


def changed_at(source, field, value):
    """The same source with another value in a field."""
    name, _, inner = field.partition(".")
    return source | {name: source[name] | {inner: value} if inner else value}


def test_a_file_elsewhere_and_an_address_with_a_digest_rerun_nothing(recipe, place, statuses):
    (place / "moved.en").write_bytes((place / "train.en").read_bytes())
    given = source(place, "files", "train")
    moved = changed_at(given, "src.path", str(place / "moved.en"))
    known = addressed(place, "train", "pairs.sha256", "digests")
    elsewhere = changed_at(known, "pairs.url", "https://example.com/mirror.tsv")
    for before, after in ((given, moved), (known, elsewhere)):
        changes = statuses(
            recipe({"download.train": [before]}), recipe({"download.train": [after]})
        )
        assert set(changes.planned.values()) == {"cached"}
