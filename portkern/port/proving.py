"""The proofs of a run: which program shows a file's kernels, and what is kept of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from os.path import normpath
from pathlib import Path, PurePosixPath

from portkern.cuda_source.syntax import SourceKernel
from portkern.cuda_source.tree import TooLong
from portkern.errors import PortkernError
from portkern.evaluator import object_program
from portkern.port import expected, linked, proof, setup_run, torch_headers, tree
from portkern.port.hazard import Hazard
from portkern.port.kernel_port import Coverage, ProofLine
from portkern.port.library import Library
from portkern.port.once import Once
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource, arguments, suite
from portkern.port.proof.findings import says_nothing
from portkern.port.proof.outcome import FINAL, NO_CASE
from portkern.port.proof.suite import LibraryExtension, Suite, SuiteCommand
from portkern.port.proof.texts import SourceTexts
from portkern.port.request import PortRequest
from portkern.port.setup_script import Module
from portkern.port.translated import TranslatedFile
from portkern.port.workshop import Workshop
from portkern.records import atomic_write
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute.build import language_of
from portkern.simt.execute.machine import Language
from portkern.spec import target as targets
from portkern.spec.safe_name import real_path
from portkern.spec.target import Target

#: Names of CUDA's runtime, or of its compiler.
_OF_CUDA = re.compile(r"\bcuda[A-Z_]\w*|__CUDA\w*|\bcuda\w*\.h\b|_sync\s*\(\s*0x")
#: Where there is one width among the targets, the port is run at the other too.
_OTHER = {64: "gfx1100", 32: "gfx942"}
#: What a proof leaves that is worth keeping: cases, and files that run one kernel.
_KEPT = (".yaml", ".hip", ".cu")
CASES = "cases"
#: The GPU that originals are run as.
_ORIGINAL = "sm_90"
#: Pitfalls of code that no compiler for AMD takes.
_UNTRANSLATED = frozenset(["PK018", "PK019", "PK020"])
_UNKNOWN = ProofLine(outcome=Outcome.UNPROVEN, why="no program here has this kernel")
_Proofs = Mapping[tuple[str, str], ProofLine]


class Prover:
    """``ported`` is the tree, ``run`` the folder of the run. Threads may share it."""

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
        self._request, self._read, self._files = request, read, files
        self._ported, self._run = real_path(ported), real_path(run)
        whole = not request.path.is_file()  # of one file, the others are not ported
        self._programs = linked.programs(read) if whole else {}
        self._proofs = Once[tuple[PurePosixPath, PurePosixPath], _Proofs](self._prove)
        self._suites = Once[str, Suite](self._suite)
        #: What became of the library's own tests, in lines for a reader.
        self.tests: tuple[str, ...] = ()

    def proof(
        self, file: TranslatedFile, kernel: SourceKernel, units: Sequence[PurePosixPath]
    ) -> ProofLine:
        """The proof of a kernel by the library's tests, where there are any; else by the first
        program that includes the file, or is linked with it; else, or where that says nothing, by
        itself."""
        if not self._request.tests:
            return self._without_tests(file, kernel, units)
        of_tests = self._by_tests(file, kernel)
        if of_tests.inputs:
            return of_tests
        own = self._without_tests(file, kernel, units)
        why = "; ".join(filter(None, [own.why, of_tests.why]))
        return own.model_copy(update={"why": why})

    def _without_tests(
        self, file: TranslatedFile, kernel: SourceKernel, units: Sequence[PurePosixPath]
    ) -> ProofLine:
        programs = [unit for unit in units if is_program(self._files[unit])]
        main = next(iter(programs), None) or self._linking(units)
        if main is None:
            return self._by_itself(file, kernel, units)
        of_program = self._proofs((main, main)).get((file.name, kernel.name), _UNKNOWN)
        codes = re.findall(r"\bSX\d+", " ".join(of_program.original_findings))
        is_final = any(reason in of_program.why for reason in FINAL)
        is_final = is_final or any(map(says_nothing, codes))
        is_open = of_program.outcome == Outcome.UNPROVEN and not is_final
        if main in programs or not is_open:
            return of_program
        own = self._by_itself(file, kernel, units)
        why = "; ".join(filter(None, [own.why, f"in a case of its own, as {of_program.why}"]))
        return own.model_copy(update={"why": why})

    def _by_tests(self, file: TranslatedFile, kernel: SourceKernel) -> ProofLine:
        """The proof by the library's tests; without inputs where they say nothing of the kernel."""
        path = file.source.path
        original, ported = (SourceTexts(self._source(path, original=of)) for of in (True, False))
        hazards = list(_owned(file, str(self._targets()[0])))
        known = self._suites(self._request.tests).proof(kernel, original, ported, hazards)
        left = [hazard for hazard in hazards if hazard.code in _UNTRANSLATED]
        return self._line(_without_translation(known, left), {})

    def _suite(self, command: str) -> Suite:
        """The outcome of the tests; each reason why they say nothing is a part of it."""
        asked = SuiteCommand.parse(command)
        try:
            originals, ports = (self._extensions(original=of) for of in (True, False))
            known = self._examined(asked, command, originals, ports) if originals else None
        except (PortkernError, TooLong) as error:
            known = Suite(command, problem=str(error))
        problem = "no setup.py here names an extension of CUDA whose name and files can be read"
        known = known or Suite(command, problem=problem)
        self.tests = tuple(map(self._from_root, known.lines))
        return known

    def _examined(
        self,
        asked: SuiteCommand,
        command: str,
        originals: Sequence[LibraryExtension],
        ports: Sequence[LibraryExtension],
    ) -> Suite:
        target, other = self._targets()
        limits = ProofLimits(
            run_s=self._request.timeout_s,
            build_s=self._request.timeout_s,
            record_bytes=suite.RECORD_BYTES,
        )
        with self._shop.folder() as workdir:
            return suite.examined(
                asked,
                command,
                originals,
                ports,
                vendor=targets.load(_ORIGINAL),
                target=target,
                other=other,
                workdir=workdir,
                compilers=self._shop.compilers,
                limits=limits,
            )

    def _extensions(self, *, original: bool) -> list[LibraryExtension]:
        """The extensions of the library, or of its port, with device code in one of their files."""
        root, found = self._read.root, list[LibraryExtension]()
        for module in self._modules:
            files = files_of(module, root)
            first, *further = (PurePosixPath(file.relative_to(root)) for file in files)
            source = self._source(first, original=original)
            home = root if original else self._ported
            include = tree.moved(
                [real_path(folder) for folder in module.include],
                root=root,
                folder=root if original else self._ported,
                complete=True,
            )
            source = replace(
                source,
                language=self._language(
                    next((f for f in files if f in self._device), files[0]), original
                ),
                include=tuple(dict.fromkeys((*source.include, *include))),
                defines=tuple(dict.fromkeys((*module.defines, *source.defines))),
                further=tuple(home / path for path in further),
            )
            found.append(
                LibraryExtension(module.name, source, of_host=self._device.isdisjoint(files))
            )
        return found

    @cached_property
    def _device(self) -> frozenset[Path]:
        """The library's files with device code."""
        return frozenset(self._read.root / source.path for source in self._read.sources)

    @cached_property
    def _modules(self) -> Sequence[Module]:
        """The library's extensions, each name once, those of host code too where no other one has
        all of their files; the script that lists them is run where reading it finds none."""
        root = self._read.root

        def on_device(module: Module) -> bool:
            return not self._device.isdisjoint(files_of(module, root))

        known: Sequence[Module] = self._read.modules
        if not any(map(on_device, known)):
            limit_s = self._request.timeout_s
            known = setup_run.modules(root, targets.load(_ORIGINAL), limit_s)
        if not any(map(on_device, known)):
            return ()
        files = {module.name: set(files_of(module, root)) for module in reversed(known)}
        chosen = {module.name: module for module in reversed(known) if files[module.name]}
        return [
            module
            for name, module in reversed(chosen.items())
            if not any(files[name] < other for other in files.values())
        ]

    def _by_itself(
        self, file: TranslatedFile, kernel: SourceKernel, units: Sequence[PurePosixPath]
    ) -> ProofLine:
        """A header of which nothing is known so is seen where a source includes it, behind what
        that has before it: types, macros and other headers."""
        path, name = file.source.path, (file.name, kernel.name)
        own = self._proofs((path, path)).get(name, _UNKNOWN)
        if _is_settled(own):
            return own
        including = [unit for unit in units if unit != path][:1]
        others = (self._proofs((unit, path)).get(name, _UNKNOWN) for unit in including)
        return next(filter(_is_settled, others), own)

    def linked(self, units: Sequence[PurePosixPath]) -> tuple[Path, ...]:
        """The files of the program that one of these is linked into."""
        main = next((unit for unit in units if unit in self._programs), self._linking(units))
        return (self._read.root / main, *self._programs[main]) if main is not None else ()

    def _linking(self, units: Sequence[PurePosixPath]) -> PurePosixPath | None:
        """The main file of the program that one of these is linked into."""
        places = {self._read.root / unit for unit in units}
        of_them = (m for m, further in self._programs.items() if not places.isdisjoint(further))
        return next((main for main in of_them if main in self._files), None)

    def _prove(self, asked: tuple[PurePosixPath, PurePosixPath]) -> _Proofs:
        """The proofs of all kernels in a unit, or of those of a header that it includes, by file
        and name. An error becomes the reason in the proof of each of them."""
        unit, header = asked
        together = self._together(unit) if header == unit else [self._files[header]]
        kernels = _kernels(together)
        with self._shop.folder() as workdir:
            try:
                proofs = self._proven(unit, together, [kernel for _, kernel in kernels], workdir)
            except (PortkernError, TooLong) as error:
                failed = ProofLine(outcome=Outcome.UNPROVEN, why=str(error))
                return {(file, kernel.name): failed for file, kernel in kernels}
            kept = self._kept(header, workdir)
            if any(
                p.inputs.startswith(arguments.OWN) and p.outcome is Outcome.PROVEN for p in proofs
            ):
                file = self._run / expected.FOLDER / f"{str(unit).replace('/', '_')}.txt"
                source = self._source(unit, original=True)
                given, built = self._arguments(unit), workdir / "build"
                expected.record(source, targets.load(_ORIGINAL), given, built, file)
        return {
            (file, kernel.name): self._line(known, kept)
            for (file, kernel), known in zip(kernels, proofs, strict=True)
        }

    def _together(self, unit: PurePosixPath) -> list[TranslatedFile]:
        """The file, what a program is linked with, and what these include of the library."""
        seen: dict[PurePosixPath, TranslatedFile] = {}
        queue = [unit, *self._further(unit)]
        while queue:
            path = queue.pop(0)
            if path in seen or path not in self._files:
                continue
            seen[path] = self._files[path]
            if is_program(self._files[unit]):
                queue += seen[path].source.includes
        return list(seen.values())

    def _further(self, unit: PurePosixPath) -> list[PurePosixPath]:
        """The library's own files that are linked with a program."""
        root = self._read.root
        files = (f for f in self._programs.get(unit, ()) if f.is_relative_to(root))
        return [PurePosixPath(file.relative_to(root)) for file in files]

    def _proven(
        self,
        unit: PurePosixPath,
        files: Sequence[TranslatedFile],
        kernels: Sequence[SourceKernel],
        workdir: Path,
    ) -> tuple[KernelProof, ...]:
        request, given = self._request, self._arguments(unit)
        target, other = self._targets()
        source = self._source(unit, original=True)
        if source.language == "cuda" and other not in request.by_width.values():
            other = None  # nobody asks what it does there, and the original shows what is right
        hazards = [hazard for file in files for hazard in _owned(file, str(target))]
        proofs = proof.prove(
            source,
            self._source(unit, original=False),
            target=target,
            other=other,
            kernels=kernels,
            hazards=hazards,
            case=request.case,
            workdir=workdir,
            compilers=self._shop.compilers,
            limits=ProofLimits(
                run_s=request.run_s,
                build_s=request.timeout_s,
                arguments=given,
                smaller=() if request.arguments else arguments.smaller(given),
                objects=tuple(self._executed(target, other)),
                ring=request.arithmetic == "ring",
            ),
        )
        left = [hazard for hazard in hazards if hazard.code in _UNTRANSLATED]
        return tuple(_without_translation(known, left) for known in proofs)

    def _executed(self, *targets: Target | None) -> Iterator[Target]:
        """The targets that were asked for and whose compiled code is executed here; none where
        host code is read by PyTorch's headers, which a case is not built with."""
        for target in targets if not self._of_torch else ():
            asked = target is not None and target in self._request.by_width.values()
            if target is not None and asked and object_program.lacking(target) is None:
                yield target

    @cached_property
    def _of_torch(self) -> bool:
        return torch_headers.of_files(self._files.values(), self._request, self._read) is not None

    def _arguments(self, unit: PurePosixPath) -> tuple[str, ...]:
        """The arguments of a unit's program: those that are asked for, else its build file's."""
        return self._request.arguments or self._read.arguments(unit)

    def _targets(self) -> tuple[Target, Target | None]:
        """The widest that is asked for, and one of another width."""
        request = self._request
        by_width = request.by_width
        target = by_width[max(by_width)]
        if request.to == "cuda":
            return target, None
        asked = next((t for width, t in by_width.items() if width != target.warp), None)
        return target, asked or targets.load(_OTHER[target.warp or 32])

    def _source(self, unit: PurePosixPath, *, original: bool) -> ProofSource:
        request, root = self._request, self._read.root
        include, defines = self._read.settings(unit)
        folders = tuple(real_path(folder) for folder in (*request.include, *include))
        if not original:
            complete = not request.path.is_file()
            folders = tree.moved(folders, root=root, folder=self._ported, complete=complete)
        return ProofSource(
            (root if original else self._ported) / unit,
            self._language(root / unit, original),
            include=tuple(dict.fromkeys(folders)),
            defines=request.macros(defines, () if original else self._read.for_amd),
            further=tuple(self._place(path, original) for path in self._programs.get(unit, ())),
            whole=(root if original else self._ported, *request.include),
        )

    def _language(self, file: Path, original: bool) -> Language:
        """The language that a file is run in: of a port, the one asked for; of an original,
        CUDA, unless it is HIP already, which is run as AMD's GPU runs it."""
        if self._request.to != "hip":
            return "hip" if original else "cuda"
        if not original:
            return "hip"
        text = file.read_text("utf-8", errors="replace")
        is_hip = language_of(file) == "hip" and not _OF_CUDA.search(text)
        return "hip" if is_hip else "cuda"

    def _place(self, path: Path, original: bool) -> Path:
        """The path of a file that is linked: for the port its own, where it has one."""
        root = self._read.root
        ported = self._ported / path.relative_to(root) if path.is_relative_to(root) else path
        return ported if not original and ported.is_file() else path

    def _kept(self, path: PurePosixPath, workdir: Path) -> Mapping[str, str]:
        """Copies in the run's folder, by the path that the proof has for them."""
        kept: dict[str, str] = {}
        for file in sorted(workdir.iterdir()):
            if file.suffix in _KEPT and file.is_file():
                copy = self._run / CASES / path / file.name
                atomic_write.write(copy, file.read_bytes())
                kept[str(file)] = str(copy)
        return kept

    def _line(self, known: KernelProof, kept: Mapping[str, str]) -> ProofLine:
        command = known.command
        for path, copy in kept.items():
            command = command.replace(path, copy)
        case = str(known.counterexample) if known.counterexample else ""
        return ProofLine(
            outcome=str(known.outcome),
            why=self._from_root(known.why),
            inputs=known.inputs,
            coverage=Coverage(**asdict(known.coverage)) if known.coverage else None,
            findings=tuple(map(self._from_root, known.findings)),
            original_findings=tuple(map(self._from_root, known.original_findings)),
            counterexample=kept.get(case, case),
            command=command,
            algebra=self._from_root(str(known.algebra or "")),
        )

    def _from_root(self, said: Diagnostic | str) -> str:
        """The text with paths as the report has them."""
        return str(said).replace(f"{self._read.root}/", "").replace(f"{self._ported}/", "")


