"""Kernels of one instruction each, assembled by the HIP compiler's assembler and executed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from portkern.errors import BuildError
from portkern.isa.executor import LaunchBuffer, ObjectProgram
from portkern.isa.finding import ObjectRan
from portkern.spec.backend import Missing
from portkern.toolchain.run_tool import run_tool

from .instructions import PROCESSORS
from .values import Words

#: Words of a lane: 2 of each of two sources, 4 of the third, 4 of what the destination holds
#: before, whether its carry is set, whether it is active.
INPUTS, OUTPUTS = 16, 16
CARRY, ACTIVE = 12, 13
ASSEMBLE_S = 300.0
_ERROR = re.compile(r":(\d+):\d+: error: ")


@dataclass(frozen=True)
class Style:
    """How a family writes what a kernel does around the instruction."""

    wave: int
    load: str
    store: str
    scalar: str
    wait: str
    group: str
    local: tuple[str, str]

    @property
    def pair(self) -> int:
        return 2 if self.wave == 64 else 1

    def mask(self, first: int) -> str:
        return f"s[{first}:{first + 1}]" if self.wave == 64 else f"s{first}"

    @property
    def size(self) -> str:
        return "b64" if self.wave == 64 else "b32"

    @property
    def vcc(self) -> str:
        return "vcc" if self.wave == 64 else "vcc_lo"

    @property
    def exec(self) -> str:
        return "exec" if self.wave == 64 else "exec_lo"


_LOCAL = ("ds_load_b128", "ds_store_b128")
STYLES = {
    "cdna": Style(
        *(64, "global_load_dwordx4", "global_store_dwordx4", "dword", "s_waitcnt 0", "s2"),
        ("ds_read_b128", "ds_write_b128"),
    ),
    "rdna3": Style(
        *(32, "global_load_b128", "global_store_b128", "b", "s_waitcnt 0", "s2"), _LOCAL
    ),
    "rdna4": Style(
        *(32, "global_load_b128", "global_store_b128", "b"),
        "s_wait_loadcnt 0\ns_wait_dscnt 0\ns_wait_kmcnt 0\ns_wait_storecnt 0",
        *("ttmp9", _LOCAL),
    ),
}


def vector_body(
    style: Style, line: str, *, mask_in_vcc: bool, before: str = "", after: str = ""
) -> list[str]:
    """A kernel that gives each lane its sources, and stores what is left afterwards."""
    four = "dwordx4" if style.wave == 64 else "b128"
    body = [
        f"s_load_{four} s[4:7], s[0:1], 0x0",
        f"s_load_{'dwordx2' if style.wave == 64 else 'b64'} s[8:9], s[0:1], 0x10",
        style.wait,
        f"s_mul_i32 s3, {style.group}, {style.wave}",
        "v_and_b32_e32 v28, 0x3ff, v0",
        "v_add_u32_e32 v2, s3, v28" if style.wave == 64 else "v_add_nc_u32_e32 v2, s3, v28",
        "v_lshlrev_b32_e32 v3, 6, v2",
        *(f"{style.load} v[{32 + k}:{35 + k}], v3, s[4:5] offset:{4 * k}" for k in (0, 4, 8, 12)),
        # A cell of memory and two of LDS for each lane.
        "v_lshlrev_b32_e32 v30, 5, v2",
        "v_lshlrev_b32_e32 v29, 4, v28",
        "v_mov_b32_e32 v26, s8",
        "v_mov_b32_e32 v27, s9",
        style.wait,
        *_wide_add(style),
        f"{style.local[1]} v29, v[36:39]",
        f"{style.local[1]} v29, v[32:35] offset:1024",
        style.wait,
        f"v_cmp_ne_u32_e64 {style.mask(22)}, 0, v44",
        f"v_cmp_ne_u32_e64 {style.mask(24)}, 0, v45",
        f"s_mov_{style.size} {style.vcc}, {style.mask(22)}",
        f"s_mov_{style.size} {style.mask(20)}, {style.mask(22)}",
        "s_mov_b32 m0, 0x10000",
        *before.replace("{wait}", style.wait).splitlines(),
        *("s_nop 4",) * 2,
        f"s_mov_{style.size} {style.exec}, {style.mask(24)}",
        *("s_nop 4",) * 2,
        line,
        style.wait,
        *("s_nop 4",) * 2,
        *after.replace("{wait}", style.wait).splitlines(),
        *("s_nop 15",) * 2,
        f"s_mov_{style.size} {style.mask(26)}, {style.exec}",
        f"s_mov_{style.size} {style.exec}, -1",
        f"s_mov_{style.size} {style.mask(20)}, {style.vcc}" if mask_in_vcc else "s_nop 0",
        *("s_nop 4",) * 2,
        f"v_cndmask_b32_e64 v48, 0, 1, {style.mask(20)}",
        f"v_cndmask_b32_e64 v49, 0, 1, {style.mask(26)}",
        "v_mov_b32_e32 v50, 0",
        "v_mov_b32_e32 v51, 0",
        f"{style.local[0]} v[52:55], v29",
        f"{style.local[0]} v[56:59], v29 offset:1024",
        style.wait,
        f"{style.store} v3, v[40:43], s[6:7]",
        f"{style.store} v3, v[48:51], s[6:7] offset:16",
        f"{style.store} v3, v[52:55], s[6:7] offset:32",
        f"{style.store} v3, v[56:59], s[6:7] offset:48",
        "s_endpgm",
    ]
    return body


def _wide_add(style: Style) -> list[str]:
    """v[26:27] becomes the address of the lane's cell in memory."""
    add, ci = (
        ("v_add_co_u32_e32", "v_addc_co_u32_e32")
        if style.wave == 64
        else ("v_add_co_u32_e64", "v_add_co_ci_u32_e32")
    )
    return [
        f"{add} v26, {style.vcc}, v26, v30",
        f"{ci} v27, {style.vcc}, 0, v27, {style.vcc}",
    ]


