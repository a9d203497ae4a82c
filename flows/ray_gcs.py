"""What a Ray cluster says of itself when it is asked directly, with a time limit.

`ray.init` retries for 20 s to 2 min and then ends the process, or says only that it failed.
"""

import json
import os
import platform
from typing import NamedTuple

import grpc  # type: ignore[import-untyped]
import ray
from ray._common.tls_utils import load_certs_from_env
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc

from flows.ray_token import MODE, Token, find_token, refused
from pipeline.errors import ConfigError, TradukoError

ANSWER_TIMEOUT_S = 5.0
METADATA = {"key": b"CLUSTER_METADATA", "namespace": b"cluster"}
"""Where Ray notes its versions in a cluster's store."""


class Versions(NamedTuple):
    """What both sides must have in common."""

    ray: str
    python: str

    def __str__(self) -> str:
        return f"Ray {self.ray} and Python {self.python}"


def admit(address: str) -> str:
    """Make sure that this process may join a cluster; its address as HOST:PORT.

    Turns Ray's tokens on where the cluster asks for one and there is one.

    Raises:
        ConfigError: If the address is no address.
        TradukoError: If the cluster does not answer, wants another token, or has other versions.
    """
    place = resolve(address)
    token = find_token()
    sent = token if os.environ.get(MODE) == "token" else None
    try:
        theirs = ask(place, sent)
    except PermissionError:
        if sent or not token:
            raise refused(place, sent) from None
        theirs = _with_token(place, token)
    ours = Versions(ray.__version__, platform.python_version())
    if theirs and not _agree(theirs, ours):
        raise TradukoError(
            f"The Ray cluster at {place} has {theirs}, but here is {ours}: Ray joins equal versions "
            "only. Install the cluster's here, or let the run happen there with `traduko submit`."
        )
    return place


def resolve(address: str) -> str:
    """HOST:PORT of an address that may be `auto`.

    Raises:
        ConfigError: If it is none.
        TradukoError: If `auto` finds no cluster, or several.
    """
    if address != "auto" and not _is_host_and_port(address):
        hint = " For a dashboard's address use `traduko submit`." if "://" in address else ""
        raise ConfigError(f"`--ray` must be auto or HOST:PORT, but is {address}.{hint}")
    try:
        return str(canonicalize_bootstrap_address_or_die(address))
    except (ConnectionError, ValueError, OSError) as error:
        if address != "auto":
            raise _silent(address, str(error)) from None
        several = "multiple" in str(error)
        raise TradukoError(
            f"`--ray auto` finds {'several Ray clusters' if several else 'no Ray cluster'} on this "
            "machine. Name one with --ray HOST:PORT or RAY_ADDRESS"
            + ("." if several else ", or start one with `ray start --head`.")
        ) from None


def ask(place: str, token: Token | None) -> Versions | None:
    """The cluster's versions; none where it does not know them.

    Raises:
        PermissionError: If it wants another token.
        TradukoError: If it does not answer in time, or is no Ray.
    """
    request = gcs_service_pb2.InternalKVGetRequest(**METADATA)  # type: ignore[attr-defined]
    header = tuple(token.header.items()) if token else ()
    with _channel(place) as channel:
        store = gcs_service_pb2_grpc.InternalKVGcsServiceStub(channel)  # type: ignore[no-untyped-call]
        try:
            answer = store.InternalKVGet(request, timeout=ANSWER_TIMEOUT_S, metadata=header)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAUTHENTICATED:
                raise PermissionError from None
            raise _silent(place, _reason(error)) from None
    try:
        known = json.loads(answer.value)
        return Versions(known["ray_version"], known["python_version"])
    except (ValueError, KeyError, TypeError):
        return None


def _channel(place: str) -> grpc.Channel:
    options = [("grpc.enable_http_proxy", 0)]  # as Ray's own clients
    if os.environ.get("RAY_USE_TLS", "0").lower() not in {"1", "true"}:
        return grpc.insecure_channel(place, options)
    chain, key, authority = load_certs_from_env()  # type: ignore[no-untyped-call]
    return grpc.secure_channel(place, grpc.ssl_channel_credentials(authority, key, chain), options)


def _with_token(place: str, token: Token) -> Versions | None:
    """Ask again with a token; if it is the right one, Ray shows it from now on."""
    try:
        theirs = ask(place, token)
    except PermissionError:
        raise refused(place, token) from None
    os.environ[MODE] = "token"
    ray._raylet.Config.initialize("")  # type: ignore[attr-defined]
    return theirs


def _agree(theirs: Versions, ours: Versions) -> bool:
    """As Ray compares them."""
    level = os.environ.get("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL", "patch")
    parts = 2 if level == "minor" else 3
    pythons = [versions.python.split(".")[:parts] for versions in (theirs, ours)]
    return theirs.ray == ours.ray and pythons[0] == pythons[1]


def _silent(place: str, reason: str) -> TradukoError:
    return TradukoError(
        f"No Ray cluster answers at {place} ({reason}). Check the address (the port is that of "
        "`ray start --head --port`, usually 6379) and that the cluster runs."
    )


def _reason(error: grpc.RpcError) -> str:
    """The last part of what gRPC says, which is why."""
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return str(error.details()).rpartition(": ")[2].strip("[] ")
    return "what does is something else"


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and "/" not in host and port.isdecimal() and 0 < int(port) < 65536
