"""What can go wrong and is the user's to mend: one clear line and an exit code, never a traceback."""


class TradukoError(Exception):
    """The work failed for a reason outside the recipe: disk, network, cluster. Run it again.

    What a message quotes may come from hostile files: characters that could change a terminal's
    state, or the order in which text is shown, are escaped.
    """

    exit_code = 1
    kind = "failed"

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(map(printable, message.split("\n"))))


class LostWorkersError(TradukoError):
    """Workers were lost, time and again, by no fault of what they were doing."""


class InputError(TradukoError):
    """What the user gave cannot be used as it is."""

    exit_code = 2
    kind = "input"


class ConfigError(InputError):
    """A recipe, an override or an option."""

    kind = "recipe"


class CorpusError(InputError):
    """A corpus file: missing, damaged, or not what the recipe says it is."""

    kind = "corpus"


def printable(text: str) -> str:
    """The text with its unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
