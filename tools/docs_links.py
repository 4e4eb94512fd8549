"""A hook for mkdocs: what a page links to beside ``docs/`` is named by its path in the
repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_BESIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)(?:#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Raises FileNotFoundError for a link to nothing."""

    def named(match: re.Match[str]) -> str:
        text, path = match.groups()
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_path} links to {path}, which is not there")
        return f"`{path}`" if text == Path(path).name else f"{text} (`{path}`)"

    return _BESIDE.sub(named, markdown)
