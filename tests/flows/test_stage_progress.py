"""How far a stage is, told to Prefect; tests/system sees the artifact on a real server."""

import threading
import time
from uuid import uuid4

import pytest

from flows import stage_progress
from flows.stage_progress import StageProgress


@pytest.fixture
def sent(monkeypatch):
    """What is sent, in place of a server."""
    sent, told = [], threading.Condition()
    identifier = uuid4()

    def send(*message):
        with told:
            sent.append(message)
            told.notify()

    def create(percent, key, description):
        send(key, percent, description)
        return identifier

    def update(artifact, percent, description):
        assert artifact == identifier
        send("update", percent, description)

    monkeypatch.setattr(stage_progress, "create_progress_artifact", create)
    monkeypatch.setattr(stage_progress, "update_progress_artifact", update)
    monkeypatch.setattr(stage_progress, "EVERY_S", 0.01)
    sent_after = lambda count: told.wait_for(lambda: len(sent) >= count, 20)  # noqa: E731
    return sent, told, sent_after


def test_a_stage_has_one_artifact_that_ends_with_its_last_amount(sent):
    messages, told, sent_after = sent
    progress = StageProgress()
    progress.begin("clean:europarl-v7")
    progress.show(1, 4, "shards")
    with told:
        assert sent_after(2)
    progress.show(4, 4, "shards", "done")
    progress.end()
    assert messages[0] == ("traduko-clean-europarl-v7", 25.0, "clean:europarl-v7: 1 of 4 shards")
    assert {message[0] for message in messages[1:]} == {"update"}
    assert messages[-1] == ("update", 100.0, "clean:europarl-v7: 4 of 4 shards done")


def test_a_short_stage_and_one_without_a_known_end_send_nothing(sent, monkeypatch):
    messages, _, _ = sent
    progress = StageProgress()
    progress.begin("download")
    progress.show(1, None, "bytes")
    time.sleep(0.1)
    monkeypatch.setattr(stage_progress, "EVERY_S", 60)
    progress.begin("vocab")
    progress.show(1, 1, "vocabularies")
    progress.end()
    progress.show(2, 2, "after the end")
    assert messages == []


def test_an_api_that_hangs_or_is_away_costs_the_stage_nothing(monkeypatch):
    monkeypatch.setattr(stage_progress, "EVERY_S", 0.01)
    monkeypatch.setattr(stage_progress, "LAST_WORD_S", 0.01)
    answers, asked = threading.Event(), threading.Event()

    def hang(*message):
        asked.set()
        answers.wait(60)
        raise ConnectionError("away")

    monkeypatch.setattr(stage_progress, "create_progress_artifact", hang)
    progress = StageProgress()
    progress.begin("train")
    progress.show(0, 1_000, "steps")
    assert asked.wait(20)
    for step in range(1_000):
        progress.show(step, 1_000, "steps")
    progress.end()
    assert not answers.is_set(), "nobody has waited for it"
    answers.set()
