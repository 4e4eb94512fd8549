"""The packages that a machine which runs plans needs beside toolchains."""

from __future__ import annotations

from importlib.util import find_spec

from portkern.errors import BackendUnavailable

#: Modules, and what pip calls them.
NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "pydantic": "pydantic",
    "yaml": "pyyaml",
    "elftools": "pyelftools",
    "psutil": "psutil",
    "filelock": "filelock",
    "pynvml": "nvidia-ml-py",
    "tree_sitter": "tree-sitter",
    "tree_sitter_cuda": "tree-sitter-cuda",
}


def check() -> None:
    """Raises BackendUnavailable with what is not here, as pip calls it."""
    lacking = " ".join(package for module, package in NEEDED.items() if find_spec(module) is None)
    if lacking:
        raise BackendUnavailable(
            f"This machine lacks what a plan needs to run: {lacking}; carry wheels of these here "
            f"(pip download {lacking}), or install them where there is a network"
        )
