"""What is common to texts between tags."""

import re

_BREAK = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")


def one_line(text: str) -> str:
    """A text as one line: breaks and the white space about them are one space, or none at its ends."""
    if "\n" not in text and "\r" not in text:
        return text
    return _BREAK.sub(" ", text).strip(" ")
