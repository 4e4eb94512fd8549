"""Code of a program that has to do with other processes or with the executor, not with its own
work: what its runs show is not a proof, whoever wrote it.

Kernels of the source executor run in the program's own process, so that its runs are its word. What
it wrote cannot be changed afterwards (:mod:`portkern.sandbox.jail.programs`); what would write
something else in its name, or replace code, has to call the system, the dynamic linker or the
executor, and what a program calls is in its symbols, however its text spells it. Who finds such
functions by the addresses of others is not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

from portkern.cuda_source.assembler import unescaped
from portkern.cuda_source.comments import without_comments
from portkern.errors import ConfigError
from portkern.guard import rules
from portkern.port.proof.outcome import KernelProof, Outcome
from portkern.port.proof.texts import SourceTexts
from portkern.simt.execute import build, runtime_library
from portkern.spec.foreign_text import Malformed, json_value, read_text
from portkern.toolchain import elf

_BETWEEN = re.compile(r'"\s*"')
#: Calls that look into processes, by name or by number.
_CALL = re.compile(
    r"\b(?:SYS_|__NR_)?(ptrace|process_vm_readv|process_vm_writev|process_madvise|pidfd_getfd|kcmp"
    r"|userfaultfd)\b"
)
_TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"')
#: The files about itself that a process may not ask for: it may ask what it is and what it maps;
#: its memory and handles are another way to what is the executor's.
_FILE = re.compile(rf"{rules.PROCESS_FILE.pattern}(?!self/(?:exe|maps|cmdline|statm|io)$)")
_SETTING = re.compile(r"\bGCOV_|\bLD_(?:PRELOAD|AUDIT)\b")
_MACRO = re.compile(rf"\b(?:{rules.EXECUTOR_MACRO.pattern})\b")
_COUNTS = re.compile(r"\b__gcov_\w+")
_NAMESPACE = re.compile(r"\bsimt\s*::|\bnamespace\s+simt\b")
#: Instructions that call the system, in a text of a source that may have assembler, and in a
#: statement of it.
_SYSTEM = re.compile(r"\bsyscall\b|\bsysenter\b|\bint\s+\$?\s*(0x80|128)\b|\bsvc\b", re.IGNORECASE)
_CALLS_SYSTEM = re.compile(
    r"\b(?:sys(?:call|enter|exit|ret)|svc|hvc|smc|int(?=\s)|vmm?call|vmfunc|lcall|ljmp)[lqw]?\b",
    re.IGNORECASE,
)
#: An instruction whose word is spelled out, perhaps with a label and prefixes before it. What a
#: directive puts among the code, or gives a name to, could be any instruction.
_INSTRUCTION = re.compile(
    r"(?:\w+:\s*)*(?:(?:(?:lock|rep\w*)\s+)*[a-z_]\w*(?:\.[a-z]{2})?(?:\s.*)?)?", re.IGNORECASE
)
_DIRECTIVE = re.compile(r"(?<![\w$])\.[a-z]|=", re.IGNORECASE)
#: What <iostream> of GCC 13 and later has, so that a program is linked with a library which begins
#: its streams.
_OF_STREAMS = ".globl _ZSt21ios_base_library_initv"
#: A text without the word, and without joined tokens that may make it, has no such statement.
_ASSEMBLER = re.compile(r"\b(?:asm|__asm|__asm__)\b|##")
#: Functions that a program takes from the system, by what they are for.
_TAKEN = {
    "changes code or maps memory": "mprotect pkey_mprotect mmap mmap64 mremap remap_file_pages",
    "looks up functions": "dlopen dlmopen dlsym dlvsym dladdr dladdr1 dlinfo dl_iterate_phdr "
    "_dl_find_object _r_debug _rtld_global _rtld_global_ro",
    "calls the system by number": "syscall",
    "starts processes": "fork vfork clone clone3 posix_spawn posix_spawnp execl execle execlp "
    "execv execve execveat execvp execvpe fexecve system popen daemon forkpty wordexp",
    "looks into other processes": "ptrace process_vm_readv process_vm_writev process_madvise "
    "pidfd_open pidfd_getfd kcmp userfaultfd",
    "writes to handles by number": "write writev pwrite pwrite64 pwritev pwritev64 pwritev2 "
    "pwritev64v2 dprintf vdprintf fdopen dup dup2 dup3 fcntl fcntl64 ioctl close_range closefrom "
    "ftruncate ftruncate64 splice tee vmsplice sendfile sendfile64 copy_file_range memfd_create "
    "aio_write aio_write64 lio_listio lio_listio64 shmat",
    "looks through its environment": "environ _environ __environ",
}
_WHY = {name: why for why, names in _TAKEN.items() for name in names.split()}
#: The other names that glibc has for a function: ``__write``, ``__libc_write``, ``__write_chk``.
_ALIAS = re.compile(r"_*(?:libc_)?(?P<plain>\w+?)(?:_chk)?")
#: A stream of C++ on a handle that is given by number.
_BY_HANDLE = re.compile(r"_ZNSt12__basic_fileI\w+E8sys_open")
#: Instances of the standard library's templates, which each program that uses them has.
_INSTANCE = re.compile(r"_Z(?:TV|TI|TS)?NK?S\w|_Z(?:TV|TI|TS)?NK?9__gnu_cxx|_ZS[^_]")
#: But for the operations on elements, which are put in: what names them by itself is refused where
#: that is done (:mod:`portkern.simt.execute.ring_build`).
_EXECUTORS = re.compile(r"_ZNK?4simt|simt_(?!ring_)")


def doubted(
    proofs: Iterable[KernelProof], *texts: SourceTexts, programs: Iterable[Path] = ()
) -> tuple[KernelProof, ...]:
    """The proofs; where a text or a program that was run meddles, those that are proven become
    unproven."""
    seen = chain((meddles(text.whole) for text in texts), map(of_built, programs))
    why = next(filter(None, seen), "")
    return tuple(
        replace(proof, outcome=Outcome.UNPROVEN, why=why)
        if why and proof.outcome is Outcome.PROVEN
        else proof
        for proof in proofs
    )


def of_built(program: Path) -> str:
    """Why runs of a program, or of what opens an extension, are not to be believed, by what the
    compiler and the linker made of it."""
    return refers(program, runtime_library.ready().runtime) or assembles(program)


def refers(program: Path, runtime: Path) -> str:
    """Why runs of a built program are not to be believed, by what it is linked with; '' where
    nothing says so. ``runtime`` is the executor's library."""
    if changed := elf.changeable_code(program):
        return f"the program {changed}: its runs prove nothing"
    own, executors = (_linked(path, path.stat().st_mtime_ns) for path in (program, runtime))
    for name in sorted(own.taken):
        plain = name.partition("@")[0]
        found = _ALIAS.fullmatch(plain)
        why = _WHY.get(plain) or _WHY.get(found["plain"] if found else "")
        if _BY_HANDLE.match(plain):
            why = _WHY["fdopen"]
        if why:
            return f"the program {why} ({plain:.60}): its runs prove nothing"
        if _EXECUTORS.match(name) and not _in_headers(name):
            return f"the program turns to the executor ({name:.60}): its runs prove nothing"
    # The executor calls its own instances whatever a program gives (-Bsymbolic-functions).
    its_own = {name for name in executors.given if not _INSTANCE.match(name)}
    if posing := sorted(filter(_poses, own.defined)):
        return f"the program stands in for the executor ({posing[0]:.60}): its runs prove nothing"
    if theirs := own.given & (executors.taken | its_own):
        return (
            f"the program stands in for what the executor calls ({min(theirs):.60}): "
            "its runs prove nothing"
        )
    return ""


