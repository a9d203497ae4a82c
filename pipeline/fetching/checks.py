"""What a fetched file is held against, and what is said when it is something else."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import CorpusError

_BLOCK_BYTES = 2**20
_HEAD_BYTES = 512


class Measured(NamedTuple):
    """A file's bytes, in short."""

    sha256: str
    md5: str | None
    size_bytes: int
    is_web_page: bool


class Pinned(NamedTuple):
    """Where a file was pinned when it was fetched for the first time."""

    lock: Path
    name: str
    """Of its line in the lock."""


@dataclass(frozen=True)
class Checks:
    """What a file must be; None = not checked. Digests are in hex."""

    sha256: str | None = None
    md5: str | None = None
    size_bytes: int | None = None
    pinned: Pinned | None = None
    """The line of a lock that says so; None = the recipe does."""

    def check_offer(self, public: str, size_bytes: int | None) -> None:
        """Refuse a file by the size that a server tells before it sends it.

        Raises:
            CorpusError: If that is another one.
        """
        if size_bytes is not None and self.size_bytes not in {None, size_bytes}:
            raise CorpusError(
                f"`{public}` {self._must('size', self.size_bytes)}, but the server offers "
                f"{size_bytes}. {self._cure('size')}"
            )

    def fault(self, public: str, found: Measured) -> str | None:
        """What is wrong with a file from an address, as a sentence; None if nothing is."""
        is_longer = self.size_bytes is not None and found.size_bytes > self.size_bytes
        page = " It is a web page." if found.is_web_page else ""
        for kind, wanted, is_ in (
            ("size", self.size_bytes, found.size_bytes),
            ("sha256", self.sha256 and self.sha256.lower(), found.sha256),
            ("md5", self.md5 and self.md5.lower(), found.md5),
        ):
            if wanted not in {None, is_}:
                must = self._must(kind, wanted)
                has = f"{is_} or more" if is_longer else is_
                return f"`{public}` {must}, but has {has}.{page} {self._cure(kind)}"
        if found.is_web_page and not (self.sha256 or self.md5):
            return (
                f"`{public}` must be a corpus, but is a web page (HTML). Open it in a browser to "
                "find the address of the file; if it is meant, give its sha256."
            )
        return None

    def _must(self, kind: str, wanted: object) -> str:
        what = f"{wanted} bytes" if kind == "size" else f"the {kind} {wanted}"
        return (
            f"must have {what}, pinned in {self.pinned.lock}"
            if self.pinned
            else f"must have {what}"
        )

    def _cure(self, kind: str) -> str:
        if self.pinned:
            return (
                "It is another file than at first: check the source. To accept the new file, "
                f"remove the line of `{self.pinned.name}` from {self.pinned.lock}."
            )
        return f"Either it is damaged or another file: fetch it again, or correct the {kind}."


def measure(path: Path, *, md5: bool = False) -> Measured:
    """Read a file once, for all that can be checked of it."""
    digests = [hashlib.sha256()]
    if md5:
        digests.append(hashlib.md5(usedforsecurity=False))
    size_bytes, head = 0, b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            for digest in digests:
                digest.update(block)
            size_bytes += len(block)
            head = head or block[:_HEAD_BYTES]
    sha256, *others = (digest.hexdigest() for digest in digests)
    return Measured(sha256, others[0] if others else None, size_bytes, _is_web_page(head))


def _is_web_page(head: bytes) -> bool:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html"))
