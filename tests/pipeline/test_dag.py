"""The graph and its plan, with stages replaced by tiny ones: what is built, when and why."""

import dataclasses

import pytest

from flows.progress import Terminal
from flows.run import Run, Workplace
from pipeline import dag
from pipeline.artifact import Root
from pipeline.compute import InProcess
from pipeline.dag import Selection
from pipeline.errors import ConfigError, CorpusError, InputError
from pipeline.fetching.lock import LOCK_FILE, Lock
from pipeline.recipe import parse_overrides, read_recipe


@pytest.fixture
def calls(monkeypatch):
    """Stages that write down their config and inputs, and say when they run."""
    calls = []

    def fake(node, run, inputs, job):
        calls.append(node.name)
        made_of = {name: artifact.manifest.content for name, artifact in inputs.items()}
        config = node.short_config
        if node.stage.name == "clean":  # a threshold that matters only below 100
            words = config.get("clean", {}).get("max_words", 150)
            config = {"max_words": min(words, 100), "source": config["source"]}
        (job.out / "rows.txt").write_text(repr((node.stage.name, config, made_of)))
        (job.out / "told.txt").write_text(node.name)
        return {"scores": {}}

    for name in dag.STAGE_NAMES:
        stage = getattr(dag, name.upper())
        tiny = dataclasses.replace(stage, run=fake, aside=("told.txt",))
        monkeypatch.setattr(dag, name.upper(), tiny)
    return calls


@pytest.fixture
def recipe(tmp_path):
    for name in ("train", "dev", "test"):
        for side in ("en", "de"):
            (tmp_path / f"{name}.{side}").write_text(f"{name} {side}\n")
    path = tmp_path / "own.toml"
    path.write_text(
        'name = "own"\nsrc = "en"\ntgt = "de"\n'
        + "".join(
            f'[[download.{name}]]\nname = "{name}"\nsrc = "{name}.en"\ntgt = "{name}.de"\n'
            for name in ("train", "dev", "test")
        )
    )
    return str(path)


@pytest.fixture
def make_run(tmp_path, recipe):
    def make(*overrides, only=None, start=None, force=False):
        selection = Selection.of(only, start, force=force)
        config = read_recipe(recipe, parse_overrides(overrides))
        lock = Lock(tmp_path / LOCK_FILE, lambda line: None)
        return Run(config, Root(tmp_path / "root", lambda line: None), selection, lock)

    return make


def execute(run):
    return run.execute(Workplace(InProcess(), Terminal()))


def statuses(run):
    return {step.node.name: (step.status, step.reason) for step in run.plan()}


ALL = [
    "download:train", "download:dev", "download:test", "clean:train", "dedup", "vocab",
    "tokenize", "train", "average", "evaluate",
]  # fmt: skip


def test_each_node_is_built_once_in_order_and_then_cached(make_run, calls):
    first = execute(make_run())
    assert calls == ALL
    assert [result.cached for result in first] == [False] * len(ALL)
    assert [result.reason for result in first] == ["never built"] * len(ALL)
    again = execute(make_run())
    assert calls == ALL
    assert [result.cached for result in again] == [True] * len(ALL)
    assert [result.artifact for result in again] == [result.artifact for result in first]


def test_a_fresh_plan_knows_what_runs_and_what_depends(make_run, calls):
    plan = statuses(make_run())
    assert plan["download:train"] == ("run", "never built")
    assert plan["clean:train"] == ("depends", "depends on what download:train gives")
    assert calls == []
    execute(make_run())
    assert {status for status, _ in statuses(make_run()).values()} == {"cached"}


def test_the_plan_names_the_changed_field(make_run, calls):
    execute(make_run())
    plan = statuses(make_run("clean.max_words=40"))
    assert plan["download:train"][0] == "cached"
    assert plan["clean:train"] == ("run", "config `clean.max_words` 150 → 40")
    assert plan["dedup"] == ("depends", "depends on what clean:train gives")


def test_the_plan_says_that_an_input_changed(make_run, calls, tmp_path):
    execute(make_run())
    (tmp_path / "dev.en").write_text("another\n")
    plan = statuses(make_run())
    assert plan["download:dev"] == ("run", plan["download:dev"][1])
    assert plan["download:dev"][1].startswith("config `src.sha256`")
    execute(make_run(only="download"))
    assert statuses(make_run())["dedup"] == ("run", "input `download:dev` changed")


def test_a_stage_that_gives_the_same_rows_leaves_what_follows_cached(make_run, calls):
    execute(make_run())
    calls.clear()
    execute(make_run("clean.max_words=120"))
    assert calls == ["clean:train"]
    calls.clear()
    execute(make_run("clean.max_words=40"))
    assert calls == ["clean:train", *ALL[4:]]


@pytest.mark.parametrize(
    ("override", "rebuilt"),
    [
        ("dedup.near=false", ALL[4:]),
        ("vocab.size=500", ALL[5:]),
        ("tokenize.max_pieces=100", ALL[6:]),
        ("seed=2", ALL[7:]),
        ("model.dim=64", ALL[7:]),
        ("train.max_steps=5", ALL[7:]),
        ("average.last=2", ALL[8:]),
        ("average.best=1", ALL[8:]),
        ("evaluate.beam_size=1", ALL[9:]),
        ("evaluate.every_checkpoint=true", ALL[9:]),
        ("evaluate.tokens_per_batch=1", []),
        ("compute.threads_per_worker=2", []),
        ("name=other", []),
    ],
)
def test_a_field_reruns_its_stage_and_what_follows_alone(make_run, calls, override, rebuilt):
    execute(make_run())
    calls.clear()
    execute(make_run(override))
    assert calls == rebuilt


