"""A model and its exports to CTranslate2: BLEU, scores and speed on the same threads.

    python tests/bench/exporting.py BUNDLE [DATA] [--set test_2016_flickr] [--rounds 3]

BUNDLE is a folder that `average` made, DATA that of Multi30k. Beam 4, alpha 0.6. Each translates the
whole set in every round, in turn; the best time counts.
"""

import argparse
import tempfile
from pathlib import Path
from time import perf_counter

from decoding import DATA, TEST_SET, read_lines
from measure import table, where
from sacrebleu import corpus_bleu

from pipeline.translating.bundle import load_bundle
from pipeline.translating.export import export_ctranslate2
from pipeline.translating.translator import Translator

THREADS = 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("data", nargs="?", type=Path, default=DATA)
    parser.add_argument("--set", default=TEST_SET)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(where())
    bundle = load_bundle(args.bundle)
    sources, references = (
        read_lines(args.data / f"{args.set}.{side}.gz") for side in (bundle.src, bundle.tgt)
    )
    with tempfile.TemporaryDirectory() as folder:
        contestants = make_contestants(args.bundle, Path(folder))
        results = {name: translate(each, sources) for name, (each, _) in contestants.items()}
        took_s = {name: result[1] for name, result in results.items()}
        for _ in range(args.rounds - 1):
            for name, (each, _) in contestants.items():
                took_s[name] = min(took_s[name], translate(each, sources)[1])
    ours = next(iter(results.values()))[0]
    rows = [
        [name, f"{corpus_bleu([line.text for line in lines], [references]).score:.2f}",
         f"{len(sources) / took_s[name]:.1f}", *compare(lines, ours), f"{contestants[name][1]:.1f}"]
        for name, (lines, _) in results.items()
    ]  # fmt: skip
    print(
        table(
            ["", "BLEU", "sentences/s", "same as ours", "most that scores differ", "MiB on disk"],
            rows,
        )
    )


def make_contestants(bundle, folder):
    """Translators by name, each with the size of its weights in MiB."""
    weights = list(bundle.rglob("model.safetensors"))
    ours = Translator.load(bundle, device="cpu", threads=THREADS)
    made = {"ours": (ours, size_mib(weights[0]))}
    for name, quantization in (("fp32", None), ("int8", "int8")):
        out = folder / name
        export_ctranslate2(bundle, out, quantization)
        translator = Translator.load(out, device="cpu", threads=THREADS)
        made[f"CTranslate2, {name}"] = translator, size_mib(out / "model.bin")
    return made


def translate(translator, sources):
    started_at_s = perf_counter()
    return list(translator.translate(sources)), perf_counter() - started_at_s


def compare(lines, ours):
    pairs = [(one, two) for one, two in zip(lines, ours, strict=True) if one.text == two.text]
    most = max(abs(one.translations[0].score - two.translations[0].score) for one, two in pairs)
    return f"{len(pairs) / len(ours):.1%}", f"{most:.1e}"


def size_mib(path):
    return path.stat().st_size / 2**20


if __name__ == "__main__":
    main()
