"""What the pipeline runs on: processes, ports and health of a stack on one machine."""
