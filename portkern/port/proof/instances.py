"""The arguments that a source gives the template of a kernel: where it launches or names it,
through the templates of the functions that do, and through macros that choose a constant."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from portkern.cuda_source.source_map import Parameter, SourceMap
from portkern.port.proof import dispatch, local_types
from portkern.port.proof.accessors import element_name, shown_element
from portkern.port.proof.commas import of_template, split
from portkern.port.proof.declarations import declared_type, shown_pointee
from portkern.port.proof.element import element_of, plain_type
from portkern.port.proof.expression import Names

#: How many functions may hand an argument on; how many instances are kept of each.
_DEPTH, _MOST = 4, 32
#: The most characters of a template's arguments with what their names are declared as.
_MOST_TEXT = 2000

Bound = Mapping[str, str]
#: A type without ``*``.
_PLAIN = re.compile(r"[A-Za-z_:][\w: ]*(?:<[^*&]*>)?")
#: ``Traits<64, Other<T>>``
_CLASS = re.compile(r"(?:\w*::)*(\w+)(?:\s*<(.*)>)?", re.DOTALL)
#: ``Plus<float>()``, ``Plus{}``
_MADE = re.compile(r"((?:\w*+::)*+\w++(?:\s*+<[^<>]*+>)?+)\s*+(?:\(\s*+\)|\{\s*+\})")


@dataclass(frozen=True)
class Instance:
    """``bound``: what the launching function's own template parameters, and constants that a macro
    chooses, are there."""

    arguments: tuple[str, ...]
    bound: tuple[tuple[str, str], ...] = ()

    @property
    def size(self) -> tuple[int, ...]:
        """Small ones compile fast and run fast."""
        numbers = [int(text) for text in self.arguments if re.fullmatch(r"-?\d+", text)]
        return (sum(map(abs, numbers)), *numbers)


@dataclass(frozen=True)
class _Function:
    template: tuple[Parameter, ...]
    parameters: tuple[Parameter, ...]


def is_type(parameter: Parameter) -> bool:
    return parameter.type.split()[0] in ("typename", "class")


def constants(parameters: Sequence[Parameter], arguments: Sequence[str]) -> dict[str, int]:
    """The template's integers by name."""
    given = {p.name: a for p, a in zip(parameters, arguments, strict=False) if not is_type(p)}
    return numbers(given)


def numbers(given: Mapping[str, str]) -> dict[str, int]:
    words = {"true": "1", "false": "0"}
    plain = {name: words.get(text, text) for name, text in given.items()}
    return {name: int(text) for name, text in plain.items() if re.fullmatch(r"-?\d+", text)}


