"""The cheats that today's evaluator lets pass, each with what it would take to catch it.

A case whose verdict changes leaves this table, and its header then names the reason given.
"""

from __future__ import annotations

NOT_YET: dict[str, str] = {}

#: The cheats of ``gpu/cheats`` that pass on a GPU.
NOT_YET_ON_GPU: dict[str, str] = {}
