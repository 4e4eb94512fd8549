"""How much of a model's code differs between places, after Harrell and Kitson: the Jaccard distance
of the lines that are used for each, where layout and comments make no difference."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from portkern.cuda_source.comments import without_comments
from portkern.experiment.compare.grouped import SampleGroup
from portkern.experiment.compare.intervals import mean_over_ops
from portkern.experiment.compare.result import AskedPlace, Divergence
from portkern.experiment.compare.sample import Sample
from portkern.experiment.statistics import Estimate
from portkern.spec.foreign_text import python_tree

_STRING: Final = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
#: Strings come first, so that what they hold is not taken for a comment. A Python string over
#: several lines may be a kernel in OpenCL, whose lines count.
_PYTHON: Final = re.compile(rf"(\"\"\".*?\"\"\"|'''.*?'''|{_STRING})|#[^\n]*", re.DOTALL)
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


def token_lines(source: str) -> frozenset[str]:
    """The lines of a source without comments and layout."""
    if _is_python(source):
        bare = _PYTHON.sub(lambda match: match[1] or "", source)
    else:
        bare = without_comments(source, lambda comment: "\n" * comment.count("\n"))
    lines = (" ".join(_TOKEN.findall(line)) for line in bare.splitlines())
    return frozenset(filter(None, lines))


def distance(first: frozenset[str], second: frozenset[str]) -> float:
    """A distance from 0, the same lines, to 1, none in common."""
    either = first | second
    return 1 - len(first & second) / len(either) if either else 0.0


def divergences(groups: Sequence[SampleGroup], sources: Mapping[str, str]) -> Iterator[Divergence]:
    """How far each model's best kernels for two places differ, over the ops that it solved in
    both."""
    kernels: dict[str, dict[tuple[str, str], dict[AskedPlace, str]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for group in groups:
        best = _best(group)
        if best is not None and best.digest in sources:
            kernels[group.model][group.op, group.dtype][group.place] = best.digest
    lines = {digest: token_lines(sources[digest]) for digest in _used(kernels)}
    for model, ops in kernels.items():
        places = list(dict.fromkeys(place for found in ops.values() for place in found))
        for first, second in combinations(places, 2):
            apart = {
                key: distance(lines[found[first]], lines[found[second]])
                for key, found in ops.items()
                if first in found and second in found
            }
            if apart:
                yield Divergence(model, first, second, _mean(apart))


def _mean(apart: Mapping[tuple[str, str], float]) -> Estimate:
    """The mean over ops. A distance does not count hits and misses: ops that agree on 1 leave no
    room."""
    mean = mean_over_ops((op, value) for (op, _), value in apart.items())
    assert mean is not None, apart
    low, high = mean.ends
    return mean if mean.ci95 is None else replace(mean, ci95=(low, min(high, 1.0)))


def _used(kernels: Mapping[str, Mapping[tuple[str, str], Mapping[AskedPlace, str]]]) -> set[str]:
    return {
        digest for ops in kernels.values() for found in ops.values() for digest in found.values()
    }


def _best(group: SampleGroup) -> Sample | None:
    """The fastest that is correct, or the first where none was timed."""
    return max(group.correct, key=lambda sample: sample.speedup or 0.0, default=None)


def _is_python(source: str) -> bool:
    try:
        python_tree(source)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
