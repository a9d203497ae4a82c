"""Cleaning rules for pairs: which rows to keep, and which rule rejected each of the others.

A rule is a pure function of a batch (columns `src` and `tgt`, strings without nulls, and any others)
and its parameters, and says row by row what to keep. A row is rejected by the first rule of `RULES`
that does so.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.rules_content import drop, language, letters, mojibake, numbers, tags, urls
from pipeline.rules_copy import copied
from pipeline.rules_length import empty, length, long_word, ratio, with_words
from pipeline.rules_parameters import Rule, RuleParameters

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


class Applied(NamedTuple):
    """A batch after the rules: each row once, in the order it came."""

    kept: pa.RecordBatch
    rejected: pa.RecordBatch
    """With one more column, `rule` (string): the first that rejected the row."""


def apply(batch: pa.RecordBatch, parameters: RuleParameters) -> Applied:
    """Parts a batch into what every rule keeps and what one rejects."""
    rule_of_row = np.full(batch.num_rows, None, dtype=object)
    rows, kept = np.arange(batch.num_rows), with_words(batch)
    for name, rule in RULES.items():
        if name in parameters.rules_off:
            continue
        keep = rule(kept, parameters)  # only rows that are still there: later rules cost more
        is_kept = keep.to_numpy(zero_copy_only=False)
        if not is_kept.all():
            rule_of_row[rows[~is_kept]] = name
            rows, kept = rows[is_kept], kept.filter(keep)
    names = pa.array(rule_of_row, type=pa.string())
    rejected = batch.append_column("rule", names).filter(names.is_valid())
    return Applied(kept.select(batch.schema.names), rejected)
