"""Prefect automations: a run whose process died is told by the heartbeat it misses."""

from datetime import timedelta

from prefect.automations import Automation
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

CRASH_ZOMBIES = "traduko: a run without heartbeat has crashed"
SILENCE_S = 90.0
"""Three heartbeats of those that flows/environment.py asks for: no busy process misses so many."""

_BEGINS = {"prefect.flow-run.Running", "prefect.flow-run.heartbeat"}
_GOES_ON = {
    f"prefect.flow-run.{event}"
    for event in ("heartbeat", "Completed", "Failed", "Cancelled", "Crashed", "Paused", "Suspended")
}


def crash_zombies(within_s: float = SILENCE_S) -> None:
    """Have the Prefect server mark as Crashed every run that falls silent for so long.

    The server is the one that PREFECT_API_URL names. Done again, it changes the time.

    Args:
        within_s: Seconds without a sign of life; Prefect sends one at most every 30.
    """
    automation = _automation(timedelta(seconds=within_s))
    with get_client(sync_client=True) as client:
        there = client.read_automations_by_name(CRASH_ZOMBIES)
    if there:
        automation.id = there[0].id
        automation.update()
    else:
        automation.create()


def _automation(silence: timedelta) -> Automation:
    """After a sign of life another one is due, or the end of the run."""
    message = (
        f"No sign of life for {silence.total_seconds():.0f} s: its process is gone. The same run "
        "again goes on where this one was."
    )
    trigger = EventTrigger(
        after=_BEGINS,
        expect=_GOES_ON,
        match=ResourceSpecification({"prefect.resource.id": ["prefect.flow-run.*"]}),
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=silence,
    )
    crash = ChangeFlowRunState(state=StateType.CRASHED, name="Crashed", message=message)
    return Automation(
        name=CRASH_ZOMBIES, description=message, trigger=trigger, actions=[crash], enabled=True
    )
