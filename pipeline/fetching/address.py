"""Addresses of files: where they really lead, and what of them may be told.

An address is a path, `file://`, `http://` or `https://`.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from pipeline.errors import CorpusError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def mirrored(address: str, mirrors: Mapping[str, str]) -> str:
    """The address with the longest prefix that has a mirror replaced by that."""
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


def public(address: str) -> str:
    """An address without user name, password, query and fragment; a path as it is.

    Raises:
        CorpusError: If it cannot be read.
    """
    if not _SCHEME.match(address):
        return address
    parts = _split(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def recorded(address: str) -> str:
    """What stands for an address in what is kept: public, a query replaced by a few hex digits.

    Addresses that differ only in their queries name different files, so something of these must
    stay; 32 bits of a digest tell them apart, and are too few to find a token from.
    """
    query = _split(address).query if _SCHEME.match(address) else ""
    if not query:
        return public(address)
    return f"{public(address)}?{hashlib.sha256(query.encode()).hexdigest()[:8]}"


def file_name(address: str) -> str:
    """What the file is called: the last part of its address."""
    return public(address).rstrip("/").rpartition("/")[2]


def local_path(address: str) -> Path | None:
    """The path that an address means, or None if it is one of the web.

    Raises:
        CorpusError: If it is neither.
    """
    scheme = _SCHEME.match(address)
    if scheme is None:
        return Path(address)
    if scheme[1].lower() in ("http", "https"):
        return None
    parts = _split(address)
    if scheme[1].lower() != "file" or parts.netloc not in ("", "localhost"):
        raise CorpusError(
            f"`{public(address)}` must be a path, or begin with `http://`, `https://` or `file:///`."
        )
    return Path(unquote(parts.path))


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        raise CorpusError("An address cannot be read: check its host name and port.") from None
