"""The tree that tree-sitter's grammar of CUDA makes of a source, which includes C++, HIP, OpenCL C.

Where the grammar is at a loss it marks an error and goes on.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, cast

from portkern.cuda_source import comments

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser


#: Seconds of the processor that a parse may take, and for each byte: a sound source takes a
#: thirtieth. Some that are not keep the parser looking for what they could be.
_LIMIT_S, _LIMIT_OF_BYTE_S = 2.0, 1e-5
_PIECE = 1 << 16


class TooLong(ValueError):
    """Raised for a source that takes far longer to parse than others."""


def root(source: str) -> Node:
    """A comment that does not end is none: the grammar looks for its end again and again. Raises
    TooLong."""
    begin = comments.unended(source)
    if begin >= 0:
        source = source[:begin] + source[begin:].replace("/*", "/ ")
    data = source.encode("utf-8", "replace")
    limit_s = _LIMIT_S + _LIMIT_OF_BYTE_S * len(data)
    end = time.thread_time() + limit_s
    try:
        return (
            _parser()
            .parse(
                lambda at, _: data[at : at + _PIECE],
                progress_callback=lambda *_: time.thread_time() > end,
            )
            .root_node
        )
    except ValueError as error:
        _parser().reset()
        raise TooLong(
            f"A source of {len(data)} bytes takes more than {limit_s:.0f} s to parse; no compiler "
            "would have it"
        ) from error


def text(node: Node | None) -> str:
    """A node as it is written; '' for one that is not there."""
    written = node.text if node is not None else None
    return written.decode("utf-8", "replace") if written is not None else ""


def nodes(node: Node, *types: str) -> Iterator[Node]:
    """The nodes of the types (all, when none is named) in reading order, without comments and
    what ``#if 0`` takes out."""
    stack = [node]
    while stack:
        node = stack.pop()
        if node.type == "comment":
            continue
        if not types or node.type in types:
            yield node
        children = node.children
        if node.type == "preproc_if":
            asked = text(node.child_by_field_name("condition")).strip()
            if asked in ("0", "false"):
                otherwise = node.child_by_field_name("alternative")
                children = [otherwise] if otherwise is not None else []
        stack.extend(reversed(children))


#: One of these stands in each level of a tree at least, but for a few; operators may be words.
_NESTING = re.compile(
    rb"[][(){}<>&*!~+\-/%^|=?:,.#]|\b(?:and|or|xor|not|bitand|bitor|compl)(?:_eq)?\b"
    rb"|\b(?:sizeof|alignof|new|delete|throw|requires|co_await|co_yield|do|else|__extension__)\b"
)


def is_deeper(node: Node, most: int) -> bool:
    """Whether a tree has more levels than that."""
    if len(_NESTING.findall(node.text or b"")) <= most // 4:
        return False
    cursor, levels = node.walk(), 0
    while levels <= most:
        if cursor.goto_first_child():
            levels += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False
            levels -= 1
    return True


_of_thread = threading.local()


def _parser() -> Parser:
    """The parser of this thread: while one asks for a piece or whether to go on, another thread may
    have its turn."""
    import tree_sitter

    if not hasattr(_of_thread, "parser"):
        _of_thread.parser = tree_sitter.Parser(_language())
    return cast("Parser", _of_thread.parser)


@cache
def _language() -> Language:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Language(tree_sitter_cuda.language())
