"""Instructions for building the ported tree: ``BUILD.md`` for a maintainer, and ``plan.sh`` for
the machine that has the GPU."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.port.result import PortResult
from portkern.port.translate import single_source
from portkern.printable import printable
from portkern.records import atomic_write
from portkern.spec.safe_name import real_path


@dataclass(frozen=True)
class BuildNotes:
    """``sources`` and folders of ``include`` are from the tree; ``programs`` have a ``main``, which
    gets ``arguments``, and what each is ``linked`` with; ``relocatable``: files have device code of
    others; ``torch``: how the headers of PyTorch were had here, if any file includes them."""

    sources: tuple[str, ...]
    programs: tuple[str, ...]
    include: tuple[str, ...]
    defines: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    linked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relocatable: bool = False
    torch: str = ""

    @property
    def objects(self) -> list[str]:
        """Sources that are not part of a program."""
        parts = {name for others in self.linked.values() for name in others}
        return [name for name in self.sources if name not in parts.union(self.programs)]

    @property
    def flags(self) -> list[str]:
        return [f"-I{folder}" for folder in self.include] + [f"-D{item}" for item in self.defines]


def write(result: PortResult, notes: BuildNotes, folder: Path) -> None:
    if result.to == "cuda":
        atomic_write.write(folder / "BUILD.md", for_nvcc(result, notes))
    elif result.to == "hip":
        atomic_write.write(folder / "BUILD.md", markdown(result, notes))
        plan = folder / "plan.sh"
        atomic_write.write(plan, script(result, notes, folder))
        plan.chmod(0o755)


def markdown(result: PortResult, notes: BuildNotes) -> str:
    return "\n".join(
        [
            f"# Building {printable(result.name)} for AMD GPUs",
            "",
            "Files keep their names: hipcc takes `.cu` as HIP, and the patch stays small. Lines",
            f"are for ROCm 6 or newer, from the ported tree (`{printable(str(result.tree))}`).",
            "",
            *(_for_both() if result.style == "single_source" else ()),
            "## hipcc",
            "",
            *_indented(_hipcc(result.targets, notes)),
            *_of_torch(notes.torch),
            "",
            "## CMake (3.21 or newer)",
            "",
            *_indented(_cmake(result.targets, notes)),
            "",
            "## An extension of PyTorch (setup.py, a ROCm build of torch)",
            "",
            *_indented(_setup(result.targets, notes)),
            *_left_out(notes.left_out),
            "",
        ]
    )


def _of_torch(remark: str) -> list[str]:
    if not remark:
        return []
    return [
        "",
        "Files here include PyTorch's headers: the setup below knows where a ROCm build of torch",
        f"has them. Where this was written, {printable(remark)}.",
    ]


def for_nvcc(result: PortResult, notes: BuildNotes) -> str:
    numbers = [target.removeprefix("sm_") for target in result.targets]
    arch = [part for n in numbers for part in ("-gencode", f"arch=compute_{n},code=sm_{n}")]
    return "\n".join(
        [
            f"# Building {printable(result.name)} for NVIDIA GPUs",
            "",
            "Files keep their names, and the patch stays small: `-x cu` makes nvcc read `.hip` as",
            f"CUDA. From the ported tree (`{printable(str(result.tree))}`):",
            "",
            *_indented(_lines(["nvcc", "-x", "cu", "-O3", *arch], notes)),
            *_left_out(notes.left_out),
            "",
        ]
    )


def _for_both() -> list[str]:
    return [
        "CUDA's compiler takes the same files, by the lines that built them before: what it sees",
        f"of them has not changed. `{single_source.HEADER}` goes with them.",
        "",
    ]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {printable(line)}".rstrip() for line in lines]


def _hipcc(targets: Sequence[str], notes: BuildNotes) -> list[str]:
    arch = [f"--offload-arch={target}" for target in targets]
    relocatable = ["-fgpu-rdc"] if notes.relocatable else []
    lines = _lines(["hipcc", "-O3", *relocatable, *arch], notes)
    if notes.relocatable and notes.objects:
        lines.append(f"# objects are linked by: hipcc {' '.join(_LINKED)} *.o")
    return lines


def _lines(compiler: Sequence[str], notes: BuildNotes) -> list[str]:
    """One for each object and program."""
    made = [["-c", source, "-o", f"{Path(source).stem}.o"] for source in notes.objects]
    made += [[p, *notes.linked.get(p, ()), "-o", Path(p).stem] for p in notes.programs]
    lines = [shlex.join([*compiler, *notes.flags, *each]) for each in made]
    return lines or ["# no sources with kernels or launches"]


def _cmake(targets: Sequence[str], notes: BuildNotes) -> list[str]:
    listed = "\n    ".join(_cmake_text(source) for source in notes.sources)
    lines = [
        "project(ported LANGUAGES CXX HIP)",
        f"set(CMAKE_HIP_ARCHITECTURES {';'.join(targets)})",
        f"set(PORTED\n    {listed})",
        "set_source_files_properties(${PORTED} PROPERTIES LANGUAGE HIP)",
        "add_library(ported ${PORTED})",
    ]
    folders, macros = (" ".join(map(_cmake_text, n)) for n in (notes.include, notes.defines))
    lines += [f"target_include_directories(ported PUBLIC {folders})"] if folders else []
    lines += [f"target_compile_definitions(ported PRIVATE {macros})"] if macros else []
    if notes.relocatable:
        lines += [
            "target_compile_options(ported PRIVATE $<$<COMPILE_LANGUAGE:HIP>:-fgpu-rdc>)",
            f"target_link_options(ported PUBLIC {' '.join(_LINKED)})",
        ]
    return "\n".join(lines).split("\n")


#: Device code of several files is put together when these are linked.
_LINKED = ("-fgpu-rdc", "--hip-link")
_RELOCATABLE_SETUP = (
    '    extra_compile_args={"cxx": [], "nvcc": ["-fgpu-rdc"]},',
    f"    extra_link_args={list(_LINKED)!r},",
)


def _cmake_text(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"' if set(plain) & set(' ;"()#$\\') else plain


def _setup(targets: Sequence[str], notes: BuildNotes) -> list[str]:
    return [
        f"# PYTORCH_ROCM_ARCH='{';'.join(targets)}' pip install --no-build-isolation .",
        "CUDAExtension(  # builds HIP where torch is a ROCm build",
        '    name="ported",',
        f"    sources={list(notes.sources)!r},",
        f"    include_dirs={list(notes.include)!r},",
        f"    define_macros={[_macro(item) for item in notes.defines]!r},",
        *(_RELOCATABLE_SETUP if notes.relocatable else ()),
        ")",
    ]


def _macro(item: str) -> tuple[str, str | None]:
    name, mark, value = item.partition("=")
    return name, value if mark else None


def _left_out(files: Sequence[str]) -> list[str]:
    if not files:
        return []
    listed = [f"- `{printable(name)}`" for name in files[:50]]
    more = [f"- and {len(files) - 50} more"] if len(files) > 50 else []
    return [
        "",
        "## Not copied",
        "",
        "Too large for source; copy them if the build needs them.",
        "",
        *listed,
        *more,
    ]


def script(result: PortResult, notes: BuildNotes, folder: Path) -> str:
    """The script for a machine with the GPU: it builds the library's sources and programs there,
    runs programs and counter-examples, and holds what they print against what was recorded, if
    it was."""
    tree = Path(result.tree)
    where = tree.relative_to(folder) if tree.is_relative_to(folder) else real_path(tree)
    flags = shlex.join([*(["-fgpu-rdc"] if notes.relocatable else []), *notes.flags])
    objects = [f"object {shlex.quote(source)}" for source in notes.objects]
    programs = [
        f"linked=({shlex.join(notes.linked.get(source, ()))}); "
        + shlex.join(["program", source, *notes.arguments])
        if notes.linked
        else shlex.join(["program", source, *notes.arguments])
        for source in notes.programs
    ]
    return _PLAN.format(
        name=printable(result.name).replace("\n", " "),
        arch=result.targets[0] if result.targets else "gfx942",
        targets=" ".join(result.targets),
        tree=shlex.quote(str(where)),
        flags=flags,
        steps="\n".join([*objects, *programs]) or "# no sources with kernels",
    )


_PLAN = """\
#!/usr/bin/env bash
# {name} on a machine with one of: {targets}. Written by portkern port; needs hipcc (ROCm).
#   GPU=gfx90a ./plan.sh          another GPU; default: {arch}
# Copy this folder there. Exit code: how many steps failed. Logs: hardware/*.log
set -u
cd "$(dirname "$0")"
GPU="${{GPU:-{arch}}}"
HERE="$PWD"
TREE="$(cd {tree} && pwd)" || exit 2
OUT="$HERE/hardware"
mkdir -p "$OUT"
command -v hipcc > /dev/null || {{ echo "no hipcc on PATH: install ROCm" >&2; exit 2; }}
failed=0
linked=()  # what the next program is linked with

