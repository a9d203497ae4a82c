"""Fetches one file, from a path or an address, into a place of its own.

The target appears whole and verified or not at all. Messages and results never hold credentials:
user names, passwords and queries (tokens, signatures) are cut from every address.

A download that breaks off starts again from its first byte; going on from where it stopped would
be `_request`'s to ask for, with a `Range` header.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import httpx

from pipeline.errors import CorpusError, TradukoError

Progress = Callable[[int, int | None], None]
"""Takes the bytes received so far and the bytes to expect (None where that is not known)."""

_BLOCK_BYTES = 2**20
_HEAD_BYTES = 512
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# Some servers call a gzip file "text, encoded with gzip". There the bytes as sent are the file.
_GZIP_ENDINGS = (".gz", ".tgz")
_NOT_ENCODED = ("", "identity")
_DECODABLE = ("gzip", "x-gzip", "deflate")


class Fetched(NamedTuple):
    """What was fetched."""

    sha256: str
    size_bytes: int
    address: str
    """Where the bytes came from, after mirrors, without credentials."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, and how often to ask it.

    Attributes:
        connect_s: Until a connection is made.
        read_s: Between two pieces of an answer.
        attempts: Requests in all, while they fail in ways that may pass.
        backoff_s: Before the second attempt; doubled for each one after.
        max_wait_s: The longest wait between attempts, even if the server asks for more.
        max_redirects: Redirects followed within one attempt.
    """

    connect_s: float = 15.0
    read_s: float = 60.0
    attempts: int = 5
    backoff_s: float = 1.0
    max_wait_s: float = 60.0
    max_redirects: int = 10


def fetch(
    address: str,
    target: Path,
    sha256: str | None,
    mirrors: Mapping[str, str],
    on_progress: Progress | None = None,
    patience: Patience = Patience(),
) -> Fetched:
    """Copies or downloads one file to `target`, a path in an existing folder.

    Args:
        address: A path, `file://`, `http://` or `https://`. Proxies come from the environment.
        target: Where to write. A failure leaves nothing there, and no partial file.
        sha256: What the file must have, in hex; None to take what comes.
        mirrors: Prefix of an address -> folder or address that takes the prefix's place. The
            longest prefix wins.
        on_progress: Called after each block; the count starts again if an attempt does.
        patience: Time-outs and attempts.

    Raises:
        CorpusError: No such file or address, a folder, a web page, or the wrong sha256.
        TradukoError: The network or the server failed to the last attempt, or the disk did.
    """
    served = _mirrored(address, mirrors)
    public = _public(served)
    partial = target.with_name(f"{target.name}.partial")
    report = on_progress or _say_nothing
    try:
        path = _local_path(served)
        if path is not None:
            received = _copy(path, partial, report)
        else:
            received = _download(served, partial, report, patience)
        _check(received, sha256, public)
        _publish(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return Fetched(received.sha256, received.size_bytes, public)


class _Received(NamedTuple):
    sha256: str
    size_bytes: int
    is_web_page: bool


class _PassingError(Exception):
    """A failed attempt that may succeed when repeated."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def _mirrored(address: str, mirrors: Mapping[str, str]) -> str:
    prefixes = [prefix for prefix in mirrors if address.startswith(prefix)]
    if not prefixes:
        return address
    prefix = max(prefixes, key=len)
    rest, mirror = address[len(prefix) :], mirrors[prefix]
    if not _SCHEME.match(mirror):  # a folder: names in it are not quoted and have no query
        rest = unquote(re.split("[?#]", rest, maxsplit=1)[0])
    if prefix.endswith("/") or rest.startswith("/"):
        return f"{mirror.rstrip('/')}/{rest.lstrip('/')}"
    return mirror + rest


