"""Readers of parallel text: formats, line ends, faults, shifted content."""
