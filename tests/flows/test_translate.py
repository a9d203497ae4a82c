"""Lines in, as many lines out, whatever they hold."""

import gzip
import io
import json
import signal
import subprocess
import sys
import time

import pytest

from flows.cli import main
from model.config import ModelConfig

SENTENCES = [f"the man {number} sees the house" for number in range(200)]
COMMAND = [sys.executable, "-m", "flows.cli", "translate", "--beam-size", "1", "--model"]


@pytest.fixture(scope="module")
def model(tmp_path_factory, make_bundle):
    """A tiny untrained model: what it says does not matter, how many lines it says does."""
    shape = ModelConfig(dim=8, ff_dim=8, num_heads=1, num_encoder_layers=1, num_decoder_layers=1,
                        max_positions=300)  # fmt: skip
    return make_bundle(tmp_path_factory.mktemp("model"), shape)


def translate(model, data, *options):
    return subprocess.run(
        [*COMMAND, str(model), *options], input=data, capture_output=True, timeout=120, check=False
    )


@pytest.fixture
def here(model, capsysbinary, monkeypatch):
    """Translates in this process; gives exit code, lines out, and what was said."""

    def run(*options, data=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = main(["translate", "--model", str(model), "--max-extra-tokens", "5", *options])
        captured = capsysbinary.readouterr()
        return code, captured.out.decode().split("\n")[:-1], captured.err.decode()

    return run


@pytest.mark.slow
def test_1003_lines_give_1003_lines_in_order(model):
    lines = [f"the man number {number}" for number in range(997)]
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
    done = translate(model, b"the man\nthe house\nT\xfcr\nmore\n")
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


# Forms of input


def test_lines_jsonl_parquet_and_packed_text_give_the_same(here, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["the man", "", "the house\tin the wood", "der wald"]
    lines = "".join(f"{text}\n" for text in texts).encode()
    rows = "".join(f"{json.dumps({'id': 1, 'en': text})}\n" for text in texts)
    (tmp_path / "a.txt").write_bytes(lines)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "a.jsonl").write_text(rows)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    pq.write_table(pa.table({"en": texts}), tmp_path / "a.parquet")
    code, expected, _ = here(data=lines)
    assert (code, len(expected)) == (0, 4)
    assert here("--field", "en", data=rows.encode())[1] == expected
    for name in ("a.txt", "a.txt.gz", "a.jsonl", "a.jsonl.gz", "a.parquet"):
        code, found, _ = here("--field", "en", str(tmp_path / name))
        assert (code, found) == (0, expected), name


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "must be JSONL, but line 2 is no JSON"),
        ('{"de": "x"}', "line 2 must be an object with a text `en`, but has `de`"),
        ('["x"]', "line 2 must be an object with a text `en`, but has none"),
        ('{"en": 3}', "line 2 must be an object with a text `en`, but has `en`"),
        (r'{"en": "\ud800"}', "line 2 has half of a surrogate pair in `en`"),
        ("[" * 100_000, "line 2 is no JSON"),
    ],
)
def test_a_row_without_a_text_ends_the_translation_and_is_named(here, row, message):
    code, found, said = here("--field", "en", data=f'{{"en": "a man"}}\n{row}\n'.encode())
    assert (code, len(found)) == (2, 1)
    assert message in said


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(here):
    code, found, said = here(data=b"a man\n" + b"x" * (4 * 2**20 + 1))
    assert (code, len(found)) == (2, 1)
    assert "standard input, line 2: a line must have at most 4,194,304 bytes" in said


