"""A hook for mkdocs: what a page links to beside ``docs/`` is named by its path in the
repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_UPWARD = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Raises FileNotFoundError for a link to nothing."""
    folder = (DOCS / page.file.src_path).parent

    def named(match: re.Match[str]) -> str:
        text, link = match.groups()
        target = (folder / link).resolve()
        if target.is_relative_to(DOCS):
            return match[0]  # mkdocs looks for it
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_path} links to {link}, which is not there")
        path = target.relative_to(ROOT).as_posix()
        return f"`{path}`" if text == target.name else f"{text} (`{path}`)"

    return _UPWARD.sub(named, markdown)
