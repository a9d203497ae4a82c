"""A random stream with the same numbers on every platform and Python version."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

_MASK = 2**64 - 1

T = TypeVar("T")


class Rng:
    """SplitMix64 (Steele, Lea and Flood, 2014), one stream for each (seed, name).

    `random` promises the same floats for a seed, but not the same choices, across versions.
    """

    def __init__(self, seed: int, stream: str = "") -> None:
        digest = hashlib.sha256(f"{seed}/{stream}".encode()).digest()
        self._state = int.from_bytes(digest[:8], "big")

    def bits(self) -> int:
        """The next 64 bits, as a number below 2**64."""
        self._state = state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        return state ^ (state >> 31)

    def below(self, bound: int) -> int:
        """A whole number in 0 … bound - 1; for small bounds the bias of `%` is below 1e-13."""
        return self.bits() % bound

    def between(self, low: int, high: int) -> int:
        """A whole number in low … high, both included."""
        return low + self.bits() % (high - low + 1)

    def pick(self, items: Sequence[T]) -> T:
        """One of `items`, each as likely as the next."""
        return items[self.bits() % len(items)]

    def chance(self, percent: int) -> bool:
        """True in `percent` of a hundred cases."""
        return self.bits() % 100 < percent
