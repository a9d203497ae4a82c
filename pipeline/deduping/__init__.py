"""Duplicates and overlap, in bounded memory."""
