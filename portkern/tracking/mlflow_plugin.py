"""Loaded by MLflow itself, as a run context provider, wherever portkern is installed beside it.

To be imported is all it is for: portkern's import sets what keeps a plain ``mlflow ui`` from
hanging at start without a network, where litellm, which its server imports, waits for a download
while it holds the import lock (MLflow 3.17 with litellm 1.106).
"""

from __future__ import annotations


class Quiet:
    """MLflow asks every provider whether it has tags for a run; this one never does."""

    def in_context(self) -> bool:
        return False

    def tags(self) -> dict[str, str]:
        return {}