class Instances:
    """The instances of templates that one program's text launches or names."""

    def __init__(self, text: str, aliases: Mapping[str, str], classes: Collection[str]) -> None:
        self._text, self._aliases, self._classes = text, aliases, classes

    def launched(
        self, name: str, template: Sequence[Parameter], arguments: Sequence[str], before: int
    ) -> list[Instance]:
        """The instances that the launch may have whose ``<<<``, or other first word, begins before
        an offset; the smallest first. Empty where an argument of its template is not known."""
        found = self._resolved(template, arguments, self._place(name, before), _DEPTH)
        return sorted(dict.fromkeys(found), key=lambda instance: instance.size)

    def named(self, name: str, template: Sequence[Parameter]) -> list[Instance]:
        """The instances of a kernel that is launched by another name, or instantiated alone."""
        found = [
            instance
            for at, arguments in self._mentions(name)
            for instance in self._resolved(template, arguments, at, _DEPTH)
        ]
        return sorted(dict.fromkeys(found), key=lambda instance: instance.size)

    def member_type(self, of: str, name: str) -> str:
        """The type that a class calls ``name``, whose template's arguments are all spelled out; ''
        where it has none."""
        return local_types.member_type(self._map, of, name)

    def are_all(self, name: str, before: int) -> bool:
        """Whether each call that leads to the launch before an offset, through templates of
        functions, is of an instance that is known."""
        open_, seen = [self._map.function(self._place(name, before))], set[str]()
        while open_:
            function = open_.pop()
            if function in seen or function not in self._functions:
                continue
            seen.add(function)
            for use, instances in self._instances_of(function, _DEPTH).items():
                count = len(self._templates[function])
                whole = [one for one in instances if len(one.arguments) == count]
                if not whole and self._is_call(function, use):
                    return False
                open_.append(self._map.function(use))
        return True

    def _is_call(self, name: str, at: int) -> bool:
        """Whether a function is called there, with as many arguments as it has parameters."""
        code, parameters = self._map.code, self._functions[name].parameters
        opening = (
            code.close_angle(at + 1, len(code.text)) + 1 if code.text[at + 1] == "<" else at + 1
        )
        if code.text[opening] != "(" or code.text[at - 1] in (".", "->"):
            return False
        count = len(self._map.pieces(opening + 1, code.partner[opening]))
        return sum(not p.default for p in parameters) <= count <= len(parameters)

    def type_of(self, name: str, before: int) -> str:
        """The declared type of a variable that the launch before an offset hands over; '' where it
        is not known."""
        return declared_type(self._map, name, bisect_left(self._begins, before) - 1)

    # ---- the text

    def _place(self, name: str, before: int) -> int:
        """The token of the kernel's name in a launch."""
        code, token = self._map.code, bisect_left(self._begins, before) - 1
        if code.text[token + 1] == "(":  # of a macro, or of a function that launches
            inner = range(token, code.partner[token + 1])
            token = next((i for i in inner if code.text[i] == name), token)
        place = token
        while place > 0 and code.text[place] != name:
            place -= 1
        return place if code.directive(place) == code.directive(token) else token

    @cached_property
    def _map(self) -> SourceMap:
        return SourceMap(self._text)

    @cached_property
    def _begins(self) -> list[int]:
        return [token.begin for token in self._map.code.tokens]

    def _mentions(self, name: str) -> Iterator[tuple[int, tuple[str, ...]]]:
        """``name<…>``, with the token where it stands."""
        code = self._map.code
        for i, text in enumerate(code.text[:-1]):
            if text == name and code.text[i + 1] == "<" and not self._map.is_dead(i):
                close = code.close_angle(i + 1, len(code.text))
                if close > 0:
                    yield i, self._map.pieces(i + 2, close)

    def _uses(self, name: str) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The places where host code calls a function template, or names an instance of it, with
        the arguments of its template: the given ones, then those that its own show."""
        code, function = self._map.code, self._functions[name]
        for i in code.places(name):
            close = code.close_angle(i + 1, len(code.text)) if code.text[i + 1] == "<" else i
            is_called = code.text[close + 1] == "(" and self._map.function(i) != ""
            if close < 0 or self._map.is_dead(i) or not (is_called or close > i):
                continue
            given = self._map.pieces(i + 2, close)
            left = function.template[len(given) :]
            if left and is_called and code.partner[close + 1] > 0:
                own = self._map.pieces(close + 2, code.partner[close + 1])
                given += self._shown(left, function, own, i)
            defaults = (p.default for p in function.template[len(given) :])
            yield i, (*given, *itertools.takewhile(bool, defaults))

    def _shown(
        self, left: Sequence[Parameter], function: _Function, own: Sequence[str], at: int
    ) -> tuple[str, ...]:
        """The arguments of a template, from the first that is left on, that a call's own show."""
        types = deduced(left, function.parameters, own) | declared_types(
            left, function.parameters, own, lambda name: declared_type(self._map, name, at)
        )
        names = itertools.takewhile(types.__contains__, (p.name for p in left))
        return tuple(types[name] for name in names)

    @cached_property
    def _functions(self) -> Mapping[str, _Function]:
        """The functions that are templates, by name; of several of one name the first."""
        code, found = self._map.code, dict[str, _Function]()
        for i, text in enumerate(code.text[:-1]):
            if text != "template" or code.text[i + 1] != "<":
                continue
            close = code.close_angle(i + 1, len(code.text))
            stop = next((j for j in range(close, len(code.text)) if code.text[j] in "{;"), close)
            if close > 0 and (name := self._map.function_before(stop)) and name not in found:
                end = next(j for j in range(stop - 1, close, -1) if code.text[j] == ")")
                parameters = self._map.parameters(code.partner[end] + 1, end)
                found[name] = _Function(self._map.parameters(i + 2, close), parameters)
        return found

    @cached_property
    def _templates(self) -> Mapping[str, tuple[Parameter, ...]]:
        """The template's parameters of each function that has them, by its name."""
        return {name: function.template for name, function in self._functions.items()}

    # ---- arguments

    def _resolved(
        self, template: Sequence[Parameter], arguments: Sequence[str], at: int, depth: int
    ) -> list[Instance]:
        if len(arguments) > len(template):
            return []
        instances = []
        arguments = [local_types.spelled_out(self._map, text, at) for text in arguments]
        for own in self._bindings(arguments, at, depth):
            bound = {**self._constants(own, at), **own}
            names = Names(self._text, numbers(bound))
            offset = self._map.code.tokens[at].begin
            resolved = [
                self._argument(
                    parameter, self._bound(text, bound, names, at), names.value(text, offset)
                )
                for parameter, text in zip(template, arguments, strict=False)
            ]
            known = tuple(text for text in resolved if text is not None)
            if len(known) == len(resolved):
                instances.append(Instance(known, tuple(bound.items())))
        return instances

    def _argument(self, parameter: Parameter, spelled: str, value: int | None) -> str | None:
        """A type, a number, or a function or another constant by its name."""
        if not spelled:
            return None
        if is_type(parameter):
            is_class = (name := _CLASS.fullmatch(spelled)) and name[1] in self._classes
            return spelled if is_class or element_of(spelled, self._aliases) else None
        if value is not None:
            is_bool = "bool" in parameter.type.split()
            return ("false", "true")[bool(value)] if is_bool else str(value)
        kind = parameter.type.replace("const", "").strip()
        is_number = element_of(kind, self._aliases) is not None or kind == "auto"
        is_defined = re.search(rf"\b{re.escape(spelled.rpartition('::')[2])}\s*[(,=}}]", self._text)
        return spelled if not is_number and is_defined else None

    def _instances_of(self, function: str, depth: int) -> Mapping[int, Sequence[Instance]]:
        """The instances of a function template that each of its uses elsewhere makes, by token."""
        template = self._templates.get(function, ())
        return {
            use: self._resolved(template, given, use, depth)
            for use, given in self._uses(function)
            if self._map.function(use) != function
        }

    def _constants(self, bound: Bound, at: int) -> Bound:
        """The constants of classes that the launching function asks for."""
        names = Names(self._text, numbers(bound))

        def spelled(text: str) -> str:
            plain = bound.get(text) or local_types.spelled_out(self._map, text, at)
            return self._bound(plain, bound, names, at)

        return local_types.constants(self._map, at, spelled)

    def _bound(self, text: str, bound: Bound, names: Names, at: int) -> str:
        """An argument with what names of the launching function are; '' where a template's
        parameter among them is not known."""
        match = _CLASS.fullmatch(text)
        if match is None or not match[2]:
            spelled = bound.get(text, text)
            is_open = spelled == text and text in self._open(at)
            return "" if is_open else spelled
        offset, parts = self._map.code.tokens[at].begin, list[str]()
        for part in of_template(match[2]):
            value = names.value(part, offset)
            parts.append(self._bound(part, bound, names, at) if value is None else str(value))
        return f"{text[: match.start(2)]}{', '.join(parts)}>" if all(parts) else ""

    def _open(self, at: int) -> set[str]:
        """The names that the template of the function at a token leaves open."""
        return {p.name for p in self._templates.get(self._map.function(at), ())}

    def _bindings(self, arguments: Sequence[str], at: int, depth: int) -> Sequence[Bound]:
        """The values of the names in the arguments that the function's template or a macro
        binds: one mapping for each way."""
        function = self._map.function(at)
        template = self._templates.get(function, ()) if depth else ()
        chosen = self._chosen(self._leading(arguments, at), at, {p.name for p in template})
        choices = [[(name, value) for value in values] for name, values in chosen.items()]
        of_macros = [dict(pairs) for pairs in itertools.islice(itertools.product(*choices), _MOST)]
        if not template:
            return of_macros
        of_function = [
            dict(zip((p.name for p in template), instance.arguments, strict=False))
            for instances in self._instances_of(function, depth - 1).values()
            for instance in instances
        ]
        return [{**a, **b} for a in of_function[:_MOST] for b in of_macros][:_MOST]

    def _leading(self, arguments: Sequence[str], at: int) -> str:
        """The arguments, and what the function's constants in them are declared as."""
        names, offset = Names(self._text, {}), self._map.code.tokens[at].begin
        before, text = names.before(offset), " ".join(arguments)
        for _ in range(_DEPTH):
            words = dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text))
            more = [before[w] for w in words if w in before and names.is_local(w, offset)]
            longer = " ".join([*arguments, *more])
            if longer == text or len(longer) > _MOST_TEXT:
                break
            text = longer
        return text

    def _chosen(self, text: str, at: int, bound: set[str]) -> dict[str, list[str]]:
        """Constants that a macro around the token defines, of the name that it has or is given."""
        chosen: dict[str, list[str]] = {}
        for macro, arguments in self._around(at):
            defined = dispatch.types_of(macro, list(arguments)) or self._constants_of(macro)
            for name in re.findall(r"[A-Za-z_]\w*", text):
                parameter = name if name in defined else arguments.get(name, name)
                if name not in bound and parameter in defined:
                    chosen.setdefault(name, defined[parameter])
        return chosen

    def _around(self, at: int) -> Iterator[tuple[str, dict[str, str]]]:
        """Uses of macros that the token is an argument of, and what parameter each argument is."""
        code, first = self._map.code, self._map.body(at)[0]
        for i in range(at - 1, max(first, 0), -1):
            known = code.text[i] in self._map.macros or dispatch.is_dispatch(code.text[i])
            if known and code.text[i + 1] == "(":
                if code.partner[i + 1] > at:
                    given = self._map.pieces(i + 2, code.partner[i + 1])
                    names = self._parameters_of(code.text[i]) or given
                    yield code.text[i], dict(zip(given, names, strict=False))

    def _parameters_of(self, macro: str) -> tuple[str, ...]:
        for directive in self._map.code.directives:
            if directive.name == "define" and self._map.code.text[directive.begin + 2] == macro:
                return self._map.macro_parameters(directive.begin)
        return ()

    def _constants_of(self, macro: str, depth: int = _DEPTH) -> dict[str, list[str]]:
        """``NAME = 64;`` and ``using NAME = ns::T;`` in its body, and in those of the macros that
        it uses: all that each name is there."""
        known = self._map.macros.get(macro) if depth else None
        body = [token.text for token in known.body] if known is not None else []
        values: dict[str, list[str]] = {}
        for i in range(1, len(body) - 1):
            if body[i + 1] == "=" and ";" in body[i:]:
                value = body[i + 2 : body.index(";", i)]
                if len(value) == 1 or body[i - 1] == "using":
                    values.setdefault(body[i], []).append("".join(value))
            elif body[i + 1] == "(" and body[i] != macro:
                self._add(values, body[i], body[i + 2 :], depth)
        return {name: list(dict.fromkeys(each)) for name, each in values.items()}

    def _add(self, values: dict[str, list[str]], macro: str, after: list[str], depth: int) -> None:
        """Adds what a macro, which another one uses, makes of names. The names of its parameters
        are those that it is given."""
        given = "".join(after).split(",")
        inner = dispatch.types_of(macro, given) or self._constants_of(macro, depth - 1)
        names = dict(zip(self._parameters_of(macro), given, strict=False))
        for name, each in inner.items():
            values.setdefault(names.get(name, name), []).extend(each)


