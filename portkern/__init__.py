"""portkern takes one operator and gives a verified, measured kernel for every accelerator."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from portkern.api import check, matrix
    from portkern.deploy.apply import apply
    from portkern.report.notebook import NotebookReport as Report
    from portkern.spec.from_torch.declaration import operator
    from portkern.spec.op import Op

__all__ = ["Op", "Report", "apply", "check", "matrix", "operator"]
#: What files import from here, and where it is.
_PUBLIC = {
    "Op": "portkern.spec.op:Op",
    "Report": "portkern.report.notebook:NotebookReport",
    "apply": "portkern.deploy.apply:apply",
    "check": "portkern.api:check",
    "matrix": "portkern.api:matrix",
    "operator": "portkern.spec.from_torch.declaration:operator",
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: most that is imported from here are modules."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    module, _, its_name = _PUBLIC[name].partition(":")
    return getattr(importlib.import_module(module), its_name)


def _quiet_libraries() -> None:
    """Settings that libraries read once, when they are imported; the user's own values stay.

    Nothing here may call home, and litellm's price map, fetched at import, can deadlock
    ``mlflow server`` on a machine without a network.
    """
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    settings = {
        "DO_NOT_TRACK": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_MODE": "PRODUCTION",  # otherwise the import also reads the .env of the folder
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is for --json
        "POCL_CACHE_DIR": f"{user_cache}/portkern/pocl",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)


_quiet_libraries()