def _poses(defined: str) -> bool:
    return defined.startswith("simt_") and not _in_headers(defined.partition(".")[0])


@lru_cache(1000)
def _linked(path: Path, _changed_ns: int) -> elf.Linked:
    return elf.linked(path)


@cache
def _header_words() -> frozenset[str]:
    """The words of the headers that programs are compiled with."""
    files = (file for file in runtime_library.INCLUDE.rglob("*") if file.is_file())
    return frozenset(w for f in files for w in re.findall(r"\w+", f.read_text("utf-8")))


def _in_headers(symbol: str) -> bool:
    """Whether programs get the name from a header, as ``_ZN4simt3api4copyEPv``."""
    if not symbol.startswith("_Z"):
        return symbol in _header_words()
    words, at = [], symbol.index("4simt")
    while (length := _LENGTH.match(symbol, at)) is not None:
        at = length.end() + int(length[0])
        words.append(symbol[length.end() : at])
    return _header_words().issuperset(words)


_LENGTH = re.compile(r"\d+")


def assembles(program: Path) -> str:
    """The same by its statements of assembler, as the compiler saw them, whatever macros, flags and
    headers they come from; names that declarations give to the linker are among them."""
    try:
        templates = json_value(read_text(build.listing(program)))
    except (ConfigError, Malformed) as error:
        return f"the program's assembler is not known ({error!s:.200}): {_NOTHING}"
    for template in templates:
        for statement in re.split(r"[;\n\r]", str(template)):
            if found := _CALLS_SYSTEM.search(statement):
                return _BY_ITSELF.format(found[0])
            code = " ".join(statement.split())
            if (
                code not in ("", _OF_STREAMS)
                and code[0] != "#"
                and (_DIRECTIVE.search(code) or not _INSTRUCTION.fullmatch(code))
            ):
                return f"the program has assembler that may be anything ({code!a:.60}): {_NOTHING}"
    return ""


_NOTHING = "its runs prove nothing"
_BY_ITSELF = f"the program calls the system by itself ({{}}): {_NOTHING}"


def meddles(text: str) -> str:
    """Why runs of this code are not to be believed; '' where nothing says so."""
    code = _BETWEEN.sub("", without_comments(text))
    if call := _CALL.search(code):
        return f"the program looks into other processes ({call[1]}): its runs prove nothing"
    assembles = _ASSEMBLER.search(code) is not None
    for literal in map(unescaped, _TEXT.findall(code)):
        if assembles and (found := _SYSTEM.search(literal)):
            return _BY_ITSELF.format(found[0])
        if _FILE.search(literal):
            return f"the program opens files of processes ({literal!r:.60}): its runs prove nothing"
        if found := _SETTING.search(literal) or rules.EXECUTOR_TEXT.search(literal):
            return f"the program asks how it is run ({found[0]}): its runs prove nothing"
    if found := _NAMESPACE.search(code := _TEXT.sub('""', code)):
        return f"the program turns to the executor ({found[0]}): its runs prove nothing"
    if found := _COUNTS.search(code) or rules.EXECUTOR_FUNCTION.search(code):
        return f"the program turns to the executor ({found[0]}): its runs prove nothing"
    for macro in _MACRO.finditer(code):
        if macro[0].startswith("PORTKERN_") or macro[0] in _header_words():
            return f"the program asks how it is run ({macro[0]}): its runs prove nothing"
    return ""
