"""What can go wrong and is the user's to mend: one clear line and an exit code, never a traceback."""


class TradukoError(Exception):
    """The work failed for a reason outside the recipe: disk, network, cluster. Run it again."""

    exit_code = 1
    kind = "failed"


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
