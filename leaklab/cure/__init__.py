"""Cures: the changes that would end a leak (`candidates`), tried in memory and measured before they are told."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "applying": "applied",
        "candidate": "Candidate Finding Program",
        "edits": "NotTriedError edited",
        "judging": "judge_trial trial_words",
        "keeping": "KeptData",
        "levels": "Gain LevelReader",
        "restoring": "to_the_end",
        "training": "Behaviour Learning harm_of",
        "trial": "N_RUNS",
    },
)
