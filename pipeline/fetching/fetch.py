"""Fetches one file, from a path or an address, into a place of its own.

The target appears whole and verified or not at all. A download that breaks off leaves what has come
beside the target, and the next attempt, of this process or of a later one, goes on from there.
Messages, results and notes never hold credentials: user names, passwords and queries (tokens,
signatures) are cut from every address.
"""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pipeline.errors import CorpusError, TradukoError
from pipeline.fetching.address import local_path, mirrored, public
from pipeline.fetching.checks import Checks, Measured, measure
from pipeline.fetching.partial import Partial, Progress
from pipeline.fetching.request import PassingError, Patience, request

UNCHECKED = Checks()
USUAL = Patience()
_BLOCK_BYTES = 2**20


class Fetched(NamedTuple):
    """A whole file."""

    path: Path
    sha256: str
    size_bytes: int
    address: str
    """Where the bytes came from, after mirrors, without credentials."""
    md5: str | None = None
    """If it was checked."""


def fetch(
    address: str,
    target: Path,
    checks: Checks = UNCHECKED,
    mirrors: Mapping[str, str] | None = None,
    on_progress: Progress | None = None,
    patience: Patience = USUAL,
) -> Fetched:
    """Copy or download one file to `target`, a path in an existing folder.

    Args:
        address: A path, `file://`, `http://` or `https://`. Proxies come from the environment.
        target: Where to write. A failure leaves nothing there.
        checks: What the file must be.
        mirrors: Prefix of an address -> folder or address that takes the prefix's place. The
            longest prefix wins.
        on_progress: Called before each request and after each block; the count starts again where
            a download does. What it raises stops the download, which can go on later.
        patience: Time-outs and attempts.

    Raises:
        CorpusError: No such file or address, a folder, a web page, or not what `checks` say. What
            was downloaded is then in `set-aside/`, beside `target`.
        TradukoError: The network or the server failed to the last attempt, or the disk did.
    """
    served = mirrored(address, mirrors or {})
    report = on_progress or _say_nothing
    partial = Partial(target)
    path = local_path(served)
    if path is None:
        measured = _download(served, partial, checks, report, patience)
    else:
        try:
            measured = _copy(path, partial, checks, report)
        except BaseException:
            partial.clear()
            raise
    partial.publish()
    return Fetched(target, measured.sha256, measured.size_bytes, public(served), measured.md5)


def examine(path: Path, checks: Checks = UNCHECKED) -> Fetched:
    """Check a local file where it is.

    Raises:
        CorpusError: No such file, a folder, or not what `checks` say.
    """
    _open(path)[0].close()
    measured = _check_own(path, path, checks)
    return Fetched(path, measured.sha256, measured.size_bytes, str(path))


def _copy(path: Path, partial: Partial, checks: Checks, report: Progress) -> Measured:
    file, size_bytes = _open(path)
    partial.clear()
    with file:
        partial.append(_blocks(file, path), size_bytes, None, report)
    return _check_own(path, partial.path, checks)


def _check_own(path: Path, copy: Path, checks: Checks) -> Measured:
    """A file of the user's own may begin as it likes: like a web page, for instance."""
    measured = measure(copy, md5=checks.md5 is not None)._replace(is_web_page=False)
    if fault := checks.fault(str(path), measured):
        raise CorpusError(fault)
    return measured


def _open(path: Path) -> tuple[BinaryIO, int]:
    """A file of the user's own, and its size."""
    if path.is_dir():
        raise CorpusError(f"`{path}` must be a file, but is a folder. Name the file in it.")
    if not path.is_file():
        what = "is no regular file" if path.exists() else "does not exist"
        raise CorpusError(f"`{path}` {what}. Check the path.")
    try:
        return path.open("rb"), path.stat().st_size
    except OSError as error:
        raise CorpusError(
            f"`{path}` cannot be opened: {error.strerror}. Make it readable."
        ) from None


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        while block := file.read(_BLOCK_BYTES):
            yield block
    except OSError as error:
        raise TradukoError(f"`{path}` could not be read: {error.strerror}. Try again.") from error


def _download(
    address: str, partial: Partial, checks: Checks, report: Progress, patience: Patience
) -> Measured:
    """A file that passes its checks. One put together of several answers gets a second chance."""
    is_joined = _ask_until_whole(address, partial, checks, report, patience)
    measured = measure(partial.path, md5=checks.md5 is not None)
    fault = checks.fault(public(address), measured)
    if fault and is_joined:
        partial.clear()
        _ask_until_whole(address, partial, checks, report, patience)
        measured = measure(partial.path, md5=checks.md5 is not None)
        fault = checks.fault(public(address), measured)
    if fault:
        aside = partial.set_aside(fault)
        raise CorpusError(f"{fault} What came is kept as {aside}.")
    return measured


def _ask_until_whole(
    address: str, partial: Partial, checks: Checks, report: Progress, patience: Patience
) -> bool:
    """Ask until the file is whole, or patience ends; whether it was put together of several answers.

    Patience begins anew whenever more of the file is there than ever before.
    """
    tries, failures, furthest_bytes = 0, 0, partial.size_bytes
    while True:
        report(partial.size_bytes, None)
        try:
            return request(address, partial, checks, report, patience)
        except PassingError as error:
            reason = error
        failures = 1 if partial.size_bytes > furthest_bytes else failures + 1
        furthest_bytes = max(furthest_bytes, partial.size_bytes)
        tries += 1
        if failures >= patience.attempts:
            raise TradukoError(
                f"`{public(address)}` could not be fetched in {tries} attempts: {reason}. "
                "Try again later, or name a mirror (`--mirror PREFIX=URI`)."
            )
        backoff_s = patience.backoff_s * 2 ** (failures - 1)
        wait_s = backoff_s if reason.wait_s is None else reason.wait_s
        time.sleep(min(wait_s, patience.max_wait_s))


def _say_nothing(done_bytes: int, size_bytes: int | None) -> None:
    """Stands in where nobody watches."""
