"""What `traduko submit` refuses before it asks a cluster; tests/system/cluster runs the real thing."""

import pytest

from flows import cli
from flows.submit import document_in


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Give either a RECIPE, or a job with --follow or --stop."),
        (["quickstart", "--follow", "job"], "Give either a RECIPE, or a job"),
        (["quickstart", "--root", "/r"], "Name the cluster's dashboard: --ray http://HOST:8265."),
        (["quickstart", "--ray", "http://127.0.0.1:9"], "needs a root that all its machines see"),
        (
            ["quickstart", "--root", "/r", "--ray", "head:6379"],
            "must be the address of the cluster's",
        ),
        (
            ["quikstart", "--root", "/r", "--ray", "http://127.0.0.1:9"],
            "Did you mean `quickstart`?",
        ),
    ],
)
def test_what_is_known_to_be_wrong_is_said_at_once(arguments, words, monkeypatch, capsys):
    for name in ("TRADUKO_ROOT", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert cli.main(["submit", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_document_of_a_job_is_found_between_other_lines():
    lines = ['{"recipe": "a"}', "{not json", "a line", '["no document"]']
    assert document_in(lines) == {"recipe": "a"}
    assert document_in(["a line"]) is None
