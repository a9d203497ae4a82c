"""Prefect automations: a run whose process died is told by the heartbeat it misses."""

import time
from collections.abc import Mapping
from typing import Any

import httpx

from pipeline.errors import TradukoError

CRASH_ZOMBIES = "traduko: a run without heartbeat has crashed"
SILENCE_S = 90.0
"""Three heartbeats of those that flows/environment.py asks for: no busy process misses so many."""
API_TIMEOUT_S = 30.0
NUM_TRIES, PAUSE_S = 10, 2.0
"""Of requests while Prefect's database is busy, as it is at its start."""

_BEGINS = ("Running", "heartbeat")
_GOES_ON = ("heartbeat", "Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended")


def crash_zombies(api: str, within_s: float = SILENCE_S) -> None:
    """Have the Prefect server mark as Crashed every run that falls silent for so long.

    Done again, it changes the time.

    Args:
        api: Of Prefect, ending in `/api`.
        within_s: Seconds without a sign of life; Prefect sends one at most every 30.

    Raises:
        TradukoError: If Prefect refuses, or does not answer.
    """
    by_name = {"automations": {"name": {"any_": [CRASH_ZOMBIES]}}}
    with httpx.Client(base_url=api, timeout=API_TIMEOUT_S, trust_env=False) as client:
        found = _tell(client, "POST", "/automations/filter", by_name).json()
        if found:
            _tell(client, "PUT", f"/automations/{found[0]['id']}", _automation(within_s))
        else:
            _tell(client, "POST", "/automations/", _automation(within_s))


def _automation(within_s: float) -> Mapping[str, Any]:
    """After a sign of life another one is due, or the end of the run."""
    message = (
        f"No sign of life for {within_s:.0f} s: its process is gone. The same run again goes on "
        "where this one was."
    )
    return {
        "name": CRASH_ZOMBIES,
        "description": message,
        "enabled": True,
        "trigger": {
            "type": "event",
            "posture": "Proactive",
            "after": [f"prefect.flow-run.{event}" for event in _BEGINS],
            "expect": [f"prefect.flow-run.{event}" for event in _GOES_ON],
            "match": {"prefect.resource.id": "prefect.flow-run.*"},
            "for_each": ["prefect.resource.id"],
            "threshold": 1,
            "within": within_s,
        },
        "actions": [
            {
                "type": "change-flow-run-state",
                "state": "CRASHED",
                "name": "Crashed",
                "message": message,
            }
        ],
    }


def _tell(client: httpx.Client, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
    """Ask Prefect for something, again while its database is busy.

    Raises:
        TradukoError: If it refuses.
    """
    answer = _ask(client, method, path, body)
    for _ in range(NUM_TRIES):
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            break
        time.sleep(PAUSE_S)
        answer = _ask(client, method, path, body)
    if not answer.is_success:
        raise TradukoError(
            f"Prefect must take what `traduko up` tells it at {path}, but answers "
            f"{answer.status_code}: {answer.text[:500]}"
        )
    return answer


def _ask(client: httpx.Client, method: str, path: str, body: Mapping[str, Any]) -> httpx.Response:
    try:
        return client.request(method, path, json=body)
    except httpx.HTTPError as error:
        raise TradukoError(f"Prefect's server does not answer at {path}: {error}") from None