def files_of(module: Module, root: Path) -> list[Path]:
    """The extension's files that lie in the library, each by the name that it has there: a build
    file may write ``../csrc``, name files of the system, and what no file can be called."""
    found: list[Path] = []
    for file in (Path(normpath(file)) for file in module.sources):
        with suppress(OSError, ValueError):
            ours = file.is_relative_to(root) and file.is_file()
            if ours and real_path(file).is_relative_to(root):
                found.append(file)
    return found


def _is_settled(known: ProofLine) -> bool:
    return known.outcome != Outcome.UNPROVEN and NO_CASE not in known.why


def _kernels(files: Sequence[TranslatedFile]) -> list[tuple[str, SourceKernel]]:
    """The kernels, each with its file's name; of two of one name, the first."""
    kernels: dict[str, tuple[str, SourceKernel]] = {}
    for file in files:
        for kernel in file.kernels:
            kernels.setdefault(kernel.name, (file.name, kernel))
    return list(kernels.values())


def _owned(file: TranslatedFile, target: str) -> Iterator[Hazard]:
    """The hazards of a file by their kernels' names: a line says nothing where there are several
    files. What is not translated in a function is each kernel's that uses it."""
    for hazard in file.seen[target]:
        owner = file.owner(hazard)
        yield replace(hazard, kernel=owner.name if owner else hazard.kernel, line=0)
        if owner is None and hazard.code in _UNTRANSLATED:
            yield from (replace(hazard, kernel=name, line=0) for name in file.users(hazard))


def _without_translation(known: KernelProof, hazards: Sequence[Hazard]) -> KernelProof:
    """The proof with what is left of NVIDIA's in the kernel as the reason why nothing could be
    shown."""
    if known.outcome not in (Outcome.UNPROVEN, Outcome.NEEDS_HARDWARE):
        return known
    own = [hazard for hazard in hazards if hazard.kernel == known.kernel]
    if not own:
        return known
    why = "; ".join(dict.fromkeys(f"{hazard.code}: {hazard.message}" for hazard in own))
    return replace(known, outcome=Outcome.NEEDS_HUMAN, why=why)


def is_program(file: TranslatedFile) -> bool:
    """Whether it has a ``main``."""
    return linked.has_main(file.source.text)
