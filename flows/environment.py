"""What the engines that Traduko starts find in their environment."""

import os

NO_REPORTING = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
}
OTHERS = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns unless this future default is chosen
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",  # a run needs no server of its own
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",  # of a busy machine
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # seconds; flows/automation.py waits for three
}


def turn_off_reporting() -> None:
    """No engine reports its use to anybody, unless the user has said otherwise."""
    for name, value in {**NO_REPORTING, **OTHERS}.items():
        os.environ.setdefault(name, value)
