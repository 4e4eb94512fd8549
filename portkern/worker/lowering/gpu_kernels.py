"""The common parts of all GPU kernels that are written from loops: parameters, a launch,
registers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from portkern.worker.lowering import source
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.schedule import Group
from portkern.worker.lowering.source import Interface
from portkern.worker.lowering.stages import Loops

_NAME = re.compile(r"[A-Za-z_]\w*")


class GpuKernels:
    """``$name`` in what is written is a local's, which no tensor and no axis has."""

    def __init__(self, loops: Loops, lengths: Lengths, interface: Interface) -> None:
        self.loops, self.lengths, self.interface = loops, lengths, interface
        self.taken = interface.taken
        self.known = {name: f"{kind}*" for kind, name, _ in interface.pointers}
        self.known |= {buffer.name: f"{buffer.kind}*" for buffer in loops.buffers}
        self.known |= {name: f"const {kind}" for kind, name, _ in interface.numbers}

    def _function(
        self, name: str, lines: Sequence[str], bounds: str, more: Sequence[str] = ()
    ) -> tuple[str, list[str]]:
        """The kernel around ``lines``, and the names that it is called with; ``more``: parameters
        of its own."""
        lines = source.named(lines, frozenset(self.known))
        used = set(_NAME.findall("\n".join(lines)))
        given = [one for one in self.known if one in used and one not in self.loops.own]
        own = [f"{self.known[one]} {one}" for one in given]
        parameters = ", ".join([*own, *source.named(more, frozenset(self.known))])
        head = f"static __global__ void __launch_bounds__({bounds}) {name}({parameters}) {{"
        return "\n".join([head, *lines, "}", ""]), given

    def _launch(
        self, name: str, given: Sequence[str], *, blocks: str, each: str, threads: str
    ) -> list[str]:
        """``blocks``: how much there is, of which a block does ``each``."""
        lines = [
            f"  if (const int64_t $count = {blocks}; $count > 0) {{",
            f"    const int64_t $blocks = ($count + {each} - 1) / ({each});",
            f"    {name}<<<(unsigned)($blocks < 65535 ? $blocks : 65535), {threads}, 0, stream>>>("
            f"{', '.join(given)});",
            "  }",
        ]
        return source.named(lines, frozenset(self.known))

    def _private(self, group: Group) -> list[str]:
        """Registers."""
        names = {stage.buffer for stage in group.stages}
        return [
            f"{buffer.kind} {buffer.name}[1];"
            for buffer in self.loops.buffers
            if buffer.name in names and buffer.name in self.loops.own
        ]
