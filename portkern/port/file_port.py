"""The kernels of one file: built for each target, proven, and what is known of each then."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from portkern.cuda_source import syntax
from portkern.cuda_source.syntax import SourceKernel
from portkern.port import (
    device_build,
    first_headers,
    kernels_alone,
    partial_build,
    stand_ins,
    torch_headers,
    tree,
)
from portkern.port.device_build import DeviceBuilt, KernelResources, NotBuilt
from portkern.port.kernel_port import NOT_ASKED, KernelPort, PortResources, ProofLine
from portkern.port.library import Library
from portkern.port.once import Once
from portkern.port.proof import ProofSource
from portkern.port.proving import Prover
from portkern.port.request import PortRequest
from portkern.port.torch_headers import TorchHeaders
from portkern.port.translated import TranslatedFile
from portkern.port.workshop import Workshop
from portkern.simt.execute.machine import Language
from portkern.spec.target import Target

#: A header's kernels are looked for in the first so many sources that include it.
_MOST_UNITS = 4
_STAND_INS = "host code was read by stand-ins of the headers of"
_NOT_ASKED = ProofLine(outcome=NOT_ASKED)


class FilePorter:
    """Threads may share it: what several files need, such as the object of a source that includes
    them, is made once."""

    def __init__(
        self,
        request: PortRequest,
        read: Library,
        files: Mapping[PurePosixPath, TranslatedFile],
        ported: Path,
        run: Path,
        shop: Workshop,
    ) -> None:
        self._shop = shop
        self._request, self._read, self._files, self._ported = request, read, files, ported
        self._objects = Once[tuple[PurePosixPath, Target], DeviceBuilt | NotBuilt](self._build)
        self._prover = Prover(request, read, files, ported, run, shop)

    @property
    def tests(self) -> tuple[str, ...]:
        """The account of the library's own tests, as far as this run asked them."""
        return self._prover.tests

    def units(self, file: TranslatedFile) -> tuple[PurePosixPath, ...]:
        """The sources that a compiler sees this file in."""
        units = [source.path for source in self._read.units(file.source.path)]
        return tuple(units[:_MOST_UNITS]) or (file.source.path,)

    def linked(self, file: TranslatedFile) -> tuple[Path, ...]:
        """The files that are linked with it: of the program, or of the library, of several that it
        is a part of."""
        units = self.units(file)
        others = (path for unit in units for path in self._beside(unit))
        return tuple(dict.fromkeys((*self._prover.linked(units), *others)))

    def _beside(self, unit: PurePosixPath) -> tuple[Path, ...]:
        """The other files of device code that a build file lists together with this one."""
        root = self._read.root
        if self._request.path.is_file():
            return ()
        sources = {root / source.path for source in self._read.sources}
        listed = (*self._read.programs, *self._read.libraries)
        lists = [files for files in listed if root / unit in files]
        longest = max(lists, key=len, default=())
        return tuple(f for f in longest if f in sources and f != root / unit)

    def port(
        self, file: TranslatedFile, keys: Mapping[str, str], kernels: Sequence[SourceKernel]
    ) -> Iterator[list[KernelPort]]:
        """Yields the ports of each of these kernels of the file for all targets, under the target's
        key, as soon as they are known."""
        began = time.monotonic()
        units = self.units(file)
        objects = {target: self.objects(file, target) for target in self._request.targets}
        built = (time.monotonic() - began) / max(len(kernels), 1)
        for kernel in kernels:
            began = time.monotonic()
            proof = self._proof(file, kernel, units)
            seconds = built + time.monotonic() - began
            yield [
                self._known(
                    file,
                    kernel,
                    target,
                    keys[str(target)],
                    _object_of(file, kernel, made),
                    proof,
                    next(
                        (m.not_whole for m in made if isinstance(m, DeviceBuilt) and m.not_whole),
                        "",
                    ),
                    seconds,
                )
                for target, made in objects.items()
            ]

    def objects(self, file: TranslatedFile, target: Target) -> list[DeviceBuilt | NotBuilt]:
        """The objects of the sources that a compiler sees the file in."""
        return [self._objects((unit, target)) for unit in self.units(file)]

    def _proof(
        self, file: TranslatedFile, kernel: SourceKernel, units: Sequence[PurePosixPath]
    ) -> ProofLine:
        return self._prover.proof(file, kernel, units) if self._request.prove else _NOT_ASKED

    def _known(
        self,
        file: TranslatedFile,
        kernel: SourceKernel,
        target: Target,
        key: str,
        made: PortResources | NotBuilt,
        proof: ProofLine,
        not_whole: str = "",
        seconds: float = 0.0,
    ) -> KernelPort:
        absent = made if isinstance(made, NotBuilt) else None
        return KernelPort(
            key=key,
            path=file.name,
            line=kernel.line,
            kernel=kernel.name,
            target=str(target),
            width=target.warp or 0,
            hazards=file.hazards_of(kernel, str(target)),
            resources=None if isinstance(made, NotBuilt) else made,
            not_built=absent.reason if absent else "",
            lacking=absent is not None and absent.cause == "machine" and not absent.header,
            not_whole=not_whole,
            proof=proof,
            seconds=round(seconds, 2),
        )

    def _build(self, asked: tuple[PurePosixPath, Target]) -> DeviceBuilt | NotBuilt:
        unit, target = asked
        include, defines = self._read.settings(unit)
        folders = tree.moved(
            (*self._request.include, *include),
            root=self._read.root,
            folder=self._ported,
            complete=not self._request.path.is_file(),
        )
        macros = self._request.macros(defines, self._read.for_amd)
        torch = self._torch if target.vendor == "amd" else None
        if torch is None:
            return self._built(unit, target, folders, macros)
        made = self._built(unit, target, (*folders, *torch.include), torch.macros(macros))
        if isinstance(made, NotBuilt):
            return made
        return replace(made, remark="; ".join(filter(None, [made.remark, torch.remark])))

    @cached_property
    def _torch(self) -> TorchHeaders | None:
        return torch_headers.of_files(self._files.values(), self._request, self._read)

    def _built(
        self, unit: PurePosixPath, target: Target, folders: Sequence[Path], macros: Sequence[str]
    ) -> DeviceBuilt | NotBuilt:
        made = self._compiled(unit, target, folders, macros)
        further = self._beside(unit) if isinstance(made, NotBuilt) and made.cause == "link" else ()
        if further and target.vendor == "amd":
            return self._compiled(unit, target, folders, macros, further)
        if isinstance(made, DeviceBuilt) or not made.header or target.vendor != "amd":
            return made
        title, remark = stand_ins.title(made.header), ""
        again: DeviceBuilt | NotBuilt = made
        if title:
            texts = [file.translation.text for file in self._files.values()]
            folders = (*folders, stand_ins.folder(texts))
            again, remark = self._compiled(unit, target, folders, macros), f"{_STAND_INS} {title}"
        if isinstance(again, DeviceBuilt):
            return replace(again, remark=remark)
        if not again.header:
            return made
        source = ProofSource(self._ported / unit, "hip", tuple(folders), tuple(macros))
        return self._alone(source, again.header, target) or made

    def _alone(self, source: ProofSource, header: str, target: Target) -> DeviceBuilt | None:
        with self._shop.folder() as workdir:

            def compile_file(file: Path) -> DeviceBuilt | NotBuilt:
                return self._object(file, source, target, workdir)

            return kernels_alone.build(source, header, compile_file, workdir / "slices")

    def _compiled(
        self,
        unit: PurePosixPath,
        target: Target,
        include: Sequence[Path],
        defines: Sequence[str],
        further: Sequence[Path] = (),
    ) -> DeviceBuilt | NotBuilt:
        language: Language = "hip" if target.vendor == "amd" else "cuda"
        source = ProofSource(self._ported / unit, language, tuple(include), tuple(defines))
        with self._shop.folder() as workdir:

            def compile_file(file: Path) -> DeviceBuilt | NotBuilt:
                return self._object(file, source, target, workdir, further)

            return partial_build.build(source, compile_file, workdir / "slices")

    def _object(
        self,
        file: Path,
        source: ProofSource,
        target: Target,
        workdir: Path,
        further: Sequence[Path] = (),
    ) -> DeviceBuilt | NotBuilt:
        """The object built of ``file``, which is the source itself, or a slice of it that lies
        elsewhere."""
        beside = () if file == source.path else (source.path.parent,)
        include = (*source.include, *beside)
        torch = self._torch if target.vendor == "amd" and not further else None
        first = (
            first_headers.of(file, include, torch, source.defines) if torch is not None else None
        )
        return device_build.build(
            file,
            target,
            include=include,
            first=first,
            defines=source.defines,
            workdir=workdir,
            compilers=self._shop.compilers,
            timeout_s=self._request.timeout_s,
            further=[self._ported / path.relative_to(self._read.root) for path in further],
        )


