"""Everything that decides verdicts on a machine, beside its devices and toolchains."""

from __future__ import annotations

from importlib.metadata import version

from portkern.evaluator.artifact_cache import backends_digest
from portkern.evaluator.code_digest import evaluator_digest
from portkern.records.jsonl import JsonPart


class Portkern(JsonPart):
    """Equal where equal kernels get equal verdicts."""

    version: str
    evaluator: str
    backends: str

    @classmethod
    def here(cls) -> Portkern:
        return cls(
            version=version("portkern"),
            evaluator=evaluator_digest()[:12],
            backends=backends_digest()[:12],
        )

    def __str__(self) -> str:
        return f"portkern {self.version} (evaluator {self.evaluator}, backends {self.backends})"
