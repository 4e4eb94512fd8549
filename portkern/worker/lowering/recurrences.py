"""Recurrent layers: the part of all steps that follows from the input is one product, and what
follows from the state before is computed step by step, a row of the batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy

from portkern.worker.lowering import operations as ops
from portkern.worker.lowering import pointwise
from portkern.worker.lowering.arguments import LoweredArguments
from portkern.worker.lowering.body import Body, Index, Kind, LoweredValue, cast
from portkern.worker.lowering.stages import LoopStage
from portkern.worker.tracing.recurrent import GATES

#: New states from what the gates get of the input and of the state, and the states before.
Step = Callable[[Callable[..., str], Sequence[str], Sequence[str], Sequence[str]], Sequence[str]]


def _plain(name: str) -> Step:
    return lambda say, x, h, old: [say(name, f"{x[0]} + {h[0]}")]


def _gru(
    say: Callable[..., str], x: Sequence[str], h: Sequence[str], old: Sequence[str]
) -> list[str]:
    reset, keep = (say("sigmoid", f"{x[n]} + {h[n]}") for n in (0, 1))
    new = say("tanh", f"{x[2]} + {reset} * {h[2]}")
    return [f"{new} + {keep} * ({old[0]} - {new})"]


def _lstm(
    say: Callable[..., str], x: Sequence[str], h: Sequence[str], old: Sequence[str]
) -> list[str]:
    let_in, keep, let_out = (say("sigmoid", f"{x[n]} + {h[n]}") for n in (0, 1, 3))
    cell = say("", f"{keep} * {old[1]} + {let_in} * {say('tanh', f'{x[2]} + {h[2]}')}")
    return [f"{let_out} * {say('tanh', cell)}", cell]


#: The function of one step, by torch's name of the layer.
_STEPS: Mapping[str, Step] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _plain("tanh"),
    "rnn_relu": _plain("relu"),
}


@dataclass(frozen=True)
class _Layer:
    """A layer in one direction. ``given`` is the input's share in the gates, ``weight`` and
    ``bias`` are for the states; ``place`` is the text of a state by its number, step, row of the
    batch and unit."""

    step: Step
    given: LoweredValue
    weight: LoweredValue
    bias: LoweredValue | None
    gates: int
    states: int
    place: Callable[..., str]
    lengths: tuple[str, str]
    kind: Kind

    def unit(self, body: Body, row: str, at: tuple[str, str, str], j: str) -> None:
        """Writes new states of one unit; ``at``: the step of the input, of the state before it and
        of the state after it."""
        (now, before, after), (batch, units) = at, self.lengths
        rows = [
            j if g == 0 else body.let("int64_t", f"{g} * {units} + {j}") for g in range(self.gates)
        ]
        sums = self._sums(body, rows, before, row)
        flat = body.let("int64_t", f"{now} * {batch} + {row}")
        inputs = [self.given.at(body, (flat, gate)) for gate in rows]
        totals = [body.let(self.kind, cast(total, self._held, self.kind)) for total in sums]
        old = [
            body.let(self.kind, self.place(body, str(n), before, row, j))
            for n in range(self.states)
        ]

        def say(function: str, of: str) -> str:
            value = body.let(self.kind, of)
            return body.let(self.kind, pointwise.written(function, [value], self.kind) or value)

        for n, value in enumerate(self.step(say, inputs, totals, old)):
            body.say(f"{self.place(body, str(n), after, row, j)} = {value};")

    def _sums(self, body: Body, rows: Sequence[str], before: str, row: str) -> list[str]:
        """The share of the state before in each gate."""
        sums = [body.name("a") for _ in rows]
        for total, gate in zip(sums, rows, strict=True):
            start = self.bias.at(body, (gate,)) if self.bias is not None else "0"
            body.say(f"{self._held} {total} = {start};")
        together = f"#pragma omp simd reduction(+ : {', '.join(sums)})"
        with body.loop(self.lengths[1], together) as k:
            state = body.let(self.kind, self.place(body, "0", before, row, k))
            for total, gate in zip(sums, rows, strict=True):
                factor = self.weight.at(body, (gate, k))
                body.say(f"{total} += ({self._held}){state} * {factor};")
        return sums

    @property
    def _held(self) -> Kind:
        return "double" if self.kind == "float" else self.kind


class Recurrences(LoweredArguments):
    """Layers of a recurrent network, and cells that are called once."""

    def op_recurrent(self) -> list[LoweredValue]:
        x, states, weights = (self.get(name) for name in ("x", "states", "weights"))
        directions, first = self.arguments["directions"], self.arguments["batch_first"]
        if first:
            x = ops.permuted(x, (1, 0, 2))
        each = 4 if self.arguments["biased"] else 2
        lasts: list[list[LoweredValue]] = [[] for _ in states]
        for layer in range(len(weights) // each // directions):
            made = []
            for back in range(directions):
                number = layer * directions + back
                own = weights[number * each : (number + 1) * each]
                begun = [_picked(one, str(number)) for one in states]
                every = self._direction(x, own, begun, back=bool(back))
                made.append(_steps(every, back=bool(back)))
                for n, last in enumerate(lasts):
                    end = self.lengths.text(x.shape[0])
                    last.append(_picked(_picked(every, str(n)), "0" if back else end))
            width = sympy.Add(*(one.shape[2] for one in made))
            shape = (*x.shape[:2], width)
            x = made[0] if directions == 1 else ops.joined(made, 2, shape, self.lengths, x.kind)
        stacked = [self._stacked(last) for last in lasts]
        return [ops.permuted(x, (1, 0, 2)) if first else x, *stacked]

    def _stacked(self, values: Sequence[LoweredValue]) -> LoweredValue:
        one, shape = sympy.Integer(1), values[0].shape
        parts = [self.lengths.reshaped(value, (one, *shape)) for value in values]
        whole = (sympy.Integer(len(parts)), *shape)
        return ops.joined(parts, 0, whole, self.lengths, parts[0].kind)

    def _direction(
        self,
        x: LoweredValue,
        weights: Sequence[LoweredValue],
        begun: Sequence[LoweredValue],
        *,
        back: bool,
    ) -> LoweredValue:
        """The states of one layer, first those at the beginning: by state, step, row of the batch
        and unit. Backwards a step's place is that of the input plus 0, else plus 1."""
        steps, batch, width = x.shape
        units, kind, text = begun[0].shape[1], x.kind, self.lengths.text
        given = self._given(self.lengths.reshaped(x, (steps * batch, width)), weights)
        shape = (sympy.Integer(len(begun)), steps + 1, batch, units)
        name = self.graph._buffer(kind, shape)

        def place(body: Body, *index: str) -> str:
            return f"{name}[{self.graph._place(body, name, index, shape)}]"

        layer = _Layer(
            _STEPS[self.arguments["kind"]],
            given,
            weights[1],
            weights[3] if len(weights) > 2 else None,
            GATES[self.arguments["kind"]],
            len(begun),
            place,
            (text(batch), text(units)),
            kind,
        )

        def write(body: Body, index: Index) -> None:
            row, end = index[2], text(steps)
            body.reads.append((name, index))
            with body.loop(text(units)) as j:
                for n, one in enumerate(begun):
                    target = layer.place(body, str(n), end if back else "0", row, j)
                    body.say(f"{target} = {one.at(body, (row, j))};")
            with body.loop(end) as step:
                now = body.let("int64_t", f"{end} - 1 - {step}") if back else step
                more = body.let("int64_t", f"{now} + 1")
                with body.loop(text(units)) as j:
                    layer.unit(body, row, (now, more, now) if back else (now, now, more), j)

        one = sympy.Integer(1)
        work = (steps, units, units)
        self.graph.loops.stages.append(LoopStage(name, (one, one, batch, one), write, work=work))
        return self.graph._stored(name, shape, kind)

    def _given(self, x: LoweredValue, weights: Sequence[LoweredValue]) -> LoweredValue:
        """The share of the input in the gates, for all steps."""
        x, weight = self.graph.loaded(x), ops.permuted(weights[0], (1, 0))
        shape = (x.shape[0], weight.shape[1])
        made = self.graph.kept(ops.product(x, weight, shape, x.kind, self.lengths))
        return self._made("add", made, weights[2]) if len(weights) > 2 else made


def _picked(value: LoweredValue, at: str) -> LoweredValue:
    """One along the first axis."""
    return ops.moved(value, value.shape[1:], lambda body, index: (at, *index))


def _steps(every: LoweredValue, *, back: bool) -> LoweredValue:
    """The output of a layer: its first state after each step."""
    _, count, *shape = every.shape

    def places(body: Body, index: Index) -> Index:
        step = index[0] if back else body.let("int64_t", f"{index[0]} + 1")
        return ("0", step, *index[1:])

    return ops.moved(every, (count - 1, *shape), places)
