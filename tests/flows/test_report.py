from types import SimpleNamespace

from flows.report import markdown


def test_a_report_names_every_stage_and_every_scores_signature():
    node = SimpleNamespace(name="clean:corpus")
    artifact = SimpleNamespace(folder="/root/clean/1/attempt-2")
    stats = {"rows_in": 10, "rows_kept": 9}
    built = SimpleNamespace(
        node=node, artifact=artifact, cached=False, took_s=1.25, reason="never built", stats=stats
    )
    score = {
        "label": "BLEU (13a)",
        "score": 27.31,
        "low": 26.5,
        "high": 28.1,
        "signature": "nrefs:1|tok:13a",
    }
    found = {"recipe": "own", "scores": {"test": {"bleu": score, "ter": None}}}
    page = markdown(found, [built])
    assert "| clean:corpus | built | never built | 1.2 | 9 of 10 pairs kept |" in page
    assert "| test | BLEU (13a) | 27.31 | 26.5 – 28.1 | `nrefs:1\\|tok:13a` |" in page