def declared_types(
    template: Sequence[Parameter],
    parameters: Sequence[Parameter],
    arguments: Sequence[str],
    type_of: Callable[[str], str],
) -> dict[str, str]:
    """The template's types that a launch shows by what its arguments are declared as (``type_of``
    says it of a name) or are spelled as: ``T`` of ``T* x`` where ``double* a`` is given, or
    ``a.data_ptr<double>()``, and of ``T x`` where ``Plus()`` is. Whether such a word is a type is
    not asked."""
    names = {parameter.name for parameter in template if is_type(parameter)}
    found: dict[str, str] = {}
    for parameter, text in zip(parameters, arguments, strict=False):
        spelled = plain_type(parameter.type)
        if (element := element_name(spelled)) in names and (of := shown_element(text)):
            found.setdefault(element, of)
        declared = plain_type(type_of(text)).rstrip("&") if text.isidentifier() else ""
        found |= {n: of for n, of in _of_class(spelled, declared).items() if n in names}
        name, stars = spelled.rstrip("*&"), "*" * spelled.count("*")
        if name not in names or name in found:
            continue
        if not stars and (made := _MADE.fullmatch(text)):
            found[name] = made[1]
        if stars == "*" and (pointee := shown_pointee(text)):
            found[name] = pointee
        of = declared.removesuffix(stars)
        if declared.endswith(stars) and _PLAIN.fullmatch(of):
            found[name] = of
    return found