step() {{ # NAME COMMAND...
  local name="$1"; shift
  if (cd "$TREE" && "$@") > "$OUT/$name.log" 2>&1; then echo "ok      $name"
  else echo "FAILED  $name (hardware/$name.log)"; failed=$((failed + 1)); return 1; fi
}}
label() {{ printf '%s\\n' "${{1//\\//_}}"; }}
build() {{ hipcc -O3 --offload-arch="$GPU" {flags} "$@"; }}
object() {{ step "build-$(label "$1")" build -c "./$1" -o "$OUT/$(label "$1").o"; }}
stable() {{ # without what is the machine's: times, rates, names of devices
  grep -viE '(time|elapsed|[^a-z](ms|us|ns|sec(onds?)?|s)([^a-z]|$)|B/s|flop|device|gpu)' "$1"
}}
same() {{ diff <(stable "$1") <(stable "$2"); }}
program() {{ # SOURCE ARGUMENTS: built, run, and compared with expected/NAME.txt if that is there
  local source="$1" name; name="$(label "$1")"; shift
  step "build-$name" build "./$source" "${{linked[@]/#/./}}" -o "$OUT/$name.exe" || return
  step "run-$name" timeout "${{TIMEOUT_S:-300}}" "$OUT/$name.exe" "$@"
  if [ -f "$HERE/expected/$name.txt" ]; then
    step "same-$name" same "$HERE/expected/$name.txt" "$OUT/run-$name.log"
  fi
}}
case_file() {{ # one kernel with its inputs
  local name; name="$(label "$1")"
  step "build-$name" build -x hip "$HERE/$1" -o "$OUT/$name.exe" || return
  step "run-$name" timeout "${{TIMEOUT_S:-300}}" "$OUT/$name.exe"
}}

{steps}
while IFS= read -r file; do
  case_file "$file"
done < <(find cases -name 'case_*.hip' 2> /dev/null | sort)
echo "$failed steps failed"
exit $((failed > 125 ? 125 : failed))
"""
