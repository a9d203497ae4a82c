import pickle

import pytest

from pipeline.errors import ConfigError, CorpusError, TradukoError


@pytest.mark.parametrize("kind", [TradukoError, ConfigError, CorpusError])
def test_a_message_is_shown_as_it_is_but_for_what_could_move_a_terminal(kind):
    error = kind("`für \x1b[31m\u202efile\x00`\nand 東京")
    assert str(error) == "`für \\x1b[31m\\u202efile\\x00`\nand 東京"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