def _public(address: str) -> str:
    """An address without user name, password, query and fragment; a path as it is."""
    if not _SCHEME.match(address):
        return address
    parts = _split(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        raise CorpusError("An address cannot be read: check its host name and port.") from None


def _local_path(address: str) -> Path | None:
    """The path that an address means, or None if it is one of the web."""
    scheme = _SCHEME.match(address)
    if scheme is None:
        return Path(address)
    if scheme[1].lower() in ("http", "https"):
        return None
    parts = _split(address)
    if scheme[1].lower() != "file" or parts.netloc not in ("", "localhost"):
        raise CorpusError(
            f"`{_public(address)}` must be a path, or begin with `http://`, `https://` or `file:///`."
        )
    return Path(unquote(parts.path))


def _copy(path: Path, partial: Path, report: Progress) -> _Received:
    if path.is_dir():
        raise CorpusError(f"`{path}` must be a file, but is a folder. Name the file in it.")
    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise CorpusError(f"`{path}` {what}. Check the path.")
    try:
        size_bytes = path.stat().st_size
        file = path.open("rb")
    except OSError as error:
        raise CorpusError(
            f"`{path}` cannot be opened: {error.strerror}. Make it readable."
        ) from None
    with file:
        received = _save(_blocks(file, path), partial, size_bytes, report)
    return received._replace(is_web_page=False)  # a file of the user's own may be what it likes


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        while block := file.read(_BLOCK_BYTES):
            yield block
    except OSError as error:
        raise TradukoError(f"`{path}` could not be read: {error.strerror}. Try again.") from error


def _download(address: str, partial: Path, report: Progress, patience: Patience) -> _Received:
    """Asks until there is an answer, or patience ends."""
    wait_s = patience.backoff_s
    for attempt in range(1, patience.attempts + 1):
        try:
            return _request(address, partial, report, patience)
        except _PassingError as error:
            if attempt == patience.attempts:
                raise TradukoError(
                    f"`{_public(address)}` could not be fetched in {attempt} attempts: {error}. "
                    "Try again later, or name a mirror (`--mirror PREFIX=URI`)."
                ) from None
            time.sleep(min(error.wait_s or wait_s, patience.max_wait_s))
            wait_s *= 2
    raise AssertionError("patience allows at least one attempt")


def _request(address: str, partial: Path, report: Progress, patience: Patience) -> _Received:
    timeout = httpx.Timeout(patience.connect_s, read=patience.read_s)
    # `identity`: the bytes that are hashed must be the file's, not a packing of it.
    headers = {"Accept-Encoding": "identity", "User-Agent": "traduko"}
    try:
        with (
            httpx.Client(
                follow_redirects=True, max_redirects=patience.max_redirects, timeout=timeout
            ) as client,
            client.stream("GET", address, headers=headers) as response,
        ):
            _check_status(response, address)
            return _receive(response, partial, report)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise CorpusError(
            f"`{_public(address)}` is no address, or leads to one, that can be fetched by http(s)."
        ) from None
    except httpx.TooManyRedirects:
        raise CorpusError(
            f"`{_public(address)}` must lead to a file, but has led to more than "
            f"{patience.max_redirects} other addresses. Check it in a browser."
        ) from None
    except httpx.RequestError as error:  # time-outs, connections refused or broken, short bodies
        raise _PassingError(str(error) or type(error).__name__) from error


def _check_status(response: httpx.Response, address: str) -> None:
    status = response.status_code
    if status == httpx.codes.OK:
        return
    answer = f"{status} {response.reason_phrase}".strip()
    if status >= 500 or status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.REQUEST_TIMEOUT):
        raise _PassingError(f"the server answers {answer}", _retry_after_s(response))
    raise CorpusError(
        f"`{_public(address)}` must be a file, but the server answers {answer}. Check the address."
    )


def _retry_after_s(response: httpx.Response) -> float | None:
    """How long the server asks to wait: it may say seconds or a date."""
    value = response.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def _receive(response: httpx.Response, partial: Path, report: Progress) -> _Received:
    encoding = response.headers.get("Content-Encoding", "").lower()
    size = response.headers.get("Content-Length", "")
    size_bytes = int(size) if size.isdecimal() else None
    if encoding in _NOT_ENCODED or response.url.path.endswith(_GZIP_ENDINGS):
        return _save(response.iter_raw(_BLOCK_BYTES), partial, size_bytes, report)
    if encoding not in _DECODABLE:
        raise CorpusError(
            f"`{_public(str(response.url))}` must be sent as it is, but comes encoded as "
            f"`{encoding}`. Name another address, or a downloaded copy."
        )
    return _save(response.iter_bytes(_BLOCK_BYTES), partial, None, report)


def _save(
    blocks: Iterator[bytes], partial: Path, size_bytes: int | None, report: Progress
) -> _Received:
    """Writes blocks to the disk, where they are safe when this returns."""
    digest, done_bytes, head = hashlib.sha256(), 0, b""
    with _disk_errors(partial), partial.open("wb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
            done_bytes += len(block)
            head = head or block[:_HEAD_BYTES]
            report(done_bytes, size_bytes)
        file.flush()
        os.fsync(file.fileno())
    return _Received(digest.hexdigest(), done_bytes, _is_web_page(head))


def _is_web_page(head: bytes) -> bool:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html"))


def _check(received: _Received, sha256: str | None, public: str) -> None:
    if sha256 is not None and received.sha256 != sha256.lower():
        page = " It is a web page." if received.is_web_page else ""
        raise CorpusError(
            f"`{public}` must have the sha256 {sha256.lower()}, but has {received.sha256}.{page} "
            "Either it is damaged or another file: fetch it again, or correct the sha256."
        )
    if sha256 is None and received.is_web_page:
        raise CorpusError(
            f"`{public}` must be a corpus, but is a web page (HTML). Open it in a browser to find "
            "the address of the file; if it is meant, give its sha256."
        )


def _publish(partial: Path, target: Path) -> None:
    with _disk_errors(target):
        partial.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name too survives a power cut
        finally:
            os.close(folder)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TradukoError(
            f"`{path}` could not be written: {error.strerror}. Make room or check the disk."
        ) from error


def _say_nothing(done_bytes: int, size_bytes: int | None) -> None:
    """Stands in where nobody watches."""
