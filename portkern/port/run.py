"""Takes a library to other GPUs: read, translated, written, then built and proven file by file."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TYPE_CHECKING

from portkern.cuda_source.syntax import SourceKernel
from portkern.errors import ConfigError
from portkern.port import (
    build_notes,
    emit_run,
    in_strings,
    library,
    linked,
    outside,
    reading,
    torch_headers,
    tree,
    triton_port,
)
from portkern.port.build_notes import BuildNotes
from portkern.port.file_port import FilePorter
from portkern.port.in_strings import Strings
from portkern.port.kernel_port import KernelPort, KnownKernels, PortFile
from portkern.port.key import Keys
from portkern.port.library import Library
from portkern.port.pool import pool
from portkern.port.proving import is_program
from portkern.port.repair.repaired import Repaired
from portkern.port.request import PortRequest
from portkern.port.result import FileResult, PortResult
from portkern.port.translated import TranslatedFile, portable_header, translated
from portkern.port.tree import PortedFile, Tree
from portkern.port.workshop import Workshop
from portkern.records import atomic_write
from portkern.sandbox import session
from portkern.spec.safe_name import real_path

if TYPE_CHECKING:
    from portkern.port.repair.plan import RepairPlan

PATCH = "port.patch"
#: What became of the library's own tests, on its extensions' kernels and on Triton's.
TESTS, TRITON_TESTS = "tests.txt", "tests-triton.txt"


@dataclass(frozen=True)
class Progress:
    """``lines`` say what came of the file that was done last."""

    done: int
    total: int
    lines: tuple[str, ...] = ()


Show = Callable[[Progress], None]
_Ports = list[KernelPort]


def run(
    request: PortRequest,
    folder: Path,
    show: Show = lambda _: None,
    repair: RepairPlan | None = None,
) -> PortResult:
    """Ports a library into ``folder``, whose records are used again where nothing changed that
    they follow from. Raises ConfigError for a place that has no kernels."""
    if request.emitted:
        return emit_run.run(
            request, folder, lambda n, total, line: show(Progress(n, total, (line,)))
        )
    began = time.monotonic()
    if request.build:
        session.server(session.COMPILING).begin()  # while the library is read
    avoid = (*request.avoid, request.out, folder)
    read = reading.read(request.path, avoid=avoid, include=request.include)
    files = translated(read, request)
    if not any(file.kernels for file in files) and not read.triton and not read.hosts:
        raise ConfigError(_no_kernels(request, read))
    in_string = in_strings.prepared(read.hosts, folder)
    of_strings = run(in_string.request(request), in_string.records, show) if in_string else None
    extra = [*portable_header(files), *outside.headers(read, request)]
    if not request.build:
        result = _result(request, read, files, [], began)
        return in_string.joined(result, of_strings) if in_string and of_strings else result
    ported, unfit = _ported(files, extra, in_string)
    written = tree.write(
        read.root,
        ported,
        request.out,
        notes=folder,
        avoid=(*request.avoid, folder),
        whole=not request.path.is_file(),
        fresh=request.fresh,
    )
    atomic_write.write(folder / PATCH, b"".join(file.diff() for file in ported))
    with Workshop(request, read, written.folder) as shop:
        ports, reused, tests = _ports(request, read, files, written, folder, shop, show)
        mended = Repaired(tuple(files), tuple(ports))
        if repair is not None:
            from portkern.port.repair.loop import mend  # has all of what talks to models
            from portkern.port.repair.workbench import Workbench

            bench = Workbench(request, read, files, ports, shop, written.folder, folder)
            mended = mend(repair, bench, folder, lambda line: show(Progress(1, 1, (line,))))
            files = list(mended.files)
            ported, unfit = _ported(files, extra, in_string)
            atomic_write.write(folder / PATCH, b"".join(file.diff() for file in ported))
    if request.in_place:
        tree.write_in_place(read.root, ported)
    large = (f"{name} was not copied: it is large" for name in written.left_out)
    result = replace(
        _result(request, read, files, mended.ports, began),
        repairs=mended.repairs,
        stopped=mended.stopped,
        down=mended.down,
        notes=(*large, *_warnings(ports)),
        reused=reused,
        tests=tests,
    )
    if in_string is not None and of_strings is not None:
        result = in_string.joined(replace(result, files=(*result.files, *unfit)), of_strings)
    notes = _build_notes(request, read, files, written)
    relocatable = any(port.resources and port.resources.relocatable for port in mended.ports)
    build_notes.write(result, replace(notes, relocatable=relocatable), folder)
    return result


def _ported(
    files: Sequence[TranslatedFile], extra: Sequence[PortedFile], in_string: Strings | None
) -> tuple[list[PortedFile], list[FileResult]]:
    """The files of the port, and what could not be written to them."""
    own = [*(file.ported for file in files), *extra]
    return in_string.ported(own) if in_string is not None else (own, [])


def _warnings(ports: Sequence[KernelPort]) -> Iterator[str]:
    """The remarks of compilers and targets, each with the number of kernels that it is about."""
    remarks = Counter(
        f"{port.target}: {text}"
        for port in ports
        if port.resources
        for text in port.resources.warnings
    )
    for text, count in sorted(remarks.items()):
        yield f"{count} kernels: {text}" if count > 1 else text


def _result(
    request: PortRequest,
    read: Library,
    files: Sequence[TranslatedFile],
    ports: Sequence[KernelPort],
    began: float,
) -> PortResult:
    return PortResult(
        name=request.path.name if request.path.is_file() else read.root.name,
        root=read.root,
        tree=read.root if request.in_place else request.out,
        to=request.to,
        style=request.style,
        targets=tuple(map(str, request.targets)),
        files=(
            *(file.result(whole=not request.build) for file in files),
            *in_strings.refused(read.hosts),
        ),
        ports=tuple(ports),
        problems=tuple(map(str, read.problems)),
        seconds=time.monotonic() - began,
    )


def _no_kernels(request: PortRequest, read: Library) -> str:
    problems = f"; {read.problems[0]}" if read.problems else ""
    return (
        f"No kernels in {request.path}: no __global__ function in {len(read.sources)} sources"
        f"{problems}; give a CUDA or HIP file, or a folder of them"
    )


def _ports(
    request: PortRequest,
    read: Library,
    files: Sequence[TranslatedFile],
    written: Tree,
    folder: Path,
    shop: Workshop,
    show: Show,
) -> tuple[list[KernelPort], int, tuple[str, ...]]:
    """The ports of every kernel for every target, how many of them were known before, and what
    became of the library's own tests."""
    wanted = [file for file in files if file.kernels]
    by_path = {file.source.path: file for file in files}
    porter = FilePorter(request, read, by_path, written.folder, folder, shop)
    keys = Keys(read, by_path, request)
    records = PortFile(folder)
    known = KnownKernels() if request.fresh else records.known()
    ports: list[KernelPort] = []
    left: list[tuple[TranslatedFile, dict[str, str], list[SourceKernel]]] = []
    for file in wanted:
        units = porter.units(file)
        linked = porter.linked(file)
        own = {str(t): keys.of(file.source.path, units, str(t), linked) for t in request.targets}
        before = {k: known.kernel(k.name, k.line, own.values()) for k in file.kernels}
        ports += [port for of_kernel in before.values() for port in of_kernel]
        if missing := [kernel for kernel, of_kernel in before.items() if not of_kernel]:
            left.append((file, own, missing))
    reused, done = len(ports), len(wanted) - len(left)
    show(Progress(done, len(wanted)))
    writing = Lock()

    def port(file: TranslatedFile, own: Mapping[str, str], kernels: list[SourceKernel]) -> _Ports:
        made: _Ports = []
        for of_kernel in porter.port(file, own, kernels):
            with writing:  # each is on disk before the next begins, which may be the one that hangs
                records.append(of_kernel)
                _tests(request, porter.tests, folder / TESTS)
            made += of_kernel
        return made

    with pool(request.jobs) as threads:
        pending: dict[Future[_Ports], TranslatedFile] = {}
        for wanting in left:
            for target in request.targets:  # side by side, where a file is alone
                threads.submit(porter.objects, wanting[0], target)
            pending[threads.submit(port, *wanting)] = wanting[0]
        for future in as_completed(pending):
            made = future.result()
            ports += made
            done += 1
            show(Progress(done, len(wanted), _lines(pending[future], made, done, len(wanted))))
    of_triton, triton_reused, of_tests = _triton(request, read, keys, records, known)
    tests = _tests(request, porter.tests, folder / TESTS)
    tests += _tests(request, of_tests, folder / TRITON_TESTS)
    return ports + of_triton, reused + triton_reused, tests


