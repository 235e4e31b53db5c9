"""The engine of cures: what a change to a program is, how it is written, tried in memory, and measured."""

from __future__ import annotations

from leaklab.lazy import lazy_names

__getattr__ = lazy_names(
    __name__,
    {
        "applying": "applied",
        "case": "Case",
        "proposal": "Program Proposal",
        "edits": "NotTriedError are_apart edited merged",
        "first_run": "names_missing",
        "judging": "is_settling judge_trial trial_words",
        "keeping": "KeptData to_the_end",
        "levels": "LevelGain LevelReader",
        "behaviour": "Behaviour Learning Observer harm_of pointless_cache",
        "trial_runs": "N_RUNS",
    },
)