def _of_class(spelled: str, declared: str) -> dict[str, str]:
    """``T`` of ``P<T>`` where the argument is declared as ``P<float>``."""
    pattern = r"(?:\w*::)*(\w+)\s*<(.*)>&?"
    match, given = re.fullmatch(pattern, spelled), re.fullmatch(pattern, declared)
    if match is None or given is None or match[1] != given[1]:
        return {}
    return dict(zip(split(match[2]), split(given[2]), strict=False))


def deduced(
    template: Sequence[Parameter], parameters: Sequence[Parameter], arguments: Sequence[str]
) -> dict[str, str]:
    """The template's parameters that a launch without ``<…>`` shows by its arguments: ``N`` of
    ``Tag<N>`` where ``Tag<4>{}`` is given."""
    names = {parameter.name for parameter in template}
    found: dict[str, str] = {}
    for parameter, text in zip(parameters, arguments, strict=False):
        spelled = re.search(r"(\w+)\s*<\s*(\w+)\s*>", parameter.type)
        given = re.fullmatch(r"(?:\w+::)*(\w+)\s*<\s*(\w+)\s*>\s*(?:\{\s*\}|\(\s*\))", text)
        if spelled and given and spelled[2] in names and spelled[1] == given[1]:
            found[spelled[2]] = given[2]
    return found
