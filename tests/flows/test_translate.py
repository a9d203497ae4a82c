"""Lines in, as many lines out, whatever they hold."""

import io
import subprocess
import sys

import pytest
import sentencepiece
import torch

from flows.cli import main
from model.config import BOS, EOS, PAD, UNK, ModelConfig
from model.transformer import Transformer
from pipeline.bundle import write_bundle

SENTENCES = [f"The child number {number} has a red house." for number in range(200)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tiny untrained model: what it says does not matter, how many lines it says does."""
    vocab = tmp_path_factory.mktemp("vocab")
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=trained, vocab_size=60, model_type="bpe",
        pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS, minloglevel=2,
    )  # fmt: skip
    (vocab / "tokenizer.model").write_bytes(trained.getvalue())
    (vocab / "tokenizer.json").write_text('{"normalise": true}\n')
    config = ModelConfig(dim=8, ff_dim=8, num_heads=1, num_encoder_layers=1, num_decoder_layers=1)
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("model")
    weights = Transformer(config, 60).state_dict()
    write_bundle(folder, weights, config, ("en", "de"), vocab)
    return folder


def translate(model, data, *options):
    return subprocess.run(
        [sys.executable, "-m", "flows.cli", "translate", "--model", str(model),
         "--beam-size", "1", *options],
        input=data, capture_output=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_1003_lines_give_1003_lines_in_order(model):
    lines = [f"The child number {number}" for number in range(997)]
    lines[10:10] = ["", "   ", "word " * 500, "😀 👨‍👩‍👧 🇩🇪", "one\u2028line", "\u0085"]
    assert len(lines) == 1003
    done = translate(model, "".join(f"{line}\n" for line in lines).encode())
    assert done.returncode == 0, done.stderr
    out = done.stdout.decode().split("\n")
    assert len(out) == 1004
    assert out[10] == out[11] == out[15] == out[-1] == ""
    assert out[0] == translate(model, lines[0].encode()).stdout.decode().rstrip("\n")
    assert out[1002] == translate(model, lines[1002].encode()).stdout.decode().rstrip("\n")


def test_what_is_finished_is_written_before_a_broken_line_is_refused(model):
    done = translate(model, b"The child\nThe red house\nT\xfcr\nmore\n")
    assert done.returncode == 2
    assert done.stdout.count(b"\n") == 2
    assert b"standard input must be UTF-8, but line 3 is not, at byte 1 of the line" in done.stderr


def test_files_are_read_in_order_and_a_missing_one_is_named(model, tmp_path, capsysbinary):
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("three")
    arguments = ["translate", "--model", str(model), "--beam-size", "1"]
    assert main([*arguments, str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert capsysbinary.readouterr().out.count(b"\n") == 3
    assert main([*arguments, str(tmp_path / "c")]) == 2
    assert b"c cannot be read: No such file" in capsysbinary.readouterr().err


def test_a_closed_pipe_ends_quietly(model):
    command = f"{sys.executable} -m flows.cli translate --beam-size 1 --model {model} | head -n 1"
    data = "".join(f"{line}\n" for line in SENTENCES * 20).encode()
    done = subprocess.run(
        ["bash", "-c", command], input=data, capture_output=True, timeout=120, check=False
    )
    assert done.stderr == b""
    assert done.stdout.count(b"\n") == 1


def test_a_folder_without_a_model_and_a_recipe_not_run_are_refused(tmp_path, capsys):
    assert main(["translate", "--model", str(tmp_path)]) == 2
    assert "must be a model's folder" in capsys.readouterr().err
    assert main(["translate", "--recipe", "quickstart", "--root", str(tmp_path)]) == 2
    assert "is not built" in capsys.readouterr().err
