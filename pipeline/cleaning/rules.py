"""Cleaning rules for pairs: which rows to keep, and which rule rejected each of the others.

A rule is a pure function of a batch (columns `src` and `tgt`, strings without nulls, and any others)
and its parameters, and says row by row what to keep. A row is rejected by the first rule of `RULES`
that does so.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.cleaning.rules_content import drop, language, letters, mojibake, numbers, tags, urls
from pipeline.cleaning.rules_copy import copied
from pipeline.cleaning.rules_length import empty, length, long_word, ratio, with_sizes
from pipeline.cleaning.rules_parameters import Rule, RuleParameters

RULES: dict[str, Rule] = {
    "empty": empty,
    "drop": drop,
    "length": length,
    "ratio": ratio,
    "long_word": long_word,
    "letters": letters,
    "copied": copied,
    "numbers": numbers,
    "urls": urls,
    "tags": tags,
    "mojibake": mojibake,
    "language": language,
}
"""The order in which rules are applied: a row is counted under the first that rejects it."""


KEPT = -1
ENOUGH = 0.95
"""Rows that a rule has rejected are shown to the next ones until so few are left: taking them out
costs more than most rules do."""


class Applied(NamedTuple):
    """A batch after the rules: each row once, in the order it came."""

    kept: pa.RecordBatch
    rejected: pa.RecordBatch
    """With one more column, `rule` (string): the first that rejected the row."""


def apply(batch: pa.RecordBatch, parameters: RuleParameters) -> Applied:
    """Parts a batch into what every rule keeps and what one rejects."""
    rule_of_row = np.full(batch.num_rows, KEPT, dtype=np.int32)
    rows, left = np.arange(batch.num_rows), with_sizes(batch)
    for number, (name, rule) in enumerate(RULES.items()):
        if name in parameters.rules_off:
            continue
        is_rejected = ~rule(left, parameters).to_numpy(zero_copy_only=False)
        rejected = rows[is_rejected]
        rule_of_row[rejected[rule_of_row[rejected] == KEPT]] = number
        is_left = rule_of_row[rows] == KEPT
        if np.count_nonzero(is_left) < ENOUGH * len(rows):
            rows, left = rows[is_left], left.filter(pa.array(is_left))
    is_kept = rule_of_row == KEPT
    names = pa.array(RULES, pa.string()).take(pa.array(rule_of_row[~is_kept]))
    dropped = batch.filter(pa.array(~is_kept)).append_column("rule", names)
    return Applied(batch.filter(pa.array(is_kept)), dropped)