def test_a_raised_stage_version_is_a_reason(make_run, calls, monkeypatch):
    execute(make_run())
    version = dag.VOCAB.version
    monkeypatch.setattr(dag, "VOCAB", dataclasses.replace(dag.VOCAB, version=version + 1))
    assert statuses(make_run())["vocab"] == ("run", f"version {version} → {version + 1}")


def test_another_tool_version_is_a_reason(make_run, calls, monkeypatch):
    monkeypatch.setattr(dag, "CLEAN", dataclasses.replace(dag.CLEAN, tools=lambda: {"uni": "14"}))
    execute(make_run())
    monkeypatch.setattr(dag, "CLEAN", dataclasses.replace(dag.CLEAN, tools=lambda: {"uni": "15"}))
    assert statuses(make_run())["clean:train"] == ("run", "uni 14 → 15")


def test_only_takes_one_stage_alone(make_run, calls):
    with pytest.raises(InputError, match=r"`download:train` is not built.*without --only"):
        execute(make_run(only="clean"))
    execute(make_run())
    calls.clear()
    execute(make_run(only="vocab", force=True))
    assert calls == ["vocab"]


def test_from_takes_a_stage_and_what_follows(make_run, calls):
    execute(make_run())
    calls.clear()
    execute(make_run(start="train", force=True))
    assert calls == ["train", "average", "evaluate"]
    assert statuses(make_run(start="train", force=True))["train"] == ("run", "forced")


def test_a_damaged_artifact_is_planned_and_rebuilt(make_run, calls):
    results = {result.node.name: result for result in execute(make_run())}
    results["vocab"].artifact.path("rows.txt").unlink()
    calls.clear()
    status, reason = statuses(make_run())["vocab"]
    assert status == "damaged"
    assert "rows.txt is missing" in reason
    execute(make_run())
    assert calls == ["vocab"]


def test_costly_stages_hash_their_inputs_and_rebuild_damaged_ones(make_run, calls):
    results = {result.node.name: result for result in execute(make_run())}
    rows = results["tokenize"].artifact.path("rows.txt")
    rows.write_text("x" * rows.stat().st_size)
    calls.clear()
    again = {result.node.name: result for result in execute(make_run("train.max_steps=5"))}
    assert calls == ["tokenize", "train", "average", "evaluate"]
    assert again["tokenize"].artifact.path("rows.txt").read_text() != "x"


def test_resumable_state_of_train_does_not_depend_on_how_long_to_train(make_run, calls):
    def work_key(*overrides):
        results = {result.node.name: result for result in execute(make_run(*overrides))}
        train = results["train"].node
        return train.work_key({name: results[name].artifact for name in train.inputs})

    assert work_key() == work_key("train.max_steps=7")
    assert work_key() != work_key("train.warmup_steps=7")
    assert work_key() != work_key("vocab.size=500")


def test_a_missing_file_and_a_folder_are_refused_before_anything_runs(make_run, calls, tmp_path):
    (tmp_path / "test.de").unlink()
    with pytest.raises(CorpusError, match=r"test.de does not exist. Check the path"):
        make_run().plan()
    (tmp_path / "test.de").mkdir()
    with pytest.raises(CorpusError, match=r"test.de must be a file, but is a folder"):
        execute(make_run())
    assert calls == []


def test_the_same_file_on_both_sides_is_refused(make_run, calls):
    source = "download.train=[{name='a', src='%s', tgt='%s'}]"
    path = make_run().config.download.train[0].src.path
    with pytest.raises(CorpusError, match="for both sides"):
        make_run(source % (path, path)).plan()


def test_a_recipe_without_test_sets_ends_with_a_model(make_run, calls):
    execute(make_run("download.test=[]"))
    assert calls[-1] == "average"


@pytest.mark.parametrize("stage", ["vocab", "train"])
def test_a_bundle_to_begin_from_enters_by_its_content(make_run, calls, tmp_path, stage):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    with pytest.raises(CorpusError, match=r"bundle/\w+\.\w+ does not exist"):
        make_run(f"{stage}.init_from={bundle}").plan()
    for name in dag.BUNDLE_FILES[stage]:
        (bundle / name).write_text("one")
    execute(make_run(f"{stage}.init_from={bundle}"))
    moved = bundle.rename(tmp_path / "elsewhere")
    assert statuses(make_run(f"{stage}.init_from={moved}"))["evaluate"][0] == "cached"
    (moved / name).write_text("other")
    assert statuses(make_run(f"{stage}.init_from={moved}"))[stage][0] == "run"


def test_checkpoints_are_an_input_of_evaluate_only_where_they_are_scored(make_run, calls):
    def inputs(*overrides):
        return next(n.inputs for n in make_run(*overrides).nodes() if n.name == "evaluate")

    assert "train" not in inputs()
    assert "train" in inputs("evaluate.every_checkpoint=true")


def test_what_the_last_stage_lacks_is_told_before_the_first(make_run, calls, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"`evaluate\.comet` needs the command"):
        execute(make_run("evaluate.comet=Unbabel/wmt22-comet-da"))
    assert calls == []
