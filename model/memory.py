"""What a decoder remembers: the encoded source, and the keys and values it need not compute again.

Axes: B sentences, S source positions, W beams, H heads, K key positions, E width per head, D width,
P decoded tokens, those of all beams of a sentence side by side.

Memory for decoded tokens is taken ahead, so that a step writes its own keys and values and copies
no others. Every few steps the tokens that no beam has in its prefix any more are left out: soon
that is most of them, since the beams of a sentence differ in their last tokens only. Rows of
sentences that are done are filled with rows from the end: what that costs depends on how many are
done, not on how many go on.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

FIRST_ROOM = 128
"""Decoded tokens per sentence that there is room for at first; it doubles when it is full."""

STEPS_BETWEEN_CLEARINGS = 6
"""After so many steps, looking at dead tokens has cost about as much as copying the others."""


class Memory(NamedTuple):
    """The encoded source sentences."""

    hidden_BSD: Tensor
    attend_BS: Tensor
    """True at tokens, False at padding; always True at position 0, so that a softmax has a key."""

    def detach(self) -> "Memory":
        """Return the same memory without a way back for gradients."""
        return Memory(*(part.detach() for part in self))

    def keep(self, rows_B: Tensor) -> "Memory":
        """Return the memory of these sentences alone. This one is of no use afterwards."""
        return Memory(*(keep_rows(part, rows_B) for part in self))


class KeysValues(NamedTuple):
    """Projected keys (B, H, K, E) and values (B, H, K, E'), split into heads."""

    keys: Tensor
    values: Tensor

    def keep(self, rows_B: Tensor) -> "KeysValues":
        """Return those of these sentences alone. This one is of no use afterwards."""
        return KeysValues(*(keep_rows(part, rows_B) for part in self))

    def first(self, places: int) -> "KeysValues":
        """Return a view of the first places."""
        return KeysValues(*(part[:, :, :places] for part in self))


@dataclass
class LayerCache:
    """What one decoder layer need not compute again."""

    past: KeysValues | None = None
    """Of the P tokens read so far, with room for more behind them."""
    num_past: int = 0
    """P."""
    source: KeysValues | None = None
    """Of the S source positions, once per sentence: beams share them."""

    def extend(self, new: KeysValues) -> KeysValues:
        """Append to the past and return all of it."""
        end = self.num_past + new.keys.shape[2]
        if self.past is None:
            self.past = KeysValues(
                *(_with_room(part[:, :, :0], max(end, FIRST_ROOM)) for part in new)
            )
        elif end > self.past.keys.shape[2]:
            self.past = KeysValues(*(_with_room(part, 2 * end) for part in self.past))
        for room, part in zip(self.past, new, strict=True):
            room[:, :, self.num_past : end] = part
        self.num_past = end
        return self.past.first(end)

    def choose(self, place_BP: Tensor) -> None:
        """Drop all other tokens: of each sentence as many stay, in this order."""
        assert self.past is not None
        row_B1 = torch.arange(len(place_BP), device=place_BP.device)[:, None]
        self.num_past = place_BP.shape[1]
        for room in self.past:
            chosen_BPHE = room.transpose(1, 2)[row_B1, place_BP]
            room[:, :, : self.num_past] = chosen_BPHE.transpose(1, 2)

    def keep(self, rows_B: Tensor) -> None:
        """Drop all other sentences."""
        if self.past is not None:
            self.past.first(self.num_past).keep(rows_B)
            self.past = KeysValues(*(part[: len(rows_B)] for part in self.past))
        if self.source is not None:
            self.source = self.source.keep(rows_B)


@dataclass
class DecodingState:
    """Sentences being decoded, W beams each.

    The beams of a sentence are W query positions over shared keys: those of its source, and those
    of the tokens that any of its beams has read. A mask tells which of these tokens are a beam's
    own, so that choosing other beams moves a few booleans and no keys or values.
    """

    memory: Memory
    attend_BWP: Tensor
    """True at the tokens of a beam's own prefix."""
    caches: list[LayerCache] = field(default_factory=list)
    length: int = 0
    """Tokens read per beam."""

    def branch(self, parent_BW: Tensor) -> None:
        """Let each beam take over its parent's prefix, and append the place of its next token."""
        (sentences, beam_size), past = parent_BW.shape, self.attend_BWP.shape[2]
        self.attend_BWP = self.attend_BWP.gather(1, parent_BW[..., None].expand(-1, -1, past))
        if self.length % STEPS_BETWEEN_CLEARINGS == 0 and self.attend_BWP.numel():
            self._clear()
        own_WW = torch.eye(beam_size, dtype=torch.bool, device=parent_BW.device)
        self.attend_BWP = torch.cat([self.attend_BWP, own_WW.expand(sentences, -1, -1)], dim=2)
        self.length += 1

    def _clear(self) -> None:
        """Leave out tokens that no beam looks at, as far as all sentences have such."""
        is_live_BP = self.attend_BWP.any(dim=1)
        most = int(is_live_BP.sum(dim=1).amax())
        if most == is_live_BP.shape[1]:
            return
        order_BP = is_live_BP.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
        place_BP = order_BP[:, :most]
        place_BWP = place_BP[:, None].expand(-1, self.attend_BWP.shape[1], -1)
        self.attend_BWP = self.attend_BWP.gather(2, place_BWP)
        for cache in self.caches:
            cache.choose(place_BP)

    def keep(self, rows_B: Tensor) -> None:
        """Drop all other sentences: place i goes to the one at rows_B[i].

        Cheapest where most stay in place: only rows that move are copied.
        """
        self.memory = self.memory.keep(rows_B)
        self.attend_BWP = keep_rows(self.attend_BWP, rows_B)
        for cache in self.caches:
            cache.keep(rows_B)


def keep_rows(x: Tensor, rows_B: Tensor) -> Tensor:
    """Return x[rows_B], written into the first rows of `x` itself; the others are lost."""
    (moved_N,) = (rows_B != torch.arange(len(rows_B), device=rows_B.device)).nonzero(as_tuple=True)
    if len(moved_N):
        x[moved_N] = x[rows_B[moved_N]]
    return x[: len(rows_B)]


def _with_room(start: Tensor, places: int) -> Tensor:
    """Return memory of this many places (axis 2) that begins with those of `start`."""
    sentences, heads, filled, width = start.shape
    # Heads lie side by side within a place, as projections give them: a step writes whole rows.
    room = start.new_empty(sentences, places, heads, width).transpose(1, 2)
    room[:, :, :filled] = start
    return room
