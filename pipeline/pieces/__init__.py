"""Subword pieces: tokenizers, samples to learn them from, how well they cover a text."""
