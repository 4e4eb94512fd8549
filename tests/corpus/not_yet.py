"""The cheats that today's evaluator lets pass, each with what it would take to catch it."""

from __future__ import annotations

NOT_YET: dict[str, str] = {}
