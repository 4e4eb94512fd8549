"""Messages between an OpenEnv server of kernels and its client."""

from __future__ import annotations

from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class KernelAction(Action):
    """A model's whole reply, with a kernel in it."""

    reply: str


class KernelObservation(Observation):
    """``text`` is the prompt after a reset, then what became of the kernel; ``verdicts`` are by
    place."""

    text: str = ""
    verdicts: dict[str, str] = Field(default_factory=dict)


class KernelState(State):
    """The episode's operator, and where a kernel of it has to be right."""

    op: str = ""
    places: tuple[str, ...] = ()
