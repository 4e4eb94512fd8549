"""Experiments: one question put to several arms at an equal budget, and what their runs say.

Pure: who runs the jobs is :mod:`portkern.cli.verbs.experiment`.
"""

from __future__ import annotations

import importlib

from portkern.errors import no_such
from portkern.experiment.study import Study

_STUDIES = {
    "baseline": "BaselineStudy",
    "feedback": "FeedbackStudy",
    "search": "SearchStudy",
    "profiling": "ProfilingStudy",
    "transfer": "TransferStudy",
    "cheating": "CheatingStudy",
    "knowledge": "KnowledgeStudy",
}


def load(name: str) -> Study:
    """Raises ConfigError."""
    if name not in _STUDIES:
        raise no_such("experiment", name, _STUDIES)
    study: Study = getattr(importlib.import_module(f"{__name__}.{name}"), _STUDIES[name])()
    return study
