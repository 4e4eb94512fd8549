"""The client of an OpenEnv server of kernels; ``.sync()`` makes it one for plain code."""

from __future__ import annotations

from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient

from portkern.env.openenv_types import KernelAction, KernelObservation, KernelState


class KernelClient(EnvClient[KernelAction, KernelObservation, KernelState]):
    """Takes and gives what the server's environment does, as its own types."""

    def _step_payload(self, action: KernelAction) -> dict[str, Any]:
        return {"reply": action.reply}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[KernelObservation]:
        reward, done = payload.get("reward"), bool(payload.get("done"))
        said = {**payload.get("observation", {}), "reward": reward, "done": done}
        return StepResult(KernelObservation.model_validate(said), reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> KernelState:
        state: KernelState = KernelState.model_validate(payload)
        return state