def _object_of(
    file: TranslatedFile, kernel: SourceKernel, objects: Sequence[DeviceBuilt | NotBuilt]
) -> PortResources | NotBuilt:
    """The resources of a kernel, from the first object that has it; else why none of them does."""
    for made in objects:
        if isinstance(made, DeviceBuilt):
            instances = [k for k in made.kernels if base_name(k.kernel) == kernel.name]
            if instances:
                return _resources(instances, made)
    failed = [made for made in objects if isinstance(made, NotBuilt)]
    failed += [
        made.rejected[kernel.name]
        for made in objects
        if isinstance(made, DeviceBuilt) and kernel.name in made.rejected
    ]
    if failed:
        return failed[0]
    if kernel.template:
        return NotBuilt("the template has no instance: nothing here launches it")
    condition = syntax.parse(file.translation.text).condition(kernel.start)
    whose = f"'{condition}'" if condition else "a condition of the preprocessor"
    return NotBuilt(f"the object has no such kernel: {whose} takes it out")


def base_name(readable: str) -> str:
    """``k`` of ``void ns::k<float, 4>(float*)``."""
    plain = readable.replace("(anonymous namespace)::", "")
    return re.split(r"[<(\[]", plain, maxsplit=1)[0].strip().rpartition(" ")[2].rpartition("::")[2]


def _resources(instances: Sequence[KernelResources], made: DeviceBuilt) -> PortResources:
    remarks = [made.remark] if made.remark else []
    return PortResources.of(
        instances,
        scratch_bytes=max(kernel.scratch_bytes for kernel in instances),
        exceeded=[text for k in instances for text in k.exceeded],
        warnings=[*remarks, *(text for k in instances for text in k.warnings)],
        relocatable=made.relocatable,
    )
