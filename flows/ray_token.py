"""The token that a Ray cluster may ask for: where it comes from, and what to say without it."""

import os
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import TradukoError

MODE = "RAY_AUTH_MODE"


class Token(NamedTuple):
    """What proves that one may use a cluster."""

    text: str
    origin: str
    """The variable or file it comes from."""

    @property
    def header(self) -> dict[str, str]:
        """As HTTP and gRPC carry it."""
        return {"authorization": f"Bearer {self.text}"}


def find_token() -> Token | None:
    """The token of this environment, in Ray's order; none if there is none, or tokens are off."""
    if os.environ.get(MODE, "token") != "token":
        return None
    text = os.environ.get("RAY_AUTH_TOKEN", "").strip()
    if text:
        return Token(text, "RAY_AUTH_TOKEN")
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return Token(text, str(path)) if text else None


def refused(where: str, token: Token | None) -> TradukoError:
    """A cluster wants another token than it was shown."""
    found = (
        f"refuses the token from {token.origin}"
        if token
        else f"asks for a token, and {_why_none()}"
    )
    return TradukoError(
        f"The Ray cluster at {where} {found}. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a "
        "file with that cluster's token (its head has it in ~/.ray/auth_token)."
    )


def _why_none() -> str:
    if os.environ.get(MODE, "token") != "token":
        return f"{MODE} is {os.environ[MODE]}"
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return f"{named} holds none" if named else "none is given"
