"""Checks of services that the environment names: Ray's cluster and token, MLflow, Prefect."""

import importlib.metadata
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from infra.doctor.finding import Finding

TIMEOUT_S = 10.0
STATUS_TIMEOUT_S = 60.0
REFUSALS = ("InvalidAuthToken", "AuthenticationError", "Unauthenticated", "401")
DATABASE_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


def ray_cluster(environment: Mapping[str, str]) -> Finding:
    """Whether the cluster that RAY_ADDRESS names answers, takes the token, and has our version."""
    address = environment.get("RAY_ADDRESS", "")
    if not address:
        return Finding("ray", "ok", "no RAY_ADDRESS: a run starts a local cluster")
    site = environment.get("RAY_API_SERVER_ADDRESS") or address
    if site.startswith(("http://", "https://")):
        return _dashboard(site, token(environment))
    return _head(address, environment)


def token(environment: Mapping[str, str]) -> str:
    """The token that Ray's programs would send; empty where there is none."""
    if environment.get("RAY_AUTH_MODE") != "token":
        return ""
    given = environment.get("RAY_AUTH_TOKEN")
    if given:
        return given
    path = Path(environment.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def mlflow_store(environment: Mapping[str, str]) -> Finding:
    """Whether the store that MLFLOW_TRACKING_URI names can be reached."""
    uri = environment.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        return Finding("mlflow", "ok", "no MLFLOW_TRACKING_URI: the root's own store")
    parts = urlsplit(uri)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # no password
    advice = "Start it (`traduko up`), or unset MLFLOW_TRACKING_URI."
    if parts.scheme in {"http", "https"}:
        return _answers("mlflow", f"{uri.rstrip('/')}/health", shown, advice)
    port = DATABASE_PORTS.get(parts.scheme.partition("+")[0])
    if parts.hostname and port and (wrong := _unreachable(parts.hostname, parts.port or port)):
        return Finding("mlflow", "mend", f"{shown}: {wrong}", advice)
    if parts.scheme == "sqlite":
        folder = Path(uri.removeprefix("sqlite:///")).absolute().parent
        if not os.access(folder, os.W_OK):
            return Finding("mlflow", "mend", f"{folder} cannot be written", advice)
    return Finding("mlflow", "ok", shown)


def prefect_api(environment: Mapping[str, str]) -> Finding:
    """Whether the server that PREFECT_API_URL names answers."""
    url = environment.get("PREFECT_API_URL", "")
    if not url:
        return Finding("prefect", "ok", "no PREFECT_API_URL: a run starts a temporary server")
    advice = "Start it (`traduko up`), or unset PREFECT_API_URL."
    return _answers("prefect", f"{url.rstrip('/')}/health", url, advice)


def _answers(check: str, url: str, shown: str, advice: str) -> Finding:
    try:
        httpx.get(url, timeout=TIMEOUT_S).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(check, "mend", f"{shown} does not answer: {_words(error)}", advice)
    return Finding(check, "ok", shown)


def _dashboard(site: str, given: str) -> Finding:
    headers = {"Authorization": f"Bearer {given}"} if given else {}
    try:
        answer = httpx.get(f"{site.rstrip('/')}/api/version", headers=headers, timeout=TIMEOUT_S)
        if answer.status_code in {401, 403}:
            return _refused(site, has_token=bool(given))
        theirs = answer.raise_for_status().json()["ray_version"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        return Finding(
            "ray",
            "mend",
            f"{site} does not answer as Ray does: {_words(error)}",
            "Start the cluster (`traduko up`), correct RAY_API_SERVER_ADDRESS, or unset RAY_ADDRESS.",
        )
    ours = importlib.metadata.version("ray")
    if theirs != ours:
        return Finding(
            "ray",
            "mend",
            f"the cluster at {site} runs Ray {theirs}, this environment {ours}",
            f"pip install 'ray[data,default,train]=={theirs}', or update the cluster.",
        )
    return Finding("ray", "ok", f"{site}, Ray {theirs}")


def _head(address: str, environment: Mapping[str, str]) -> Finding:
    """Where only the head's own port is known: Ray's command says whether it takes us."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and (wrong := _unreachable(host, int(port))):
        return Finding(
            "ray", "mend", f"{address}: {wrong}", "Start the cluster, or unset RAY_ADDRESS."
        )
    command = [sys.executable, "-m", "ray.scripts.scripts", "status"]
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=STATUS_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding("ray", "mend", f"{address} does not answer", "Look at the cluster's logs.")
    if done.returncode == 0:
        return Finding("ray", "ok", address)
    said = done.stdout + done.stderr
    if any(word in said for word in REFUSALS):
        return _refused(address, has_token=bool(token(environment)))
    last = (said.strip().splitlines() or ["it says nothing"])[-1]
    return Finding("ray", "mend", f"{address}: {last}", "Look at the cluster's logs.")


def _refused(where: str, *, has_token: bool) -> Finding:
    found = f"{where} refuses {'this token' if has_token else 'us: it asks for a token'}"
    advice = "export RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE with the cluster's token."
    return Finding("ray", "mend", found, advice)


def _unreachable(host: str, port: int) -> str:
    """Why nothing can be reached there; empty where something listens."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _words(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
