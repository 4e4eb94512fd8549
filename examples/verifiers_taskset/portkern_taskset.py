"""portkern's operators, where *verifiers* looks for a taskset: by a module's name."""

from portkern.env.verifiers_taskset import KernelTaskset

__all__ = ["KernelTaskset"]
