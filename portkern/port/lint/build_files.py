"""Flags in CMake files, makefiles and setup.py that mean something else to AMD's compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import Source

_HANDLES_AMD = re.compile(
    r"--offload-arch=(?!native)|HIP_ARCHITECTURES\s+[^n]|PYTORCH_ROCM_ARCH|GPU_TARGETS|AMDGPU_TARGETS"
    r"|version\.hip|IS_ROCM|ROCM_HOME|USE_ROCM|USE_HIP\b|enable_language\s*\(\s*HIP|LANGUAGES[^)]*HIP"
)
_FLAGS = (
    (
        "PK025",
        r"-{1,2}maxrregcount(?:[=\s\"',]+\w+)?",
        "amdclang has no such flag; use launch bounds",
        None,
    ),
    (
        "PK025",
        r"-?-?amdgpu-num-vgpr\b",
        "counts accumulation registers too; use amdgpu_waves_per_eu",
        None,
    ),
    ("PK032", r"-{1,2}fmad=\w+", "clang's is -ffp-contract=off", None),
    (
        "PK033",
        r"-{1,2}ftz=true|-fgpu-flush-denormals-to-zero",
        "flushes subnormals; test with them",
        None,
    ),
    (
        "PK033",
        r"-{1,2}use_fast_math",
        "flushes subnormals on NVIDIA; -ffast-math does other things",
        None,
    ),
    (
        "PK035",
        r"-munsafe-fp-atomics",
        "loses updates in fine-grained or host memory",
        None,
    ),
)
_NATIVE = re.compile(
    r"-arch=native|--offload-arch=native|CMAKE_(?:CUDA|HIP)_ARCHITECTURES[\s\"=]+native"
)
_NVIDIA = re.compile(
    r"-arch[=\s]+sm_\w+|-gencode\b[=\s]*\S*|--generate-code\S*|-code=sm_\w+|arch=compute_\w+"
    r"|CMAKE_CUDA_ARCHITECTURES[\s=\"]+[\w;\s]*\d+|CUDA_ARCHITECTURES\s+\"?[\d;]+|TORCH_CUDA_ARCH_LIST\S*"
)


def flags(source: Source, platform: Platform) -> Iterator[Match]:
    """PK025, PK032, PK033, PK035: flags by name."""
    if not source.build_file or not platform.amd:
        return
    for code, pattern, meaning, level in _FLAGS:
        for match in re.finditer(rf"(?<![\w-])(?:{pattern})", source.quoted):
            yield Match(code, match.start(), f"{match[0]} {meaning}", level)


def architectures(source: Source, platform: Platform) -> Iterator[Match]:
    """PK055: which devices a build is for."""
    if not source.build_file or not platform.amd:
        return
    for match in _NATIVE.finditer(source.quoted):
        message = f"{match[0]} builds for this machine's device alone; list the targets"
        yield Match("PK055", match.start(), message)
    if not _HANDLES_AMD.search(source.quoted):
        for match in _NVIDIA.finditer(source.quoted):
            arch = str(platform.target.arch) if platform.target else "gfx942"
            message = f"{match[0].strip()} means nothing to hipcc; use --offload-arch={arch}"
            yield Match("PK055", match.start(), message)
            break


RULES: tuple[Rule, ...] = (flags, architectures)
