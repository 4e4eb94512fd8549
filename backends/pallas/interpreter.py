"""Runs a ``pallas_call`` on a CPU as its Triton lowering would on a GPU, and says what is wrong.

Pallas' own interpreter moves a block that leaves its array back into it, gives programs the outputs
of those before them, and drops what is stored behind the end. Here each program reads and writes
the arrays themselves, which lie within margins of poison; every access is counted that leaves its
array, or meets what another program wrote or read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from portkern.spec.json_types import Json

from .region import BlockRegion, RegionOperand, Value

if TYPE_CHECKING:
    import jax

#: What is wrong with an access, in the order in which it is counted, and how that is said.
CODES = {
    "outside-array": "outside of",
    "shared-between-programs": "that another program wrote or read: programs run in any order, of",
    "uninitialized-read": "before anything was written there, of",
}
#: Owners of an element that are not a program's number plus one: nobody, or several.
_NOBODY, _SEVERAL = 0, -(1 << 31)
_SHOWN_SITES = 64  # of the findings of one call

Access = Literal["load", "store", "atomic"]


class AccessSite(NamedTuple):
    """An access as its source writes it; the same in a loop is one."""

    operand: int
    access: Access
    place: str


@dataclass
class InterpreterFindings:
    """The faults in calls of a kernel since :meth:`clear`."""

    counts: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str, str, str], int] = field(default_factory=dict)

    #: No ``pallas_call`` is asked to be interpreted: its lowering for the CPU does so.
    interpret = None

    def install(self) -> None:
        """Have jax lower every ``pallas_call`` for the CPU to what runs it here, also where it asks
        for no interpreter; one of Mosaic's stays. Raises ImportError where the installed jax is
        made otherwise."""
        from jax._src.interpreters import mlir
        from jax._src.pallas.pallas_call import _pallas_call_lowering, pallas_call_p

        def lowered(context: Any, *nodes: Any, interpret: Any, **params: Any) -> Any:
            if interpret and interpret is not True:
                return _pallas_call_lowering(context, *nodes, interpret=interpret, **params)
            run = partial(_interpret, self, **params)
            return mlir.lower_fun(run, multiple_results=True)(context, *nodes)

        mlir.register_lowering(pallas_call_p, lowered, platform="cpu")

    def call(self, kernel: Callable[[], object]) -> object:
        self.clear()
        return kernel()

    def clear(self) -> None:
        self.counts.clear()
        self.first.clear()

    def add(self, kernel: str, said: Sequence[tuple[AccessSite, str]], counted: Any) -> None:
        """``counted`` holds a row for each site: how often each code, and the first program."""
        for (site, name), row in zip(said, counted.tolist(), strict=True):
            for code, words, count in zip(CODES, CODES.values(), row[:-1], strict=False):
                if count:
                    message = f"{site.access}s elements {words} {name}"
                    key = (code, message, site.place, kernel)
                    self.counts[key] += count
                    self.first.setdefault(key, row[-1])

    def __call__(self) -> Sequence[dict[str, Json]]:
        import jax

        jax.effects_barrier()  # type: ignore[no-untyped-call]
        return [
            {
                "code": key[0],
                "severity": "error",
                "message": f"{key[1]} ({count} in all, first in program {self.first[key]})",
                "place": key[2],
                "kernel": key[3],
                "count": count,
            }
            for key, count in self.counts.most_common(_SHOWN_SITES)
        ]


class GuardedArray(NamedTuple):
    """An array within its margins. Of an element of an output ``writer`` and ``reader`` are numbers
    of programs plus one (negative: by an atomic operation)."""

    data: jax.Array
    writer: jax.Array | None
    reader: jax.Array | None


class InterpreterState(NamedTuple):
    memories: tuple[GuardedArray, ...]
    counted: jax.Array  # a row for each site


def _interpret(findings: InterpreterFindings, *args: Value, **params: Any) -> Sequence[Value]:
    mapping, jaxpr = params["grid_mapping"], params["jaxpr"]
    if mapping.num_dynamic_grid_bounds or mapping.num_index_operands:
        raise NotImplementedError("the Triton lowering has no dynamic grid and no scalar prefetch")
    if len(jaxpr.invars) != len(mapping.block_mappings):
        raise NotImplementedError("the Triton lowering has no scratch memory")
    return _Call(findings, jaxpr, mapping, dict(params["input_output_aliases"])).run(args)


class _Call:
    """One ``pallas_call``. It is traced twice: to learn which accesses there are and how far they
    reach, which is how wide the margins have to be, and to run."""

    def __init__(
        self, findings: InterpreterFindings, jaxpr: Any, mapping: Any, aliases: dict[int, int]
    ) -> None:
        self.findings, self.jaxpr, self.mapping = findings, jaxpr, mapping
        self.inputs = len(mapping.block_mappings) - mapping.num_outputs
        self.alias_of = {output: source for source, output in aliases.items()}
        self.operands = [self._operand(k) for k in range(len(mapping.block_mappings))]
        self.sites: dict[AccessSite, int] = {}
        self.reach = [[1] * len(operand.shape) for operand in self.operands]
        self.loaded: set[int] = set()  # memories that something is loaded from
        self.learning = True

    def _operand(self, number: int) -> RegionOperand:
        from jax._src.pallas import core

        block = self.mapping.block_mappings[number]
        output = number - self.inputs
        aliased = output >= 0 and output in self.alias_of
        names = self.jaxpr.debug_info.arg_names or ()
        name = names[number] if number < len(names) else f"operand {number}"
        aval = block.array_aval
        return RegionOperand(
            number,
            f"{name}, {aval.dtype.name}{list(aval.shape)}",
            tuple(aval.shape),
            aval.dtype,
            tuple(isinstance(dim, core.Squeezed) for dim in block.block_shape),
            self.alias_of[output] if aliased else number,
            written=output >= 0 or number in self.alias_of.values(),
        )

    def run(self, args: Sequence[Value]) -> Sequence[Value]:
        import jax
        import jax.numpy as jnp

        jax.eval_shape(self._all_programs, self._state(args))
        self.learning = False
        final = self._all_programs(self._state(args))
        said = [(site, self.operands[site.operand].name) for site in self.sites]
        kernel = self.jaxpr.debug_info.func_name
        jax.debug.callback(partial(self.findings.add, kernel, said), final.counted)
        outputs = [self._inner(final, operand) for operand in self.operands[self.inputs :]]
        return [jnp.asarray(output) for output in outputs]

    def _state(self, args: Sequence[Value]) -> InterpreterState:
        import jax.numpy as jnp

        memories = []
        for operand in self.operands:
            low = [0 if self.learning else reach for reach in self.margins(operand)]
            poison = _poison((), operand.dtype)
            if operand.number < self.inputs:
                data = jnp.pad(args[operand.number], [(k, k) for k in low], constant_values=poison)
            else:
                data = _poison(
                    tuple(n + 2 * k for n, k in zip(operand.shape, low, strict=True)), operand.dtype
                )
            nobody = jnp.zeros(data.shape, jnp.int32)
            memories.append(
                GuardedArray(
                    data,
                    nobody if operand.written else None,
                    nobody if operand.written and operand.memory in self.loaded else None,
                )
            )
        counted = jnp.zeros((len(self.sites), len(CODES) + 1), jnp.int32)
        return InterpreterState(tuple(memories), counted)

    def margins(self, operand: RegionOperand) -> list[int]:
        """The widest margins that operands of one memory need."""
        same = [o.number for o in self.operands if o.memory == operand.memory]
        return [max(sizes) for sizes in zip(*(self.reach[number] for number in same), strict=True)]

    def _inner(self, state: InterpreterState, operand: RegionOperand) -> Value:
        low = self.margins(operand)
        places = tuple(slice(k, k + n) for k, n in zip(low, operand.shape, strict=True))
        return state.memories[operand.memory].data[places]

    def _all_programs(self, state: InterpreterState) -> InterpreterState:
        import jax

        count = math.prod(self.mapping.grid)
        return jax.lax.fori_loop(0, count, self._program, state)  # type: ignore[no-any-return]

    def _program(self, number: Value, state: InterpreterState) -> InterpreterState:
        import jax.numpy as jnp
        from jax._src.pallas import core

        places = jnp.unravel_index(number, self.mapping.grid) if self.mapping.grid else ()
        places = tuple(place.astype(jnp.int32) for place in places)
        grid = [
            core.GridAxis(place, size)
            for axis, (place, size) in enumerate(zip(places, self.mapping.grid, strict=True))
            if axis not in self.mapping.vmapped_dims
        ]
        with core.grid_env(grid):
            for operand, block in zip(self.operands, self.mapping.block_mappings, strict=True):
                operand.start = block.compute_start_indices_interpret(places)
            run = _Program(self, state, number.astype(jnp.int32))
            run.evaluate(self.jaxpr, (), self.operands)
        return run.state

    def block_shape(self, operand: RegionOperand) -> tuple[int, ...]:
        from jax._src.pallas import core

        return tuple(core._get_block_shape(self.mapping.block_mappings[operand.number].block_shape))

    def site(self, operand: RegionOperand, access: Access, eqn: Any) -> int:
        return self.sites.setdefault(
            AccessSite(operand.number, access, _place(eqn)), len(self.sites)
        )


class _Program:
    """One program of the grid, evaluated while jax traces: ``state`` is what it leaves."""

    def __init__(self, call: _Call, state: InterpreterState, number: Value) -> None:
        self.call, self.state, self.number = call, state, number
        self.used: set[Any] = set()

    def evaluate(self, jaxpr: Any, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        from jax._src import core

        known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
        self.used |= {atom for eqn in jaxpr.eqns for atom in eqn.invars if _is_variable(atom)}
        self.used |= {atom for atom in jaxpr.outvars if _is_variable(atom)}

        def read(atom: Any) -> Value:
            return atom.val if isinstance(atom, core.Literal) else known[atom]

        for eqn in jaxpr.eqns:
            values = [read(atom) for atom in eqn.invars]
            results = self._step(eqn, values)
            known |= zip(eqn.outvars, results, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def _step(self, eqn: Any, values: list[Value]) -> Sequence[Value]:
        name, params = eqn.primitive.name, eqn.params
        accessed = _ACCESSES.get(name)
        if accessed is not None and isinstance(values[0], RegionOperand):
            return accessed(self, eqn, values)
        flow: dict[str, Callable[..., Sequence[Value]]] = {
            "scan": self._scan, "while": self._while, "cond": self._cond,
        }  # fmt: skip
        if name in flow:
            return flow[name](values, **params)
        inner = next((params[key] for key in _CALLED if key in params), None)
        if inner is not None:
            body = getattr(inner, "jaxpr", inner)
            return self.evaluate(body, getattr(inner, "consts", ()), values[-len(body.invars) :])
        if any(isinstance(value, RegionOperand) for value in values):
            raise NotImplementedError(f"{name} of a reference, which the Triton lowering lacks")
        result = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(params))
        return result if eqn.primitive.multiple_results else [result]

    def _scan(self, values: list[Value], **params: Any) -> Sequence[Value]:
        import jax

        fixed, carried = params["num_consts"], params["num_carry"]
        consts, initial = values[:fixed], values[fixed : fixed + carried]
        body = params["jaxpr"]

        def step(carry: Value, row: Value) -> Value:
            self.state, held = carry
            results = self.evaluate(body.jaxpr, body.consts, [*consts, *held, *row])
            return (self.state, results[:carried]), results[carried:]

        start = (self.state, initial)
        options = {key: params[key] for key in ("length", "reverse", "unroll")}
        (self.state, held), rows = jax.lax.scan(step, start, values[fixed + carried :], **options)
        return [*held, *rows]

    def _while(self, values: list[Value], **params: Any) -> Sequence[Value]:
        import jax

        first, second = params["cond_nconsts"], params["body_nconsts"]
        asked, consts = values[:first], values[first : first + second]
        test, body = params["cond_jaxpr"], params["body_jaxpr"]

        def again(carry: Value) -> Value:
            self.state, held = carry  # what the question itself reads is looked at in the body
            return self.evaluate(test.jaxpr, test.consts, [*asked, *held])[0]

        def step(carry: Value) -> Value:
            self.state, held = carry
            self.evaluate(test.jaxpr, test.consts, [*asked, *held])
            held = self.evaluate(body.jaxpr, body.consts, [*consts, *held])
            return self.state, held

        self.state, held = jax.lax.while_loop(again, step, (self.state, values[first + second :]))
        return held

    def _cond(self, values: list[Value], **params: Any) -> Sequence[Value]:
        import jax

        index, *given = values

        def branch(body: Any) -> Callable[[InterpreterState], Value]:
            def taken(state: InterpreterState) -> Value:
                self.state = state
                return self.evaluate(body.jaxpr, body.consts, given), self.state

            return taken

        results, self.state = jax.lax.switch(index, [*map(branch, params["branches"])], self.state)
        return results  # type: ignore[no-any-return]

    # What an access does to the memory of its operand.

    def load(self, eqn: Any, operand: RegionOperand, where: BlockRegion, other: Value) -> Value:
        import jax.numpy as jnp

        site = self.call.site(operand, "load", eqn)
        if self.call.learning:
            self.call.loaded.add(operand.memory)
            return jnp.zeros(where.shape, operand.dtype)
        memory = self.state.memories[operand.memory]
        value = where.read(memory.data)
        inside = where.allowed & where.inside
        self._count(site, "outside-array", where.allowed & ~where.inside)
        if memory.writer is not None and memory.reader is not None:
            writer, reader = where.read(memory.writer), where.read(memory.reader)
            foreign = self._foreign(writer, atomic=False)
            count = self._count(site, "shared-between-programs", inside & foreign)
            if operand.number >= self.call.inputs and operand.memory == operand.number:
                self._count(site, "uninitialized-read", inside & (writer == _NOBODY))
            mine = jnp.where(self._foreign(reader, atomic=False), _SEVERAL, self.number + 1)
            self._update(operand, reader=where.write(memory.reader, mine, inside, count))
        unknown = _poison((), operand.dtype) if other is None else other
        return jnp.where(where.allowed, value, jnp.asarray(unknown, operand.dtype))

    def store(
        self,
        eqn: Any,
        operand: RegionOperand,
        where: BlockRegion,
        combine: Callable[[Value], Value],
        *,
        atomic: bool,
    ) -> Value:
        """Returns what was there. ``combine`` makes of it what is there now."""
        import jax.numpy as jnp

        site = self.call.site(operand, "atomic" if atomic else "store", eqn)
        if self.call.learning:
            return jnp.zeros(where.shape, operand.dtype)
        memory = self.state.memories[operand.memory]
        old = where.read(memory.data)
        new = jnp.broadcast_to(combine(old), old.shape)
        inside = where.allowed & where.inside
        self._count(site, "outside-array", where.allowed & ~where.inside)
        if memory.writer is None:  # an input's memory is not the kernel's
            self._count(site, "outside-array", inside)
            return old
        writer = where.read(memory.writer)
        foreign = self._foreign(writer, atomic=atomic)
        if memory.reader is not None:
            foreign |= self._foreign(where.read(memory.reader), atomic=False)
        # Two programs that store equal values, as where blocks overlap at a ragged end, may.
        count = self._count(site, "shared-between-programs", inside & foreign & _differ(old, new))
        me = self.number + 1
        if atomic:
            fresh = (writer == _NOBODY) | (writer == -me)
            mine = jnp.where(fresh, -me, jnp.where(writer == me, me, _SEVERAL))
        else:
            mine = jnp.full(writer.shape, me)
        self._update(
            operand,
            data=where.write(memory.data, new, inside, count),
            writer=where.write(memory.writer, mine, inside, count),
        )
        return old

    def _foreign(self, owner: Value, *, atomic: bool) -> Value:
        """Whether another program's access collides with this one's."""
        me = self.number + 1
        free = (owner == _NOBODY) | (owner == me) | (owner == -me)
        return ~(free | (owner < 0)) if atomic else ~free

    def _update(self, operand: RegionOperand, **changed: Value) -> None:
        memories = list(self.state.memories)
        memories[operand.memory] = memories[operand.memory]._replace(**changed)
        self.state = self.state._replace(memories=tuple(memories))

    def _count(self, site: int, code: str, wrong: Value) -> Value:
        import jax.numpy as jnp

        counted, column = self.state.counted, list(CODES).index(code)
        count = jnp.sum(wrong, dtype=jnp.int32)
        first = (count > 0) & (jnp.sum(counted[site, :-1]) == 0)
        counted = counted.at[site, column].add(count)
        counted = counted.at[site, -1].set(jnp.where(first, self.number, counted[site, -1]))
        self.state = self.state._replace(counted=counted)
        return count


def _region(
    program: _Program, operand: RegionOperand, transforms: Sequence[Any], mask: Value
) -> BlockRegion:
    region = BlockRegion(operand, program.call.block_shape(operand), transforms, mask)
    reach = program.call.reach[operand.number]
    reach[:] = [max(known, int(size)) for known, size in zip(reach, region.sizes, strict=True)]
    region.low = program.call.margins(operand)
    return region


def _get(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    from jax import tree_util

    operand, *rest = values
    transforms = tree_util.tree_unflatten(eqn.params["tree"], rest)
    return [program.load(eqn, operand, _region(program, operand, transforms, None), None)]


def _masked_load(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    operand, transforms, mask, other = eqn.params["args_tree"].unflatten(values)
    return [program.load(eqn, operand, _region(program, operand, transforms, mask), other)]


def _swap(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    from jax import tree_util

    operand, value, *rest = values
    transforms = tree_util.tree_unflatten(eqn.params["tree"], rest)
    return _stored(program, eqn, operand, transforms, value, None)


def _masked_swap(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    operand, transforms, value, mask = eqn.params["args_tree"].unflatten(values)
    return _stored(program, eqn, operand, transforms, value, mask)


def _stored(
    program: _Program, eqn: Any, operand: RegionOperand, transforms: Any, value: Value, mask: Value
) -> Sequence[Value]:
    where = _region(program, operand, transforms, mask)
    if eqn.outvars[0] in program.used:  # the old value is asked for, too
        program.load(eqn, operand, where, None)
    return [program.store(eqn, operand, where, lambda _: value, atomic=False)]


def _add_update(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    from jax import tree_util

    operand, value, *rest = values
    where = _region(program, operand, tree_util.tree_unflatten(eqn.params["tree"], rest), None)
    program.store(eqn, operand, where, lambda old: old + value, atomic=True)
    return []


def _atomic(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    import jax.numpy as jnp

    operand, transforms, value, mask = eqn.params["args_tree"].unflatten(values)
    combine: dict[str, Callable[[Value], Value]] = {
        "xchg": lambda _: value,
        "add": lambda old: old + value,
        "max": lambda old: jnp.maximum(old, value),
        "min": lambda old: jnp.minimum(old, value),
        "and": lambda old: old & value,
        "or": lambda old: old | value,
        "xor": lambda old: old ^ value,
    }
    where = _region(program, operand, transforms, mask)
    made = combine[eqn.params["atomic_type"].value]
    return [program.store(eqn, operand, where, made, atomic=True)]


def _compare_and_swap(program: _Program, eqn: Any, values: list[Value]) -> Sequence[Value]:
    import jax.numpy as jnp

    operand, expected, value = values
    where = _region(program, operand, (), None)

    def combine(old: Value) -> Value:
        return jnp.where(old == expected, value, old)

    return [program.store(eqn, operand, where, combine, atomic=True)]


_ACCESSES: dict[str, Callable[[_Program, Any, list[Value]], Sequence[Value]]] = {
    "get": _get,
    "masked_load": _masked_load,
    "swap": _swap,
    "masked_swap": _masked_swap,
    "addupdate": _add_update,
    "atomic_rmw": _atomic,
    "atomic_cas": _compare_and_swap,
}
#: Parameters of primitives that call a program of their own once.
_CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def _poison(shape: tuple[int, ...], dtype: Any) -> Value:
    from jax._src.pallas import primitives

    return primitives.uninitialized_value(shape, dtype)  # type: ignore[no-untyped-call]


def _differ(old: Value, new: Value) -> Value:
    """Whether values differ in a bit."""
    import jax
    import jax.numpy as jnp

    if jnp.issubdtype(old.dtype, jnp.floating):
        bits = jnp.dtype(f"uint{old.dtype.itemsize * 8}")
        old, new = (jax.lax.bitcast_convert_type(x, bits) for x in (old, new.astype(old.dtype)))
    return old != new


def _is_variable(atom: Any) -> bool:
    from jax._src import core

    return isinstance(atom, core.Var)


def _place(eqn: Any) -> str:
    from jax._src import source_info_util

    frame = source_info_util.user_frame(eqn.source_info.traceback)
    return f"{Path(frame.file_name).name}:{frame.start_line}" if frame else ""
