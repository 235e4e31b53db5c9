"""Cures: the changes that would end a leak (`candidates`), tried in memory and measured before they are told."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "applying": "applied",
        "candidate": "Candidate Finding Program",
        "candidates": "candidates_for",
        "edits": "NotTriedError are_apart edited merged",
        "first_run": "names_missing",
        "judging": "is_settling judge_trial trial_words",
        "keeping": "KeptData",
        "levels": "Gain LevelReader",
        "restoring": "to_the_end",
        "training": "Behaviour Learning Observer harm_of pointless_cache",
        "trial_runs": "N_RUNS",
    },
)