def scalar_body(style: Style, line: str) -> list[str]:
    """A kernel of one lane: sources in s[32:33] and s[34:35], the destination in s[40:41], SCC, VCC
    and EXEC given; stores the destination, SCC, EXEC and VCC."""
    wide = style.wave == 64
    names = ("dwordx4", "dwordx16", "dwordx2") if wide else ("b128", "b512", "b64")
    return [
        f"s_load_{names[0]} s[4:7], s[0:1], 0x0",
        f"s_load_{names[2]} s[8:9], s[0:1], 0x10",
        style.wait,
        f"s_lshl_b32 s3, {style.group}, 6",
        "s_add_u32 s4, s4, s3",
        "s_addc_u32 s5, s5, 0",
        f"s_load_{names[1]} s[32:47], s[4:5], 0x0",
        "v_mov_b32_e32 v3, s3",
        "s_add_u32 s8, s8, s3",
        "s_addc_u32 s9, s9, 0",
        style.wait,
        "s_mov_b64 vcc, s[36:37]",
        f"s_mov_{style.size} {style.exec}, {style.mask(38)}",
        "s_cmp_lg_u32 s44, 0",
        "s_nop 4",
        line,
        style.wait,
        f"s_mov_{style.size} {style.mask(26)}, {style.exec}" if wide else "s_mov_b32 s26, exec_lo",
        "s_cselect_b32 s20, 1, 0",
        "s_mov_b32 s27, exec_hi" if wide else "s_mov_b32 s27, 0",
        f"s_mov_{style.size} {style.exec}, 1",
        "s_nop 4",
        *(f"v_mov_b32_e32 v{40 + k}, s{40 + k}" for k in range(4)),
        "v_mov_b32_e32 v48, s20",
        "v_mov_b32_e32 v49, s26",
        "v_mov_b32_e32 v50, s27",
        "v_mov_b32_e32 v51, vcc_lo",
        f"{style.store} v3, v[40:43], s[6:7]",
        f"{style.store} v3, v[48:51], s[6:7] offset:16",
        "s_endpgm",
    ]


_KERNEL = """\
.globl {name}
.p2align 8
.type {name},@function
{name}:
"""
_LDS = 8192


def descriptor(name: str, family: str, *, ieee: bool = True) -> str:
    wave = PROCESSORS[family][1]
    lines = [
        f".amdhsa_kernel {name}",
        ".amdhsa_next_free_vgpr 128",
        ".amdhsa_next_free_sgpr 96",
        ".amdhsa_user_sgpr_kernarg_segment_ptr 1",
        ".amdhsa_system_sgpr_workgroup_id_x 1",
        f".amdhsa_group_segment_fixed_size {_LDS}",
        ".amdhsa_private_segment_fixed_size 64",
        ".amdhsa_float_denorm_mode_32 3",
    ]
    if family == "cdna":
        lines.append(".amdhsa_accum_offset 128")
    else:
        lines.append(f".amdhsa_wavefront_size32 {int(wave == 32)}")
    if family != "rdna4" and not ieee:
        lines.append(".amdhsa_ieee_mode 0")
    return "\n".join([*lines, ".end_amdhsa_kernel", ""])


