"""Nodes of a Ray cluster. Ray finds them, carries slices and answers, and notices losses; which
slice goes to which node is the driver's to decide."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from portkern.errors import BackendUnavailable, ConfigError
from portkern.execution import node as remote
from portkern.execution.dispatch import ExecutionNode, Lost, cause, said
from portkern.execution.installation import Portkern
from portkern.execution.node import OWNER

#: Seconds in which a cluster's head takes a connection.
CONNECT_S = 5.0
#: The answer of a node that did not say what it is at its arrival.
NO_ANSWER = "it does not say what it is"


class RayFleet:
    """The cluster at ``address``, or one that is started here and ends with it when that is empty.
    Raises BackendUnavailable where Ray is not installed or nobody answers."""

    def __init__(self, address: str = "", note: Callable[[str], None] = lambda _: None) -> None:
        if find_spec("ray") is None:
            raise BackendUnavailable("Ray is not installed; pip install 'portkern[ray]'")
        _answers(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray, self._note = ray, note
        self.refused: dict[str, str] = {}
        self._accepted: dict[str, ExecutionNode] = {}
        self._asked: dict[str, object] = {}
        self._gpus: dict[str, float] = {}
        started = {} if address else {"resources": remote.resources(), "include_dashboard": False}
        try:
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                **started,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = " ".join(str(error).split())[:300]
            raise BackendUnavailable(f"No Ray cluster at {address or 'local'}: {why}") from error

    def __enter__(self) -> RayFleet:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @property
    def settled(self) -> bool:
        return not self._asked

    def nodes(self) -> Sequence[ExecutionNode]:
        """The nodes that live and have been accepted; new ones are asked what they are."""
        alive = {entry["NodeID"]: entry for entry in self._ray.nodes() if entry["Alive"]}
        for node_id, entry in alive.items():
            if OWNER in entry["Resources"]:
                self._ask(node_id, entry)
        if self._asked:
            ready, _ = self._ray.wait(list(self._asked.values()), num_returns=1, timeout=0)
            for node_id in [n for n, ref in self._asked.items() if ref in ready]:
                self._hear(node_id, alive.get(node_id))
        return [node for node_id, node in self._accepted.items() if node_id in alive]

    def _ask(self, node_id: str, entry: Mapping[str, Any]) -> None:
        if node_id in self._accepted or node_id in self._asked or node_id in self._gpus:
            return
        self._gpus[node_id] = entry["Resources"].get("GPU", 0.0)
        self._asked[node_id] = self._call(remote.describe, node_id)

    def _hear(self, node_id: str, entry: Mapping[str, Any] | None) -> None:
        asked = self._asked.pop(node_id)
        if entry is None:
            return
        name = f"{said(entry['NodeName'])} ({node_id[:8]})"
        try:
            description = self._ray.get(asked)
            theirs = Portkern.model_validate_json(description["portkern"])
        except Exception as error:  # noqa: BLE001 - as in result
            self._refuse(name, f"{NO_ANSWER}: {cause(error)}")
            return
        if theirs != Portkern.here():
            self._refuse(name, f"it has {said(theirs)}, this is {Portkern.here()}")
            return
        targets = frozenset(set(entry["Resources"]) & set(_all_targets()))
        self._accepted[node_id] = ExecutionNode(node_id, name, targets)

    def _refuse(self, name: str, why: str) -> None:
        self.refused[name] = why
        self._note(f"the node {name} is refused: {why}; install the same portkern there")

    def submit(self, node: ExecutionNode, document: str) -> object:
        """Sends a document to a node, as its one owner and that of all its GPUs, which Ray shows to
        owners only."""
        claimed = {"resources": {OWNER: 1}, "num_gpus": self._gpus[node.id]}
        return self._call(remote.run_slice, node.id, document, **claimed)

    def _call(
        self, function: Callable[..., object], node_id: str, *given: object, **claimed: object
    ) -> object:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task = self._ray.remote(function)
        options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": there, **claimed}
        return task.options(**options).remote(*given)

    def begun(self, handle: object) -> bool:
        """True at once, as it was sent to a node that had nothing else to do."""
        return True

    def wait(self, handles: Sequence[object], timeout_s: float) -> Collection[object]:
        ended, _ = self._ray.wait(list(handles), num_returns=1, timeout=timeout_s)
        answer: list[object] = list(ended)
        return answer

    def result(self, handle: object) -> object | Lost:
        try:
            answer: object = self._ray.get(handle)
        except Exception as error:  # noqa: BLE001 - whatever its exceptions raise as they are read
            return Lost(cause(error))
        return answer

    def cancel(self, handle: object) -> None:
        self._ray.cancel(handle, force=True)


def _answers(address: str) -> None:
    """Ray itself tries for minutes. Raises ConfigError and BackendUnavailable."""
    if not address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"Got address={address}, expected HOST:PORT of a Ray cluster's head")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise BackendUnavailable(
            f"No Ray cluster at {address}: {error}; 'portkern node' starts one"
        ) from error


def _all_targets() -> list[str]:
    from portkern.spec import target

    return target.names()
