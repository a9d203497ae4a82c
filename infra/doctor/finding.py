"""What a check finds."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "mend"]
"""`mend`: something will fail. `note`: it works, with less room or in another way."""


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""
    """What to do; empty where all is well."""
