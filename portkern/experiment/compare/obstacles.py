"""Counts replies in which something kept a model from answering: they say nothing of its skill."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from portkern.agent.llm.calls import Obstacle
from portkern.experiment.compare.sample import Sample

#: Told where more than this part of a model's samples ended so.
TOLD_ABOVE: Final = 0.02
#: The obstacle in words, and the option that mends it.
_WORDS: Final[dict[Obstacle, tuple[str, str]]] = {
    "cut": ("were cut off at max_tokens", "raise {settings}.max_tokens="),
    "refused": (
        "were refused by the model or its service",
        "look at a reply; another provider of the model may have other rules",
    ),
    "reasoning": (
        "hold thoughts and no answer",
        "raise {settings}.max_tokens=, or set {settings}.extra={{reasoning_effort: low}}",
    ),
    "tools": (
        "call tools that nobody offered",
        "set {settings}.extra={{tool_choice: none}}",
    ),
}


def notes(samples: Sequence[Sample]) -> Iterator[str]:
    """A note for each model and obstacle that more than :data:`TOLD_ABOVE` of its samples met."""
    for model in dict.fromkeys(sample.model for sample in samples):
        own = [sample for sample in samples if sample.model == model and sample.evaluated]
        counts = Counter(sample.obstacle for sample in own if sample.obstacle)
        for obstacle, count in counts.most_common():
            if count > TOLD_ABOVE * len(own):
                words, remedy = _WORDS[obstacle]
                yield (
                    f"{model}: {count} of {len(own)} replies ({100 * count / len(own):.0f} %) "
                    f"{words}, which is not a matter of skill and counts as not correct; "
                    f"{remedy.format(settings=f'settings.{model}')}."
                )
