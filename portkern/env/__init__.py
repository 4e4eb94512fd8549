"""Environments that models learn in: text or decisions in, a reward from evaluated kernels out."""

from portkern.env.kernel_env import KernelEnv
from portkern.env.macro_env import Decisions, MacroEnv
from portkern.env.place import EvaluationPlace
from portkern.env.trl_reward import trl_reward
from portkern.learn.rewards import Unavailable

__all__ = [
    "Decisions",
    "EvaluationPlace",
    "KernelEnv",
    "MacroEnv",
    "Unavailable",
    "trl_reward",
]