def test_what_is_no_parquet_and_a_column_that_is_not_there_are_refused(here, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    path.write_bytes(b"no parquet")
    code, _, said = here(str(path))
    assert code == 2
    assert "must be a whole Parquet file, but is damaged" in said
    pq.write_table(pa.table({"en": ["a", None], "n": [1, 2]}), path)
    assert "must have a column `src`, but has `en`, `n`" in here(str(path))[2]
    assert (
        "must hold text in its column `n`, but that is int64" in here("--field", "n", str(path))[2]
    )
    code, found, said = here("--field", "en", str(path))
    assert (code, len(found)) == (2, 1)
    assert "row 2 has no `en` (null)" in said


# Forms of output


def test_n_best_scores_and_alignments_are_columns(here):
    options = ("--n-best", "2", "--beam-size", "3", "--scores", "--alignments", "words")
    code, found, _ = here(*options, data=b"the man sees\n\na house\n")
    assert code == 0
    rows = [line.split("\t") for line in found]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert all(len(row) == 4 for row in rows)
    assert float(rows[0][2]) >= float(rows[1][2])
    assert rows[2][1:] == ["", "0.000000", ""]
    for row in (rows[0], rows[1], rows[3], rows[4]):
        pairs = [tuple(map(int, pair.split("-"))) for pair in row[3].split()]
        assert all(tgt < len(row[1].split()) for _, tgt in pairs)


def test_json_is_an_object_a_line(here):
    options = ("--json", "--n-best", "2", "--beam-size", "2", "--scores", "--alignments", "pieces")
    code, found, _ = here(*options, data=b"the man\n\n")
    rows = [json.loads(line) for line in found]
    assert (code, [row["line"] for row in rows]) == (0, [1, 2])
    assert [row["src"] for row in rows] == ["the man", ""]
    assert set(rows[0]["translations"][0]) == {
        "text", "score", "log_prob", "src_units", "tgt_units", "alignment"
    }  # fmt: skip
    assert len(rows[0]["translations"]) == 2
    assert rows[1]["translations"] == [{"text": "", "score": 0.0, "log_prob": 0.0}]
    code, found, _ = here("--json", data=b"the man\n\xff\n")
    assert json.loads(found[0])["line"] == 1
    assert json.loads(found[1])["error"]["kind"] == "corpus"


def test_long_lines_are_split_cut_or_refused_and_told(here):
    data = b"the man sees the house. " * 40 + b"\na man\n" + b"the house " * 200 + b"\n"
    code, split, said = here(data=data)
    assert (code, len(split)) == (0, 3)
    assert "warning: line 1 is too long for the model: taken in 2 parts." in said
    assert "warning: 2 lines were too long for the model (2 taken in parts, 0 cut): 1, 3." in said
    code, cut, said = here("--overlong", "cut", data=data)
    assert (code, len(cut)) == (0, 3)
    assert "line 1 is too long for the model: its end is left out" in said
    assert cut[1] == split[1]
    code, found, said = here("--overlong", "stop", data=b"a man\n" + data)
    assert (code, found) == (2, [split[1]])
    assert "text 2 has" in said


def test_samples_come_again_with_their_seed(here):
    def sample(seed):
        return here("--sampling", "--seed", seed, data=b"the man\nthe man\n")[1]

    assert sample("1") == sample("1") != sample("2")


def test_threads_and_batches_change_nothing(here):
    data = "\n".join(SENTENCES[:40]).encode()
    expected = here(data=data)[1]
    for options in (["--threads", "2"], ["--batch-tokens", "30"], ["--lines-at-once", "7"]):
        assert here(*options, data=data)[1] == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", "5"], "`num_best` must be at most `beam_size` (4), but is 5"),
        (["--beam-size", "0"], "`beam_size` must be at least 1"),
        (["--threads", "0"], "`threads` must be at least 1, but is 0"),
        (["--batch-tokens", "0"], "`tokens_per_batch` must be at least 1, but is 0"),
        (["--device", "cuda:77"], "Device `cuda:77` is not there"),
        (["--prefix", "the house " * 50], "A prefix must have at most as many pieces"),
    ],
)
def test_options_that_cannot_be_are_refused(here, options, message):
    code, found, said = here(*options, data=b"the man\n")
    assert (code, found) == (2, [])
    assert message in said


def test_a_file_has_its_name_once_it_is_whole(here, tmp_path):
    out = tmp_path / "out.txt"
    assert here("--output", str(out), data=b"the man\na house\n")[:2] == (0, [])
    whole = out.read_bytes()
    assert whole.count(b"\n") == 2
    code, _, said = here("--output", str(out), data=b"the man\n\xff\n")
    assert code == 2
    assert out.read_bytes() == whole
    assert (tmp_path / "out.txt.partial").read_bytes() == whole.split(b"\n")[0] + b"\n"
    assert "What was finished is in" in said
    assert len(list(tmp_path.iterdir())) == 2
    assert "cannot be written: No such file" in here("--output", str(tmp_path / "no/out"))[2]


# Ends before the end


def test_an_interrupt_ends_at_once_with_whole_lines(model):
    command = [*COMMAND, str(model), "--lines-at-once", "4"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdin.write("".join(f"{line}\n" for line in SENTENCES).encode())
        process.stdin.flush()  # and stays open: the command waits for more
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        started_s = time.perf_counter()
        rest, said = process.communicate(timeout=60)
    assert time.perf_counter() - started_s < 20
    assert process.returncode == 130
    assert first.endswith(b"\n")
    assert not rest or rest.endswith(b"\n")
    assert b"Interrupted. What was finished is written." in said
    assert b"Traceback" not in said


@pytest.mark.slow
def test_memory_stays_flat_over_20_000_lines(model, tmp_path):
    peaks = []
    for count in (2_000, 20_000):
        path = tmp_path / f"{count}.txt"
        path.write_text("".join(f"{SENTENCES[n % 200]}\n" for n in range(count)))
        program = (
            "import pathlib, sys; from flows.cli import main; code = main(sys.argv[1:]); "
            "status = pathlib.Path('/proc/self/status').read_text().split(); "
            "print(status[status.index('VmHWM:') + 1], file=sys.stderr); sys.exit(code)"
        )
        command = [sys.executable, "-c", program, "translate", "--model", str(model), "--beam-size",
                   "1", "--max-extra-tokens", "2", "--threads", "2", str(path)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, timeout=600, check=True)
        assert done.stdout.count(b"\n") == count
        peaks.append(int(done.stderr.split()[-1]) / 1024)
    assert peaks[1] < peaks[0] + 40, f"MiB after 2,000 and after 20,000 lines: {peaks}"
