"""Prompts: templates with a version each. Facts come from what they are rendered with.

A template ``<name>.j2`` has the blocks ``system`` (optional) and ``user``. ``manifest.yaml`` gives
each its version and the digest of its text and of what it includes: whoever changes a prompt gives
it a new version, since results of two versions are not of one experiment.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound, meta

from portkern.agent.axes import PromptMessage
from portkern.errors import no_such
from portkern.spec.foreign_text import yaml_value

_FOLDER = files(__package__)
_HEADING, _FENCE = re.compile(r"#{1,5} "), re.compile(r"`{3,}|~{3,}")


class _Shipped(BaseLoader):
    def get_source(
        self, environment: Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        file = _FOLDER / f"{template}.j2"
        if not file.is_file():
            raise TemplateNotFound(template)
        return file.read_text(encoding="utf-8"), template, lambda: True


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=_Shipped(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,  # prompts are not HTML
    )
    environment.filters |= {"fenced": fenced, "section": section}
    return environment


def fenced(source: str, tag: str = "") -> str:
    """The source as a block of code, between fences that are longer than any in it."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", source)), default=0))
    return f"{fence}{tag}\n{source.rstrip()}\n{fence}"


def section(document: str) -> str:
    """The document without its title, and with headings that stand below those of a prompt."""
    lines = document.strip().splitlines()
    if lines and _HEADING.match(lines[0]):
        lines = lines[1:]
    kept, fence = [], ""
    for line in lines:
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[0]):
            fence = "" if fence else mark[0]
        kept.append(f"#{line}" if _HEADING.match(line) and not fence else line)
    return "\n".join(kept).strip()


@cache
def manifest() -> dict[str, dict[str, str]]:
    """``{name: {version, digest}}``."""
    text = (_FOLDER / "manifest.yaml").read_text(encoding="utf-8")
    return {name: {k: str(v) for k, v in entry.items()} for name, entry in yaml_value(text).items()}


def names() -> list[str]:
    """Templates that can be rendered; those that are only included begin with ``_``."""
    files = (file.name for file in _FOLDER.iterdir() if file.name.endswith(".j2"))
    return sorted(name.removesuffix(".j2") for name in files if not name.startswith("_"))


@cache
def digest(name: str) -> str:
    """A digest of the template's text and of all that it includes."""
    environment, h = _environment(), hashlib.sha256()
    todo, done = [name], set()
    while todo:
        each = todo.pop()
        if each in done:
            continue
        done.add(each)
        source, *_ = _Shipped().get_source(environment, each)
        h.update(source.encode())
        references = meta.find_referenced_templates(environment.parse(source))
        todo += sorted(name for name in references if name)
    return h.hexdigest()[:12]


def named(name: str) -> str:
    """``code@1``, as calls are marked with."""
    if name not in manifest():
        raise no_such("prompt", name, manifest())
    return f"{name}@{manifest()[name]['version']}"


def render(name: str, **facts: object) -> list[PromptMessage]:
    """Raises jinja2.UndefinedError for a fact that the template wants and is not given."""
    if name not in names():
        raise no_such("prompt", name, names())
    template = _environment().get_template(name)
    context = template.new_context(facts)
    parts = {
        role: "".join(template.blocks[role](context)).strip()
        for role in ("system", "user")
        if role in template.blocks
    }
    return [PromptMessage(role, text) for role, text in parts.items() if text]
