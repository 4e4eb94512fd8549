"""All views of a sweep, written into its folder, and written again from its samples."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from portkern.errors import ConfigError
from portkern.experiment.compare.comparison import compare
from portkern.experiment.compare.page import html, markdown, tidy, words
from portkern.experiment.compare.page.exchange import Exchanges
from portkern.experiment.compare.result import ModelComparison
from portkern.experiment.compare.sample import FILE, Sample, by_language
from portkern.records import atomic_write
from portkern.records.jsonl import LineFile
from portkern.spec import foreign_text
from portkern.spec.foreign_text import json_value

#: What the other views follow from, with their title and facts.
DOCUMENT: Final = "compare.json"


def write(
    folder: Path,
    comparison: ModelComparison,
    samples: Sequence[Sample],
    *,
    title: str = "",
    facts: Mapping[str, str] = MappingProxyType({}),
    prompts: bool = True,
) -> list[Path]:
    """``title`` is the page's, ``facts`` what a reader should know of how the samples came to be.
    Without ``prompts``, which may quote references of others, the page has their lengths and
    digests. Raises StorageError."""
    title = title or words.title(comparison)
    document = {"title": title, "facts": dict(facts), "prompts": prompts, **comparison.document()}
    views = {
        "compare.html": html.render(
            comparison,
            by_language(samples),
            folder,
            title=title,
            facts=facts,
            prompts=prompts,
        ),
        "compare.md": markdown.render(comparison, title=title, facts=facts),
        "compare.csv": tidy.render(comparison),
        DOCUMENT: json.dumps(document, allow_nan=False) + "\n",
    }
    for name, text in views.items():
        atomic_write.write(folder / name, text)
    return [folder / name for name in views]


def again(folder: Path) -> ModelComparison:
    """Writes the files again, with the title and the facts that they had. Raises ConfigError,
    RecordError, StorageError."""
    rows, _ = LineFile(folder / FILE, Sample.from_json).read()
    exchanges = Exchanges(folder)
    solved = {row.digest: row for row in rows if row.correct and row.digest}
    found = ((digest, exchanges.of(row)) for digest, row in solved.items())
    sources = {digest: exchange.source for digest, exchange in found if exchange}
    try:
        comparison = compare(rows, sources=sources)
    except ValueError as error:
        raise ConfigError(f"{folder / FILE}: {error}") from error
    known = _document(folder)
    write(
        folder,
        comparison,
        rows,
        title=known.get("title", ""),
        facts=known.get("facts", {}),
        prompts=known.get("prompts", True),
    )
    return comparison


def _document(folder: Path) -> dict[str, Any]:
    """Empty where there is none, or not one of portkern's."""
    try:
        document = json_value(foreign_text.content(folder / DOCUMENT))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