def _tests(request: PortRequest, asked: Sequence[str], file: Path) -> tuple[str, ...]:
    """The account of the library's own tests: this run's, else that of the run that asked them."""
    if asked:
        atomic_write.write(file, "\n".join(asked) + "\n")
    elif not request.tests or not file.is_file():
        return ()
    return tuple(file.read_text("utf-8", "replace").splitlines())


def _triton(
    request: PortRequest,
    read: Library,
    keys: Keys,
    records: PortFile,
    known: KnownKernels,
) -> tuple[list[KernelPort], int, tuple[str, ...]]:
    if request.to != "hip" or not any(not kernel.helper for kernel in read.triton):
        return [], 0, ()
    key = keys.of_triton()
    if ported := known.of(key):
        return ported, len(ported), ()
    ports, tests = triton_port.ports(read, request, key)
    records.append(ports)
    return ports, 0, tests


def _lines(
    file: TranslatedFile, ports: Sequence[KernelPort], done: int, total: int
) -> tuple[str, ...]:
    outcomes = Counter({(p.kernel, p.line): p.proof.outcome for p in ports}.values())
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    return (f"[{done}/{total}] {file.name}: {counts}",)


def _build_notes(
    request: PortRequest, read: Library, files: Sequence[TranslatedFile], written: Tree
) -> BuildNotes:
    included: set[PurePosixPath] = {path for file in files for path in file.source.includes}
    sources = [
        file
        for file in files
        if file.source.path not in included and (_has_device_code(file) or file.source.launches)
    ]
    include = tree.moved(
        [*request.include, *read.include],
        root=read.root,
        folder=written.folder,
        complete=not request.path.is_file(),
    )
    torch = torch_headers.of_files(files, request, read)
    return BuildNotes(
        sources=tuple(file.name for file in sources),
        programs=tuple(file.name for file in sources if is_program(file)),
        include=tuple(_from(written.folder, place) for place in include),
        defines=request.macros(read.defines, read.for_amd),
        left_out=written.left_out,
        arguments=request.arguments,
        linked=_linked(request, read),
        torch=torch.remark if torch is not None else "",
    )


def _has_device_code(file: TranslatedFile) -> bool:
    return bool(file.kernels) or file.source.path.suffix in (".cu", ".hip")


def _linked(request: PortRequest, read: Library) -> dict[str, tuple[str, ...]]:
    """The other files of each program, by its main file, as the tree's root sees them."""
    if request.path.is_file():
        return {}
    return {
        str(main): tuple(library.from_root(file, read.root) for file in others)
        for main, others in linked.programs(read).items()
    }


def _from(folder: Path, place: Path) -> str:
    """A folder as the tree's root sees it."""
    inside = place.is_relative_to(real_path(folder))
    return place.relative_to(real_path(folder)).as_posix() if inside else str(place)
