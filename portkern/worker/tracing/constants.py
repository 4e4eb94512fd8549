"""Which sizes follow the numbers at the top of a file: found by changing one at a time, where
tracing alone sees a size that never varies, or inputs that only the file can make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from portkern.spec.from_torch.names import is_identifier
from portkern.spec.from_torch.source import replaceable, with_sizes
from portkern.worker.tracing.calling import FakeCall
from portkern.worker.tracing.loading import load, state_of

#: A file with more numbers has settings of its own that nobody turns one by one.
_MOST = 12
#: Group norms and heads come in fewer.
_MOST_STEP = 256
#: A dimension of a tensor, by what its call knows it by: ``input.0``, ``state.w``, ``output.0``.
Place = tuple[str, int]
#: So many times a number, and so much more.
Multiple = tuple[int, int]


@dataclass(frozen=True)
class Following:
    """The numbers of the file that are lengths, with the places that follow them: each is as long
    as the number, or so many times as long; an output's also by so much longer."""

    places: Mapping[str, Mapping[Place, Multiple]]

    def of(self, place: Place) -> tuple[str, Multiple] | None:
        """The number that this place follows, and what of it."""
        found = ((name, of[place]) for name, of in self.places.items() if place in of)
        return next(found, None)

    def shapes_state(self, name: str) -> bool:
        """Whether the constructor takes this number: parameters are as long."""
        return any(key.startswith("state.") for key, _ in self.places[name])


def following(call: FakeCall, lengths: Iterable[int]) -> Following:
    """The file's numbers that are one of ``lengths``, and the places that follow them. Numbers
    that an input follows in another way, such as an area its sides, do not count."""
    namespace, wanted = vars(call.loaded.namespace), set(lengths)
    own = [
        name
        for name in sorted(replaceable(call.loaded.source))
        if type(namespace.get(name)) is int and namespace[name] in wanted and is_identifier(name)
    ]
    before = call.sizes()
    found: dict[str, Mapping[Place, Multiple]] = {}
    for name in own[:_MOST]:
        value: int = namespace[name]
        for other in (2 * value, value + 1):
            after = _sizes_with(call, {name: other})
            if after is not None and [*after] == [*before]:
                places = _changed(before, after, value, other)
                if any(of == (1, 0) and _is_given(place) for place, of in places.items()):
                    found[name] = places
                break
    return Following(found)


def moving(call: FakeCall, places: Sequence[Place], length: int) -> Mapping[Place, Multiple]:
    """The places that follow these lengths of inputs and state, all of one ``length``, when they
    grow and shrink together; empty where a call at another length fails, or changes a length that
    does not follow, as of a loop with a step."""
    before = call.sizes()
    seen: list[dict[Place, Multiple]] = []
    for other in (length + 3, length // 2 + 1):
        shapes = {
            key: [other if (key, dim) in places else n for dim, n in enumerate(size)]
            for key, size in before.items()
        }
        try:
            outputs = call.outputs(shapes)
        except Exception:  # noqa: BLE001 - of the file's own code, at a size that it was not written for
            return {}
        after = shapes | {f"output.{n}": list(one.shape) for n, one in enumerate(outputs)}
        if [*after] != [*before]:
            return {}
        followed = _changed(before, after, length, other)
        if any(
            old != new and (key, dim) not in followed
            for key, size in before.items()
            for dim, (old, new) in enumerate(zip(size, after[key], strict=False))
        ):
            return {}
        seen.append(followed)
    return seen[0] if seen[0] == seen[1] else {}


def _is_given(place: Place) -> bool:
    return not place[0].startswith("output.")


def step(call: FakeCall, name: str, value: int) -> int:
    """The step by which a number of the file may grow: what it has to be a multiple of, such as
    heads."""
    for by in range(1, min(value, _MOST_STEP) + 1):
        if value % by == 0 and _sizes_with(call, {name: value + by}) is not None:
            return by
    return value


def with_numbers(call: FakeCall, numbers: Mapping[str, int]) -> FakeCall:
    """The same operator of the file with these numbers. Raises what the file raises, and ValueError
    where one of them is how many parameters there are, as a number of layers is."""
    loaded = call.loaded
    again = load(with_sizes(loaded.source, numbers), loaded.filename, loaded.name)
    state = state_of(again)
    if state.keys() != state_of(loaded).keys():
        raise ValueError("other parameters than in the file")
    return FakeCall(again, {key: one for key, one in state.items() if key in call.lifted})


def _sizes_with(call: FakeCall, numbers: Mapping[str, int]) -> dict[str, list[int]] | None:
    try:
        return with_numbers(call, numbers).sizes()
    except Exception:  # noqa: BLE001 - of the file's own code, with a number it was not written for
        return None


def _changed(
    before: Mapping[str, list[int]], after: Mapping[str, list[int]], value: int, other: int
) -> dict[Place, Multiple]:
    """Empty where an input changed in another way than the number did."""
    places: dict[Place, Multiple] = {}
    for key, old in before.items():
        new = after[key]
        if len(new) != len(old):
            return {}
        for dim, (length, now) in enumerate(zip(old, new, strict=True)):
            times = length // value
            if length == now:
                continue
            if (length, now) == (times * value, times * other):
                places[key, dim] = times, 0
            elif _is_given((key, dim)):
                return {}
            elif now - length == other - value:
                places[key, dim] = 1, length - value
    return places
