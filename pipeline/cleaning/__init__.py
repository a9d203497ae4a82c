"""Rules on pairs, and what they look at."""
