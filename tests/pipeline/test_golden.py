"""The rows that each stage makes of one fixed corpus, by digest.

A digest here changes only together with its stage's `version` in `pipeline/dag.py`: so a change of
code or of a library never gives other rows under the same fingerprint.
"""

import hashlib
import importlib.metadata

import pytest
import torch

from model.config import ModelConfig, TrainConfig
from pipeline.batching import Plan, TokenShards
from pipeline.cleaning.rules import RULES
from pipeline.config import RunConfig
from pipeline.events import EVENTS_FILE, read_events
from pipeline.stages import STAGES
from pipeline.train import Task, load_tokens, run_worker

GOLDEN = {
    ("download", 1): "990293c3d068709e+de6ebe7a88e3c6d9+fc5c962f1ea6a253",
    ("clean", 2): "3c0efae9543854c6+f650a0a0a58663ca",
    ("dedup", 2): "fe20445202f7e8d7",
    ("vocab", 2): "460603c6e99a5f7a",
    ("tokenize", 2): "cf7282742a2ed120",
    ("train", 2): "b3fe38c6dd2c42a7",
}
"""The first digits of content digests, by stage and version. `train`: of its plan."""
LOSSES = [5.753633, 5.114164, 4.627199]
SENTENCEPIECE = "0.2.3"
"""What the vocabulary was learnt with. Its version is part of that stage's fingerprint."""

# Text with something for each rule, beside 300 pairs of the built-in grammar.
ODD = [
    ("Salt &amp; pepper for the cafe\u0301.", "Salz &amp; Pfeffer für das Cafe\u0301."),
    ("", "Nichts."),
    ("It is  far\u2028to the\u200b lake.", "Es ist\tweit zum See."),
    ("One word.", "Ein " + "sehr " * 9 + "langes Wort."),
    ("Nobody translated this sentence.", "Nobody translated this sentence!"),
    ("No.", "Nein."),
    ("No.", "Nein."),
    ("The clock strikes seven!", "Es schlägt sieben."),
    (" ".join(["very"] * 90) + " far.", " ".join(["sehr"] * 90) + " weit."),
    ("It costs 25 euros.", "Es kostet 52 Euro."),
    ("The train leaves at 2:30 p.m.", "Der Zug fährt um 15.30 Uhr ab."),
    ("It is on https://one.example now.", "Es ist jetzt auf https://other.example da."),
    ("The <b>cat</b> waits by the door.", "Die Katze wartet an der Tür."),
    ("The cat waits by the door.", "Die Katze wartet an der TÃ¼r."),
    ("Personne ne répond au téléphone.", "Niemand geht ans Telefon."),
    ("— ? !", "— ? !"),
    (f"Say {'o' * 61}!", f"Sag {'o' * 61}!"),
    (" ".join(["very"] * 151), " ".join(["sehr"] * 151)),
    ("no", "NEIN!"),
]
DEV = [("The clock strikes seven.", "Die Uhr schlägt sieben."), ("A door &lt; 7.", "Eine Tür.")]


@pytest.fixture(scope="module")
def made(tmp_path_factory, build_stages):
    """Artifacts by the name of their node."""
    folder = tmp_path_factory.mktemp("golden")
    config = RunConfig.model_validate(
        {
            "name": "golden",
            "src": "en",
            "tgt": "de",
            "download": {
                "train": [
                    {"name": "grammar", "builtin": {"split": "train", "num_train": 300}},
                    _written(folder, "odd", ODD),
                ],
                "dev": [_written(folder, "dev", DEV)],
            },
            "vocab": {"size": 200},
            "tokenize": {"max_pieces": 100, "rows_per_shard": 200},
        }
    )
    return build_stages(config, folder / "root", "tokenize")


def _written(folder, name, pairs):
    for side, index in (("en", 0), ("de", 1)):
        text = "".join(f"{pair[index]}\n" for pair in pairs)
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8", newline="\n")
    return {"name": name, "src": str(folder / f"{name}.en"), "tgt": str(folder / f"{name}.de")}


@pytest.fixture(scope="module")
def shards(made):
    paths = made["tokenize"].paths("part-*.arrow")
    return TokenShards([load_tokens(path) for path in paths])


def check(stage, digest):
    """Compare with the stored digest of this stage at its version."""
    version = next(each.version for each in STAGES if each.name == stage)
    stored = GOLDEN.get((stage, version))
    assert digest == stored, (
        f"`{stage}` version {version} gives rows with the digest\n    {digest}\nbut stored is\n"
        f"    {stored}\nIf other rows are meant, raise the version of `{stage}` in "
        "pipeline/dag.py and store the new digest here; if not, the last change is a mistake."
    )


@pytest.mark.parametrize("stage", ["download", "clean", "dedup", "tokenize"])
def test_the_rows_of_a_stage_change_only_with_its_version(made, stage):
    nodes = [name for name in made if name.partition(":")[0] == stage]
    check(stage, "+".join(made[name].manifest.content[:16] for name in nodes))


def test_the_vocabulary_changes_only_with_its_version_or_sentencepiece(made):
    installed = importlib.metadata.version("sentencepiece")
    assert installed == SENTENCEPIECE, (
        f"The digests of `vocab` and `tokenize` here are of SentencePiece {SENTENCEPIECE}, "
        f"installed is {installed}: its version is part of the fingerprint, so store the new ones."
    )
    check("vocab", made["vocab"].manifest.content[:16])


def test_every_rule_had_something_to_do(made):
    assert set(made["clean:odd"].stats["rejected"]) == RULES.keys() - {"drop"}
    assert made["dedup"].stats["rejected"] == {
        "duplicate": 1,
        "near_duplicate": 1,
        "overlap": 1,
    }
    assert made["tokenize"].stats["over_long"] == 1
    assert len(made["tokenize"].paths("part-*")) == 2


def test_the_plan_of_training_changes_only_with_its_version(shards):
    plan = Plan(shards.src_lengths, shards.tgt_lengths, 1, 256, 4, rows_per_block=32)
    digest, epoch = hashlib.sha256(), 0
    for step in plan.steps():
        rows = [micro_batch.tolist() for micro_batch in step.micro_batches]
        digest.update(repr((step.number, step.epoch, rows, step.num_target_tokens)).encode())
        epoch = step.epoch
        if epoch == 2:
            break
    check("train", digest.hexdigest()[:16])


def test_the_first_losses_of_training_stay_what_they_were(made, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run_worker(_task(made, tmp_path), lambda: False)
    finally:
        torch.set_num_threads(threads)
    events = read_events(tmp_path / EVENTS_FILE)
    losses = [event["metrics"]["loss"] for event in events if event["kind"] == "train"]
    assert losses == pytest.approx(LOSSES, abs=1e-4), (
        "If other numbers are meant, raise the version of `train` in pipeline/dag.py and store "
        "them here; if not, the last change is a mistake."
    )


def _task(made, folder):
    tokenized = made["tokenize"]
    return Task(
        seed=1,
        model=ModelConfig(
            dim=16, ff_dim=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
        ),
        train=TrainConfig(
            max_steps=3,
            tokens_per_micro_batch=256,
            micro_batches_per_step=4,
            warmup_steps=2,
            dev_every_steps=3,
        ),
        vocab_size=tokenized.stats["vocab_size"],
        tokenizer=tokenized.stats["tokenizer"],
        shards=tuple(map(str, tokenized.paths("part-*.arrow"))),
        dev=tuple(map(str, tokenized.paths("dev/*.arrow"))),
        folder=str(folder),
        log_every_steps=1,
    )
