"""One request for a file, or for what is still missing of it (RFC 9110, sections 13 and 14)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from pipeline.errors import ConfigError, CorpusError
from pipeline.fetching.address import public
from pipeline.fetching.checks import Checks
from pipeline.fetching.partial import Note, Partial, Progress

# Some servers call a gzip file "text, encoded with gzip". There the bytes as sent are the file.
_GZIP_ENDINGS = (".gz", ".tgz")
_NOT_ENCODED = ("", "identity")
_DECODABLE = ("gzip", "x-gzip", "deflate")
_ANSWERS_TO_RANGES = (
    httpx.codes.PARTIAL_CONTENT,
    httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE,
)
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(?:(\d+)|\*)")


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, and how often to ask it.

    Attributes:
        connect_s: Until a connection is made.
        read_s: Between two pieces of an answer.
        attempts: Requests in a row that fail in ways that may pass, and bring no new byte.
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


class PassingError(Exception):
    """A failed attempt that may succeed when repeated, after `wait_s` if that is known."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


def request(
    address: str, partial: Partial, checks: Checks, report: Progress, patience: Patience
) -> bool:
    """Ask once, and take what comes: the file's rest where that surely fits what is there.

    Returns:
        Whether the file, whole now, is put together of several answers.

    Raises:
        PassingError: If asking again may help. What has come stays.
        CorpusError: If it cannot.
        ConfigError: If the environment names a proxy that cannot be used.
    """
    asked = _conditions(public(address), partial, checks)
    # `identity`: the bytes that are hashed must be the file's, not a packing of it.
    headers = {"Accept-Encoding": "identity", "User-Agent": "traduko", **asked}
    with (
        _network_errors(address, patience),
        _client(patience) as client,
        client.stream("GET", address, headers=headers) as response,
    ):
        if asked and response.status_code in _ANSWERS_TO_RANGES:
            _check_continues(response, asked, partial)
            if response.status_code == httpx.codes.PARTIAL_CONTENT:
                _continue(response, public(address), partial, checks, report)
            return True
        _check_status(response, address)
        _begin(response, public(address), partial, checks, report)
        return False


def _conditions(address: str, partial: Partial, checks: Checks) -> dict[str, str]:
    """The headers that ask for the rest alone; none where it might be another file's.

    Without a validator of this very server, only a known digest tells whether the rest fits.
    """
    done_bytes, note = partial.size_bytes, partial.note()
    validator = note.validator if note and note.address == address else None
    if not done_bytes or not (validator or checks.sha256):
        return {}
    wanted = {"Range": f"bytes={done_bytes}-"}
    return wanted | ({"If-Range": validator} if validator else {})


def _client(patience: Patience) -> httpx.Client:
    timeout = httpx.Timeout(patience.connect_s, read=patience.read_s)
    try:
        return httpx.Client(
            follow_redirects=True, max_redirects=patience.max_redirects, timeout=timeout
        )
    except (ValueError, ImportError, httpx.InvalidURL):  # what they say may hold a password
        raise ConfigError(
            "A proxy named in the environment (http_proxy, https_proxy, all_proxy) must be like "
            "http://HOST:PORT. Correct the variable, or unset it."
        ) from None


@contextmanager
def _network_errors(address: str, patience: Patience) -> Iterator[None]:
    try:
        yield
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise CorpusError(
            f"`{public(address)}` is no address, or leads to one, that can be fetched by http(s)."
        ) from None
    except httpx.TooManyRedirects:
        raise CorpusError(
            f"`{public(address)}` must lead to a file, but has led to more than "
            f"{patience.max_redirects} other addresses. Check it in a browser."
        ) from None
    except httpx.ReadTimeout:
        raise PassingError(
            f"timed out: the server sent nothing for {patience.read_s:g} s"
        ) from None
    except httpx.RequestError as error:  # connections refused or broken, short bodies
        raise PassingError(str(error) or type(error).__name__) from None


def _check_continues(response: httpx.Response, asked: dict[str, str], partial: Partial) -> None:
    """Start over unless the answer goes on with the file that is there, or says that it is whole.

    Args:
        response: To a request for the rest: the rest (206), or that there is none (416).
        asked: The headers of that request.
        partial: What is there.
    """
    place = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    start, total = (number and int(number) for number in place.groups()) if place else (None, None)
    note = partial.note()
    known = note.size_bytes if note and "If-Range" in asked else None
    sizes = {size for size in (total, known) if size is not None}
    if response.status_code == httpx.codes.PARTIAL_CONTENT:
        fits = start == partial.size_bytes and len(sizes) <= 1 and _is_as_it_is(response)
    else:
        fits = sizes == {partial.size_bytes}
    if not (fits and _is_same(response, asked.get("If-Range"))):
        partial.clear()
        raise PassingError("it has changed while it was fetched", wait_s=0)


def _is_same(response: httpx.Response, validator: str | None) -> bool:
    """Whether an answer's validator, if it has one of that kind, is the one asked for."""
    name = "ETag" if validator and validator.startswith('"') else "Last-Modified"
    return validator is None or response.headers.get(name, validator) == validator


def _continue(
    response: httpx.Response, address: str, partial: Partial, checks: Checks, report: Progress
) -> None:
    """Take the rest, or what the server gives of it."""
    total = response.headers["Content-Range"].rpartition("/")[2]
    size_bytes = int(total) if total.isdecimal() else None
    checks.check_offer(address, size_bytes)
    most_bytes = size_bytes if size_bytes is not None else checks.size_bytes
    partial.append(response.iter_raw(), size_bytes, most_bytes, report)
    if size_bytes is not None and partial.size_bytes < size_bytes:
        raise PassingError("the server sent only a part", wait_s=0)


def _begin(
    response: httpx.Response, address: str, partial: Partial, checks: Checks, report: Progress
) -> None:
    """Take the whole file."""
    size = response.headers.get("Content-Length", "")
    size_bytes = int(size) if size.isdecimal() else None
    if _is_as_it_is(response):
        checks.check_offer(address, size_bytes)
        partial.begin(Note(address, _validator(response), size_bytes))
        partial.append(response.iter_raw(), size_bytes, checks.size_bytes, report)
        return
    encoding = _encoding(response)
    if encoding not in _DECODABLE:
        raise CorpusError(
            f"`{address}` must be sent as it is, but comes encoded as `{encoding}`. Name another "
            "address, or a downloaded copy."
        )
    partial.begin(Note(address, None, None))  # what is known is of the packing
    partial.append(response.iter_bytes(), None, checks.size_bytes, report)


def _encoding(response: httpx.Response) -> str:
    return str(response.headers.get("Content-Encoding", "")).lower()


def _is_as_it_is(response: httpx.Response) -> bool:
    """Whether the bytes that are sent are the file's."""
    return _encoding(response) in _NOT_ENCODED or response.url.path.endswith(_GZIP_ENDINGS)


def _validator(response: httpx.Response) -> str | None:
    """What tells this file from a later one at its address; weak tags do not tell bytes apart."""
    tag: str = response.headers.get("ETag", "")
    date: str | None = response.headers.get("Last-Modified")
    return tag if tag.startswith('"') else date


def _check_status(response: httpx.Response, address: str) -> None:
    status = response.status_code
    if status == httpx.codes.OK:
        return
    answer = f"{status} {response.reason_phrase}".strip()
    if status >= 500 or status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.REQUEST_TIMEOUT):
        raise PassingError(f"the server answers {answer}", _retry_after_s(response))
    raise CorpusError(
        f"`{public(address)}` must be a file, but the server answers {answer}. Check the address."
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