def metadata(name: str, wave: int) -> str:
    pointers = ", ".join(
        f"{{.offset: {at}, .size: 8, .value_kind: global_buffer, .address_space: global}}"
        for at in (0, 8, 16)
    )
    return (
        f"  - {{.name: {name}, .symbol: {name}.kd, .kernarg_segment_size: 24, "
        f".group_segment_fixed_size: {_LDS}, .private_segment_fixed_size: 64, "
        f".kernarg_segment_align: 8, .wavefront_size: {wave}, .sgpr_count: 96, .vgpr_count: 128, "
        f".max_flat_workgroup_size: 64, .args: [{pointers}]}}\n"
    )


class Assembler:
    """The HIP compiler's assembler for one processor. Raises BackendUnavailable-like SystemExit
    where there is none."""

    def __init__(self, family: str, processor: str | None = None) -> None:
        self.family, self.style = family, STYLES[family]
        self.processor = processor or PROCESSORS[family][0]
        clang = import_module("portkern.backends.hip.clang")
        found = clang.find()
        if isinstance(found, Missing):
            raise SystemExit(str(found))
        self._zig: Path = found.zig
        self._environment = clang.environment
        self._folder = Path(tempfile.mkdtemp(prefix="fidelity-"))

    def refused(self, lines: Sequence[str]) -> set[int]:
        """Numbers of the lines that the assembler does not know for this processor."""
        bad: set[int] = set()
        while True:  # its log is kept to a length
            kept = ("" if k in bad else line for k, line in enumerate(lines))
            log = self._assembled("\n".join([self._head, *kept, ""]))
            found = {int(number) - 3 for number in _ERROR.findall(log)}
            if not found:
                return bad
            bad |= found

    @property
    def _head(self) -> str:
        return f'.amdgcn_target "amdgcn-amd-amdhsa--{self.processor}"\n.text'

    def _assembled(self, text: str) -> str:
        """Assembles to ``all.o``; the errors, or nothing."""
        source = self._folder / "all.s"
        source.write_text(text, encoding="utf-8")
        argv: list[str | Path] = [self._zig, "clang", "--target=amdgcn-amd-amdhsa"]
        argv += [f"-mcpu={self.processor}", "-mcode-object-version=6", "-ferror-limit=0"]
        argv += ["-c", source, "-o", source.with_suffix(".o")]
        try:
            environment = self._environment(self._folder)
            run_tool(argv, whose="own", timeout_s=ASSEMBLE_S, cwd=self._folder, env=environment)
        except BuildError as error:
            return error.log or str(error)
        return ""

    def program(self, kernels: Mapping[str, Sequence[str]]) -> ObjectProgram:
        """One code object with a kernel for each name."""
        wave = PROCESSORS[self.family][1]
        parts = [f"{self._head}\n"]
        for name, body in kernels.items():
            parts.append(_KERNEL.format(name=name) + "\n".join(body) + "\n")
        parts.append(".rodata\n.p2align 6\n")
        parts += (descriptor(name, self.family) for name in kernels)
        parts.append(".amdgpu_metadata\n---\namdhsa.version: [1, 2]\namdhsa.kernels:\n")
        parts += (metadata(name, wave) for name in kernels)
        parts.append("...\n.end_amdgpu_metadata\n")
        if log := self._assembled("".join(parts)):
            raise BuildError(f"not assembled: {log[:2000]}")
        built = self._folder / "all.hsaco"
        link: list[str | Path] = [self._zig, "ld.lld", "-shared", built.with_suffix(".o"), "-o"]
        environment = self._environment(self._folder)
        run_tool(
            [*link, built], whose="own", timeout_s=ASSEMBLE_S, cwd=self._folder, env=environment
        )
        return ObjectProgram(built)


@dataclass
class Result:
    """The values that lanes held afterwards, their cells of memory, and how the launch ended."""

    words: Words
    memory: Words
    ran: ObjectRan


def launch(program: ObjectProgram, kernel: str, given: Words, memory: Words, lanes: int) -> Result:
    """Runs ``kernel`` on rows of ``given``, ``lanes`` of them in a group."""
    count = len(given)
    out = np.zeros((count, OUTPUTS), np.uint32)
    cells = memory.copy()
    arrays = (given, out, cells)
    ran = program.run(
        kernel,
        [array.ctypes.data.to_bytes(8, "little") for array in arrays],
        (count // lanes, 1, 1),
        (lanes, 1, 1),
        buffers=[LaunchBuffer(array.ctypes.data, array.nbytes) for array in arrays],
    )
    return Result(out, cells, ran)
