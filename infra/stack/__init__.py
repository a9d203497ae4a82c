"""Prefect, MLflow and Ray on this machine, started, watched and stopped."""
