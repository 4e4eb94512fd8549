"""Kernels in strings: each is ported as a file of its own, and put back where it stood."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from portkern.cuda_source import strings
from portkern.cuda_source.strings import KernelText
from portkern.port.kernel_port import KernelPort
from portkern.port.library import HostFile
from portkern.port.request import PortRequest
from portkern.port.result import FileResult, PortResult
from portkern.port.tree import PortedFile
from portkern.records import atomic_write

#: Folders of the run: the sources that strings hold, their port, and the records of it.
_SOURCES, _TREE, _RECORDS = "strings", "strings-ported", "strings-records"


@dataclass(frozen=True)
class Strings:
    """The strings of a library's host files that are ported, by the names of their files."""

    folder: Path
    places: Mapping[str, tuple[HostFile, KernelText]]

    def request(self, whole: PortRequest) -> PortRequest:
        """A port of them alone, without what is the library's: its programs and cases."""
        return replace(
            whole,
            path=self.folder / _SOURCES,
            out=self.folder / _TREE,
            in_place=False,
            fresh=True,
            avoid=(),
            arguments=(),
            case=None,
        )

    @property
    def records(self) -> Path:
        return self.folder / _RECORDS

    def joined(self, own: PortResult, of_strings: PortResult) -> PortResult:
        """Both results, with kernels, hazards and words under the names of the host files."""
        files = (replace(file, path=self._host(file.path)) for file in of_strings.files)
        return replace(
            own,
            files=(*own.files, *files),
            ports=(*own.ports, *map(self._renamed, of_strings.ports)),
            problems=(*own.problems, *map(self._host, of_strings.problems)),
            notes=(*own.notes, *map(self._host, of_strings.notes)),
        )

    def ported(self, own: Sequence[PortedFile]) -> tuple[list[PortedFile], list[FileResult]]:
        """The library's files with the strings of their host files as their port has them, and
        what could not be put back."""
        files = {file.path: file for file in own}
        problems: list[FileResult] = []
        hosts = {host.path: host for host, _ in self.places.values()}
        for path, host in hosts.items():
            before = host.data
            text = host.decoded(files[path].after if path in files else before)
            now = strings.of_python(text) if host.python else strings.of_cxx(text)
            for old, place in reversed(list(zip(host.strings, now, strict=False))):
                done = None if old.problem else self._changed(host, old, text, place)
                if not old.problem and done is None:
                    why = "the port of a kernel in a string does not fit its place; by hand"
                    problems.append(FileResult(str(path), 0, 0, problem=why, line=old.line))
                text = done if done is not None else text
            files[path] = PortedFile(path, before, host.encoded(text))
        return list(files.values()), problems

    def _changed(self, host: HostFile, old: KernelText, text: str, place: KernelText) -> str | None:
        changed = (self.folder / _TREE / name_of(host, old)).read_text("utf-8")
        lines = strings.alone(host.text, old).count("\n")
        moved = text.count("\n") - lines  # a header that the host's translation took in
        return strings.put_back(text, place, "\n" * moved + changed)

    def _renamed(self, port: KernelPort) -> KernelPort:
        proof = port.proof.model_copy(
            update={
                "why": self._host(port.proof.why),
                "findings": tuple(map(self._host, port.proof.findings)),
                "original_findings": tuple(map(self._host, port.proof.original_findings)),
            }
        )
        update = {"path": self._host(port.path), "not_built": self._host(port.not_built)}
        return port.model_copy(update={**update, "proof": proof})

    def _host(self, said: str) -> str:
        for name, (host, _) in self.places.items():
            said = said.replace(name, host.path.as_posix())
        return said


def name_of(host: HostFile, place: KernelText) -> str:
    return f"{host.path.as_posix()}.{place.line}.cu"


def prepared(hosts: Sequence[HostFile], folder: Path) -> Strings | None:
    """The strings as files in the run's folder; None where there are none."""
    places = {
        name_of(host, place): (host, place)
        for host in hosts
        for place in host.strings
        if not place.problem
    }
    shutil.rmtree(folder / _SOURCES, ignore_errors=True)
    for name, (host, place) in places.items():
        atomic_write.write(folder / _SOURCES / name, strings.alone(host.text, place).encode())
    return Strings(folder, places) if places else None


def refused(hosts: Sequence[HostFile]) -> Iterator[FileResult]:
    """Results for the strings whose kernels are not ported, each with the reason."""
    for host in hosts:
        for place in host.strings:
            if place.problem:
                yield FileResult(str(host.path), 0, 0, problem=place.problem, line=place.line)
