"""``torch.utils.cpp_extension.load_inline`` and ``load`` where there is no GPU: what they are given
is built for the executor, and its functions are called there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from portkern.errors import BuildError
from portkern.simt.execute import build, runtime_library
from portkern.simt.execute.build import CompileOptions
from portkern.simt.execute.machine import Language
from portkern.simt.execute.options import Mode
from portkern.simt.torch_extension import bindings
from portkern.spec.backend import Missing
from portkern.spec.target import Target
from portkern.toolchain import torch_extension
from portkern.toolchain.torch_extension import Texts

#: torch makes CUDA's names of HIP's, or the other way round; but what needs HIP's header is HIP.
_LANGUAGE: Language = "cuda"
_OF_HIP = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<hip/", re.MULTILINE)
_CONDITION = re.compile(r"^[ \t]*#[ \t]*if", re.MULTILINE)


class ExtensionBuilder:
    """Builds what candidates ask torch to build, once for each of ``modes``; calls go to the one
    that was built for :attr:`mode`. Device facts are ``target``'s."""

    def __init__(self, target: Target, modes: Sequence[Mode], folder: Path) -> None:
        self.mode: Mode = modes[0]
        self._target, self._modes, self._folder = target, modes, folder
        self._built = 0

    @contextmanager
    def in_mode(self, mode: Mode) -> Iterator[None]:
        before, self.mode = self.mode, mode
        try:
            yield
        finally:
            self.mode = before

    def load_inline(
        self,
        name: str,
        cpp_sources: Texts = (),
        cuda_sources: Texts = (),
        functions: Texts = None,
        *_: object,
        **options: object,
    ) -> InlineExtension:
        """Does what torch's own does; flags of the compilers, and where to build, are not used
        here."""
        if options.get("sycl_sources"):
            raise BuildError(f"load_inline({name!r}): SYCL sources have no model here")
        texts = [*torch_extension.listed(cpp_sources), *torch_extension.listed(cuda_sources)]
        names = (
            list(functions) if isinstance(functions, Mapping) else torch_extension.listed(functions)
        )
        return self._build(name, texts, names)

    def load(self, name: str, sources: Texts, *_: object, **__: object) -> InlineExtension:
        """Builds files that the candidate wrote itself."""
        files = sorted(
            map(Path, torch_extension.listed(sources)), key=lambda file: file.suffix != ".cpp"
        )
        try:
            texts = [file.read_text(encoding="utf-8") for file in files]
        except (OSError, UnicodeDecodeError) as error:
            raise BuildError(
                f"load({name!r}) reads {error}: files do not travel with a candidate; "
                "put the text into load_inline"
            ) from error
        return self._build(name, texts, [])

    def _build(self, name: str, texts: Sequence[str], functions: Sequence[str]) -> InlineExtension:
        text = torch_extension.source_text(name, texts, functions)
        self._built += 1
        plain = re.sub(r"\W", "_", name) or "extension"
        folder = self._folder / f"extension-{self._built}"
        folder.mkdir(parents=True, exist_ok=True)
        source = folder / f"{plain}.cu"
        source.write_text(text, encoding="utf-8")
        libraries = {}
        for mode in self._modes:
            options = CompileOptions(
                target=self._target,
                language=_language(text),
                mode=mode,
                defines=[f"TORCH_EXTENSION_NAME={plain}"],
            )
            library = build.build_extension(source, folder / f"{plain}-{mode}.so", options)
            libraries[mode] = bindings.load(library)
        return InlineExtension(self, plain, libraries)


class InlineExtension:
    """The module that ``load_inline`` returns: the extension's functions as attributes."""

    def __init__(
        self, builder: ExtensionBuilder, name: str, libraries: Mapping[Mode, bindings.Extension]
    ) -> None:
        self._builder, self._libraries = builder, libraries
        self.__name__ = name

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        for library in self._libraries.values():
            getattr(library, name)  # or says which there are

        def call(*given: object, **named: object) -> object:
            library = self._libraries[self._builder.mode]
            return getattr(library, name)(*given, **named)

        call.__name__ = name
        return call


def _language(text: str) -> Language:
    """The language of a source, by what it includes whatever is defined."""
    return "hip" if _OF_HIP.search(_CONDITION.split(text, 1)[0]) else _LANGUAGE


def prepare(target: Target, modes: Iterable[Mode], source: str = "") -> tuple[Path, ...]:
    """The executor's runtime and the headers of extensions, made outside of the jail, as ``source``
    needs them."""
    box = runtime_library.find()
    if isinstance(box, Missing):
        return ()
    box = runtime_library.ready()
    for mode in modes:
        for language in {_LANGUAGE, _language(source)}:
            for torch in {False, language == "cuda"}:  # files of one extension may be of both kinds
                box.headers(language, mode, target, torch=torch)
    return (box.folder,)
