"""The place where one run of a port builds: a folder, and compilers that see it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port import stand_ins
from portkern.port.library import Library
from portkern.port.request import PortRequest
from portkern.toolchain.source_view import SourceView, project


class Workshop:
    """Threads may share it. ``compilers`` see what is built here, the library and its port, and
    what the user names; of the checkout that the library is in, and of folders that its build
    files name, the sources that are included."""

    def __init__(self, request: PortRequest, read: Library, ported: Path) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="portkern-port-")
        self._folder = Path(self._place.name)
        self._folder.chmod(0o755)  # in the jail, root's processes are nobody's
        whole = (self._folder, stand_ins.home(), read.root, ported, *request.include)
        linked = (file.parent for listed in read.programs for file in listed)
        view = SourceView.of([], whole, [*read.include, project(read.root), *linked])
        self.compilers = JailedCompilers(view)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.compilers.close()
        self._place.cleanup()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """New, and gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            Path(name).chmod(0o755)
            yield Path(name)
