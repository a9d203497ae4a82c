"""The jobs of a Ray cluster through its HTTP API, each request with a time limit."""

import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from flows.pack import Package
from flows.ray_token import MODE, Token, find_token, refused
from pipeline.artifact import Json
from pipeline.errors import ConfigError, InputError, TradukoError

CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 30.0
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
AT_WORK = frozenset({"PENDING", "RUNNING"})


class SilentError(TradukoError):
    """The API does not answer; it may later."""


class JobInfo(NamedTuple):
    """One job, as the cluster tells of it."""

    id: str
    status: str
    """PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED."""
    metadata: dict[str, str]
    exit_code: int | None
    """Of its command; none where it was stopped, or never began."""
    message: str

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.status not in AT_WORK


class Jobs:
    """Submits, watches and stops jobs.

    Args:
        address: Of the cluster's dashboard, http://HOST:8265.

    Raises:
        ConfigError: If the address is none.
        TradukoError: If the API does not answer, or wants another token.
    """

    def __init__(self, address: str):
        self.address = _checked(address)
        self._token: Token | None = find_token() if os.environ.get(MODE) == "token" else None
        self._client = httpx.Client(
            base_url=self.address,
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            trust_env=not self.is_local,  # a proxy does not lead to this machine
        )
        try:
            self.ray_version = str(self._json("GET", "/api/version")["ray_version"])
        except KeyError:
            raise self._no_ray() from None

    @property
    def is_local(self) -> bool:
        """Whether the cluster's head is this machine."""
        return urlsplit(self.address).hostname in LOOPBACK

    def submit(
        self, job: str, command: str, package: Package, env: dict[str, str], metadata: Json
    ) -> None:
        """Upload what a job needs, unless it is there, and start it."""
        place = f"/api/packages/gcs/{package.name}"
        if self._send("GET", place, allowed=(404,)).status_code == 404:
            self._send("PUT", place, content=package.content)
        request = {
            "entrypoint": command,
            "submission_id": job,
            "runtime_env": {"working_dir": f"gcs://{package.name}", "env_vars": env},
            "metadata": metadata,
        }
        self._send("POST", "/api/jobs/", json=request)

    def all(self) -> list[JobInfo]:
        """Every job that was submitted."""
        found = self._json("GET", "/api/jobs/")
        return [_info(each) for each in found if each.get("submission_id")]

    def info(self, job: str) -> JobInfo:
        """One job.

        Raises:
            InputError: If there is none of that name.
        """
        return _info(self._json("GET", self._place(job)))

    def log(self, job: str) -> str:
        """All that a job has written so far."""
        return str(self._json("GET", f"{self._place(job)}/logs").get("logs") or "")

    def stop(self, job: str) -> bool:
        """Ask a job to end; whether it was at work."""
        return bool(self._json("POST", f"{self._place(job)}/stop")["stopped"])

    def _place(self, job: str) -> str:
        place = f"/api/jobs/{job}"
        if "/" in job or self._send("GET", place, allowed=(404,)).status_code == 404:
            raise InputError(f"The Ray cluster at {self.address} knows no job {job}.")
        return place

    def _json(self, method: str, place: str) -> Any:  # noqa: ANN401 - any JSON
        try:
            return self._send(method, place).json()
        except ValueError:
            raise self._no_ray() from None

    def _send(
        self,
        method: str,
        place: str,
        allowed: tuple[int, ...] = (),
        **body: Any,  # noqa: ANN401 - httpx's
    ) -> httpx.Response:
        """One request; with the token from the first time on that one is asked for."""
        answer = self._try(method, place, **body)
        if answer.status_code in {401, 403} and not self._token:
            self._token = find_token()
            if self._token:
                answer = self._try(method, place, **body)
        if answer.status_code in {401, 403}:
            raise refused(self.address, self._token)
        if answer.is_success or answer.status_code in allowed:
            return answer
        lines = answer.text.strip().splitlines() or ["no reason given"]
        raise TradukoError(
            f"The Ray cluster at {self.address} answers {answer.status_code} to {method} {place}: "
            f"{lines[-1][:300]}"
        )

    def _try(self, method: str, place: str, **body: Any) -> httpx.Response:  # noqa: ANN401
        header = self._token.header if self._token else {}
        try:
            return self._client.request(method, place, headers=header, **body)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise SilentError(
                f"No Ray cluster answers at {self.address} ({reason}). Check the address (that of its "
                "dashboard, usually port 8265) and that the cluster runs."
            ) from None

    def _no_ray(self) -> TradukoError:
        return TradukoError(
            f"What answers at {self.address} is not the dashboard of a Ray cluster."
        )


def _checked(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(
            f"`--ray` must be the address of the cluster's dashboard, http://HOST:8265, but is "
            f"{address}."
        )
    return address.rstrip("/")


def _info(found: Json) -> JobInfo:
    return JobInfo(
        id=found["submission_id"] or found["job_id"],
        status=found["status"],
        metadata=found.get("metadata") or {},
        exit_code=found.get("driver_exit_code"),
        message=found.get("message") or "",
    )
