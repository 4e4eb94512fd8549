"""Reads a candidate before it is built and says what in it breaks the rules, by file and line.

It explains, and spares the machine the plainest attempts; the jail contains and the checks
evaluate. So a doubtful construct is a note, and only what no honest kernel needs is rejected.
Comments, and strings that are not executed, are never looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from portkern.errors import no_such
from portkern.guard.rules import RULES, Rule, Severity
from portkern.guard.tree import constant, extension_texts
from portkern.spec.candidate import Candidate
from portkern.spec.op import Precision

TorchOps = Literal["forbid", "allow"]
Library = Literal["forbid", "allow"]
#: Whether the framework's operators and vendors' libraries may do the work.
TORCH_OPS: tuple[TorchOps, ...] = ("forbid", "allow")
#: Whether portkern's own headers and shared functions may.
LIBRARY: tuple[Library, ...] = ("forbid", "allow")
#: The language's files; those of other languages are called after the op alone.
_SUFFIX = {
    "c++": ".cpp",
    "cuda": ".cu",
    "hip": ".hip",
    "triton": ".py",
    "pallas": ".py",
    "pallas-tpu": ".py",
    "pallas-mosaic-gpu": ".py",
    "numba": ".py",
    "opencl": ".py",
    "torch-cuda": ".py",
    "torch-hip": ".py",
    "torch-c++": ".py",
}
_EXCERPT = 100
_OWN = ""


def torch_ops(text: str) -> TorchOps:
    """Raises ConfigError for a policy that does not exist."""
    for known in TORCH_OPS:
        if text == known:
            return known
    raise no_such("torch_ops policy", text, TORCH_OPS)


def library(text: str) -> Library:
    """Raises ConfigError for a policy that does not exist."""
    for known in LIBRARY:
        if text == known:
            return known
    raise no_such("library policy", text, LIBRARY)


@dataclass(frozen=True)
class GuardPolicy:
    """``strict`` precision forbids what relaxes floating point."""

    torch_ops: TorchOps = "forbid"
    precision: Precision = "strict"
    library: Library = "allow"

    def severity(self, rule: Rule) -> Severity:
        relaxed = {"torch_ops": self.torch_ops == "allow", "precision": self.precision != "strict"}
        return "note" if relaxed.get(rule.unless, False) else rule.severity


@dataclass(frozen=True)
class Hit:
    """One place that a rule speaks of. ``place`` is ``file:line``."""

    rule: Rule
    severity: Severity
    place: str
    excerpt: str

    def __str__(self) -> str:
        kind = "note: " if self.severity == "note" else ""
        return f"{self.place}: {kind}{self.rule.id} {self.rule.title}: {self.excerpt}"


@lru_cache(maxsize=256)
def inspect(candidate: Candidate, policy: GuardPolicy) -> tuple[Hit, ...]:
    """All hits in reading order, each rule once per line. Never raises for any source; one that
    does not parse is left to the compiler, whose words are better."""
    named = candidate.author.removeprefix("file:")
    called = f"{candidate.op}{_SUFFIX.get(candidate.language, '')}"
    own = named if named != candidate.author and Path(named).suffix else called
    texts = {_OWN: candidate.source, **_beside(candidate)}
    lines = {name: re.split(r"\r\n?|\n", text) for name, text in texts.items()}
    hits = []
    for name, line, rule_id in sorted(_found(candidate, texts)):
        rule, within = RULES[rule_id], lines[name]
        if rule.unless == "library" and policy.library == "allow":
            continue
        excerpt = within[line - 1].strip()[:_EXCERPT] if 0 < line <= len(within) else ""
        place = f"{name or own}:{line}"
        hits.append(Hit(rule, policy.severity(rule), place, excerpt))
    return tuple(hits)


def _beside(candidate: Candidate) -> dict[str, str]:
    """The texts that are built with the candidate, by name."""
    companions = candidate.companions
    defined = {"defines": companions.macros} if companions.defines else {}
    return {**companions.texts, **defined}


def rejection(hits: Iterable[Hit]) -> str:
    """Why a candidate with these hits is refused: the first one with its remedy, the others below;
    empty when all are notes."""
    rejected = [hit for hit in hits if hit.severity == "reject"]
    lines = [f"{hit} ({hit.rule.remedy})" for hit in rejected]
    return "\n".join(lines)


def _found(candidate: Candidate, texts: Mapping[str, str]) -> set[tuple[str, int, str]]:
    """File (:data:`_OWN` of the candidate's own), line and rule."""
    from portkern.guard import native, python

    companions = candidate.companions

    def is_own(file: str, target: str) -> bool:
        return companions.resolves(file or companions.path, target)

    if _SUFFIX.get(candidate.language, "") not in ("", ".py"):
        return native.read_all(texts, is_own)
    others = {name: text for name, text in texts.items() if name != _OWN}
    beside = native.read_all(others, is_own) if others else set()
    tree = python.parse(candidate.source)
    if tree is None:  # broken, or of a language that is not known here: then it is C's relative
        return beside if candidate.language in _SUFFIX else native.read_all(texts, is_own)
    places = python.read(
        tree, candidate.language, candidate.entry, module=candidate.style == "module"
    )
    for line, text in _native_texts(tree, candidate):
        found = native.read_all({_OWN: text}, is_own)
        places |= {(line + at - 1, rule) for _, at, rule in found}
    return beside | {(_OWN, line, rule) for line, rule in places}


def _native_texts(tree: ast.Module, candidate: Candidate) -> Iterable[tuple[int, str]]:
    """The texts in a Python source that a C compiler reads, with their lines."""
    if candidate.language == "opencl":
        return _strings(tree)
    return extension_texts(tree) if candidate.style == "module" else ()


def _strings(tree: ast.Module) -> Iterable[tuple[int, str]]:
    """The texts that the OpenCL program is made of: those of SOURCE and of what it names."""
    values: dict[str, list[ast.expr]] = {}
    for node in (statement for statement in tree.body if isinstance(statement, ast.Assign)):
        for target in (name for name in node.targets if isinstance(name, ast.Name)):
            values.setdefault(target.id, []).append(node.value)
    parts = values.pop("SOURCE", [])
    while parts:
        joined = constant(parts[-1])
        if joined is not None:
            yield parts[-1].lineno, joined
        for part in ast.walk(parts.pop()):
            if isinstance(part, ast.Name):
                parts += values.pop(part.id, [])
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, part.value
