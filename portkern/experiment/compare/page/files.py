"""All views of a sweep, written into its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from portkern.experiment.compare.page import html, markdown, tidy, words
from portkern.experiment.compare.result import Comparison
from portkern.experiment.compare.sample import Sample
from portkern.records import atomic_write


def write(
    folder: Path,
    comparison: Comparison,
    samples: Sequence[Sample],
    *,
    title: str = "",
    facts: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """``title`` is the page's, ``facts`` what a reader should know of how the samples came to be.
    Raises StorageError."""
    title = title or words.title(comparison)
    views = {
        "compare.html": html.render(comparison, samples, folder, title=title, facts=facts),
        "compare.md": markdown.render(comparison, title=title, facts=facts),
        "compare.csv": tidy.render(comparison),
        "compare.json": json.dumps(comparison.document(), allow_nan=False) + "\n",
    }
    for name, text in views.items():
        atomic_write.write(folder / name, text)
    return [folder / name for name in views]
