"""The C++ of a library: an operator of torch for each op, with what it takes, its fall-back, its
gradient and the call of its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from portkern.formats.call_form import CallForm, cpp_expression
from portkern.formats.exported import NoSuchForm
from portkern.ops.formulas import FORMULAS, Formula
from portkern.spec import abi
from portkern.spec.op import CELL, Op, TensorSpec

_SCHEMA_KINDS = {"float32": "float", "int64": "int", "bool": "bool"}
_CPP_KINDS = {"float32": "double", "int64": "int64_t", "bool": "bool"}
_KINDS = {
    "float32": "at::kFloat",
    "int64": "at::kLong",
    "int32": "at::kInt",
    "int8": "at::kChar",
    "uint8": "at::kByte",
}
#: Tensors and numbers that a key holds.
MOST_KEY = 16


@dataclass(frozen=True)
class Operator:
    """``number`` is its place in the library's tables."""

    op: Op
    number: int
    space: str

    @classmethod
    def of(cls, op: Op, number: int, space: str) -> Operator:
        """Raises NoSuchForm for an op that is not one of the shipped ones: a library falls back to
        what it is in PyTorch's C++."""
        if op.name not in FORMULAS or op.file or op.definition:
            raise NoSuchForm("PyTorch's C++ has no formula of it that a library could fall back to")
        made = cls(op, number, space)
        if len(made.key) > MOST_KEY or abi.passes_structures(op.signature):
            raise NoSuchForm("it has more axes or tensors than a library's operator takes")
        return made

    @property
    def formula(self) -> Formula:
        return FORMULAS[self.op.name]

    @cached_property
    def form(self) -> CallForm:
        return CallForm.of(self.op)

    @property
    def key(self) -> tuple[str, ...]:
        """The names that a decision depends on: lengths, then whole numbers among the scalars."""
        return (*self.op.signature.axes, *self.whole)

    @property
    def whole(self) -> tuple[str, ...]:
        """Scalars that have to be equal for a cell to say anything."""
        return tuple(s.name for s in self.op.signature.scalars if s.dtype != "float32")

    # ---- parts of the text

    @property
    def _inputs(self) -> list[str]:
        return [tensor.name for tensor in self.op.signature.inputs]

    @property
    def _scalars(self) -> list[tuple[str, str]]:
        return [(_CPP_KINDS[s.dtype], s.name) for s in self.op.signature.scalars]

    @property
    def _parameters(self) -> str:
        tensors = [f"const Tensor& {name}" for name in self._inputs]
        return ", ".join([*tensors, *(f"{kind} {name}" for kind, name in self._scalars)])

    @property
    def _given(self) -> str:
        return ", ".join([*self._inputs, *(name for _, name in self._scalars)])

    @property
    def _type(self) -> str:
        count = len(self.op.signature.outputs)
        return "Tensor" if count == 1 else f"std::tuple<{', '.join(['Tensor'] * count)}>"

    @property
    def _handle(self) -> str:
        kinds = ["const Tensor&"] * len(self._inputs) + [kind for kind, _ in self._scalars]
        return f"{self._type}({', '.join(kinds)})"

    @property
    def schema(self) -> str:
        signature = self.op.signature
        taken = [f"Tensor {name}" for name in self._inputs]
        for scalar in signature.scalars:
            default = str(scalar.default) if scalar.dtype != "float32" else repr(scalar.default)
            taken.append(f"{_SCHEMA_KINDS[scalar.dtype]} {scalar.name}={default}")
        made = ", ".join(["Tensor"] * len(signature.outputs))
        made = made if len(signature.outputs) == 1 else f"({made})"
        return f"{self.op.name}({', '.join(taken)}) -> {made}"

    def text(self) -> str:
        """All functions of the operator."""
        return "\n".join(
            [self._reference(), self._take(), self._choose(), self._backend(), self._grad()]
        )

    def _reference(self) -> str:
        """The formula; its outputs are contiguous, as a kernel's are."""
        outputs = range(len(self.op.signature.outputs))
        made = f"{self._type} made = {self.formula.forward};"
        if len(outputs) == 1:
            ends = "return made.contiguous();"
        else:
            ends = f"return {{{', '.join(f'std::get<{i}>(made).contiguous()' for i in outputs)}}};"
        return (
            f"{self._type} {self.op.name}_formula({self._parameters}) {{\n  {made}\n  {ends}\n}}\n"
        )

    def _take(self) -> str:
        """Whether a kernel could take them: the key, and the leading dimensions of the outputs."""
        form, signature = self.form, self.op.signature
        cell = next((t.name for t in signature.inputs if t.dtype == CELL), form.first)
        lines = [
            f"const auto kind = {cell}.scalar_type();",
            f"const auto device = {form.first}.device();",
        ]
        for tensor in signature.inputs:
            kind = "kind" if tensor.dtype == CELL else _KINDS[tensor.dtype]
            lines.append(f"if (const int why = plain({tensor.name}, {kind}, device)) return why;")
        for tensor in signature.inputs:
            rank = len(tensor.shape)
            wrong = f"< {rank - 1}" if form.leads(tensor) else f"!= {rank}"
            if wrong != "< 0":
                lines.append(f"if ({tensor.name}.dim() {wrong}) return RANK;")
        for axis, (tensor, place) in form.bound.items():
            name = tensor.name
            if axis == form.lead:
                rest = len(tensor.shape) - 1
                lines.append(f"lead = {name}.sizes().slice(0, {name}.dim() - {rest});")
                lines.append(f"int64_t {axis} = 1;")
                lines.append(f"for (const int64_t length : lead) {axis} *= length;")
            else:
                lines.append(f"const int64_t {axis} = {name}.size({place});")
        for axis, said in form.derived.items():
            text = cpp_expression(said).replace("portkern_floor", "floor_of")
            lines += [f"const int64_t {axis} = {text};", f"if ({axis} < 0) return SIZES;"]
        for tensor in signature.inputs:
            lines.append(f"if (!sized({tensor.name}, {self._sizes(tensor)})) return SIZES;")
        for tensor in signature.outputs:
            empty = " || ".join(f"{axis} == 0" for axis in tensor.shape) or "false"
            lines.append(f"if ({empty}) return EMPTY;")
        lines += self._ranges()
        lines += [
            f"key = {{{', '.join(f'int64_t({name})' for name in self.key)}}};",
            "return OURS;",
        ]
        body = "".join(f"  {line}\n" for line in lines)
        taken = f"{self._parameters}, Key& key, at::IntArrayRef& lead"
        return f"int {self.op.name}_take({taken}) {{\n{body}}}\n"

    def _ranges(self) -> list[str]:
        """Inputs that point into others, and scalars that no workload would have."""
        lines = []
        for tensor, low, high in self.form.indices:
            kind = abi.C_SCALARS.get(tensor.dtype, f"{tensor.dtype}_t")
            lines.append(f"if (!within<{kind}>({tensor.name}, {low}, {high})) return VALUES;")
        return lines + [f"if (!({limit})) return SIZES;" for limit in self.form.limits]

    def _sizes(self, tensor: TensorSpec) -> str:
        leads = self.form.leads(tensor)
        rest = ", ".join(map(str, tensor.shape[leads:]))
        return f"{'lead' if leads else 'at::IntArrayRef{}'}, {{{rest}}}"

    def _choose(self) -> str:
        """The decision for these arguments; where a kernel cannot take them, why."""
        signature, name = self.op.signature, self.op.name
        cell = next((t.name for t in signature.inputs if t.dtype == CELL), self.form.first)
        exact = [
            f"{t.name}.is_floating_point() ? {t.name}.to(at::kDouble) : {t.name}"
            for t in signature.inputs
        ]
        scalars = [scalar for _, scalar in self._scalars]
        numbers = ", ".join(f"double({scalar})" for scalar in scalars)
        several = len(signature.outputs) > 1
        listed = (
            "[](auto all) { return std::apply([](auto... one) { return Tensors{one...}; }, all); }"
            if several
            else "[](Tensor one) { return Tensors{one}; }"
        )
        deterministic = "true" if name == "scatter_add" else "!device.is_cpu()"
        return f"""{self._launch()}
const Choice* {name}_choose({self._parameters}, Key& key, at::IntArrayRef& lead, int& why) {{
  if (policy == NEVER) return why = OFF, nullptr;
  const int dtype = dtype_of({cell}.scalar_type());
  const auto device = {self.form.first}.device();
  const int slot = device_of(device);
  if (dtype < 0) return why = DTYPE, nullptr;
  if (slot < 0) return why = DEVICE, nullptr;
  if (at::globalContext().deterministicAlgorithms() && {deterministic})
    return why = DETERMINISTIC, nullptr;
  if ((why = {name}_take({self._given}, key, lead))) return nullptr;
  const auto call = [&](int kernel) {{
    const auto listed = {listed};
    if (kernel == -1) return listed({name}_formula({self._given}));
    if (kernel == -2) return listed({name}_formula({", ".join([*exact, *scalars])}));
    const auto& kernels = operators[{self.number}].tables[slot][dtype].kernels;
    auto made = {name}_launch(kernels[kernel], key, lead, {self._given});
    return made ? listed(*made) : Tensors{{}};
  }};
  const std::initializer_list<double> numbers = {{{numbers}}};
  const Choice* choice = decide({self.number}, slot, dtype, key, numbers, device, call);
  why = choice->why;
  const auto& kernels = operators[{self.number}].tables[slot][dtype].kernels;
  if (choice->kernel >= 0 && !kernels[choice->kernel].admits(key, numbers))
    return why = SCALARS, nullptr;
  return choice;
}}
"""

    def _launch(self) -> str:
        signature = self.op.signature
        kinds = ["const void*"] * len(signature.inputs) + ["void*"] * len(signature.outputs)
        kinds += ["int64_t"] * len(signature.axes)
        kinds += [abi.C_SCALARS[s.dtype] for s in signature.scalars]
        given = [f"{name}.const_data_ptr()" for name in self._inputs]
        given += [f"{t.name}_.mutable_data_ptr()" for t in signature.outputs]
        given += list(signature.axes)
        given += [f"{abi.C_SCALARS[s.dtype]}({s.name})" for s in signature.scalars]
        lines = [
            f"[[maybe_unused]] const int64_t {axis} = key[{place}];"
            for place, axis in enumerate(signature.axes)
        ]
        cell = next((t.name for t in signature.inputs if t.dtype == CELL), self.form.first)
        for tensor in signature.outputs:
            leads = self.form.leads(tensor)
            rest = ", ".join(map(str, tensor.shape[leads:]))
            sizes = f"joined({'lead' if leads else '{}'}, {{{rest}}})"
            kind = f"{cell}.scalar_type()" if tensor.dtype == CELL else _KINDS[tensor.dtype]
            lines.append(f"Tensor {tensor.name}_ = empty({sizes}, {kind}, {cell}.device());")
        arguments, called = ", ".join(kinds), ", ".join(given)
        outputs = [f"{tensor.name}_" for tensor in signature.outputs]
        made = outputs[0] if len(outputs) == 1 else f"{self._type}({', '.join(outputs)})"
        body = "".join(f"  {line}\n" for line in lines)
        numbers = ", ".join(f"double({s.name})" for s in signature.scalars)
        tensors = ", ".join(
            [*(f"const_cast<void*>({n}.const_data_ptr())" for n in self._inputs)]
            + [f"{t.name}_.mutable_data_ptr()" for t in signature.outputs]
        )
        return f"""
// Nothing where the kernel ends with an error.
std::optional<{self._type}> {self.op.name}_launch(
    const Kernel& kernel, const Key& key, at::IntArrayRef lead, {self._parameters}) {{
{body}  int code = 0;
#ifdef PORTKERN_CUDA
  if ({self.form.first}.is_cuda()) {{
    const c10::cuda::CUDAGuard guard({self.form.first}.device());
    void* const stream = static_cast<void*>(c10::cuda::getCurrentCUDAStream().stream());
    code = kernel.plan
        ? kernel.plan->run(key, {{{tensors}}}, {{{numbers}}}, {self.form.first}.device(), stream)
        : reinterpret_cast<int (*)({arguments}, void*)>(kernel.function)({called}, stream);
  }} else
#endif
  code = reinterpret_cast<int (*)({arguments})>(kernel.function)({called});
  if (code) return std::nullopt;
  return {made};
}}
"""

    def _backend(self) -> str:
        name = self.op.name
        return f"""
{self._type} {name}_backend({self._parameters}) {{
  const WhileCaptured hold({self.form.first}.device());
  Key key;
  at::IntArrayRef lead;
  int why = OURS;
  const Choice* choice = {name}_choose({self._given}, key, lead, why);
  if (choice) choice->calls.fetch_add(1, std::memory_order_relaxed);
  if (choice && choice->kernel >= 0) {{
    const int slot = device_of({self.form.first}.device());
    const int dtype = dtype_of({self._cell}.scalar_type());
    const Kernel kernel = operators[{self.number}].tables[slot][dtype].kernels[choice->kernel];
    if (auto made = {name}_launch(kernel, key, lead, {self._given})) return *std::move(made);
    why = FAILED;
  }}
  operators[{self.number}].fallen[why].fetch_add(1, std::memory_order_relaxed);
  return {name}_formula({self._given});
}}

// The reason, the kernel, the number of the record, and the distance of its cell in thousandths.
std::vector<int64_t> {name}_explain({self._parameters}) {{
  Key key;
  at::IntArrayRef lead;
  int why = OURS;
  const Choice* choice = {name}_choose({self._given}, key, lead, why);
  if (!choice) return {{why, -1, -1, -1000}};
  return {{why, choice->kernel, choice->cell, int64_t(choice->distance * 1000)}};
}}
"""

    @property
    def _cell(self) -> str:
        inputs = self.op.signature.inputs
        return next((t.name for t in inputs if t.dtype == CELL), self.form.first)

    @property
    def _floating(self) -> list[int]:
        """The places of the outputs that have a gradient."""
        outputs = enumerate(self.op.signature.outputs)
        return [place for place, t in outputs if t.dtype == CELL or "float" in t.dtype]

    def _grad(self) -> str:
        """Below autograd the operator itself; the formula where a transform looks on."""
        name, given = self.op.name, self._given
        call = (
            "static auto op = c10::Dispatcher::singleton()"
            f'.findSchemaOrThrow("{self.space}::{name}", "").typed<{self._handle}>();'
        )
        if not self.formula.differentiable:
            below = "  at::AutoDispatchBelowADInplaceOrView below;\n"
            below += f"  {call}\n  return op.call({given});\n"
            return f"{self._type} {name}_autograd({self._parameters}) {{\n{below}}}\n"
        floats = [t.name for t in self.op.signature.inputs if t.dtype == CELL or "float" in t.dtype]
        wanted = " || ".join(f"{one}.requires_grad()" for one in floats)
        several = len(self.op.signature.outputs) > 1
        applied = f"{name}_grad::apply({given})"
        if several:
            each = ", ".join(f"all[{i}]" for i in range(len(self.op.signature.outputs)))
            applied = f"[&] {{ auto all = {applied}; return {self._type}({each}); }}()"
        listed = ", ".join(f"std::cref({one})" for one in self._inputs)
        return f"""{self._function(call, floats)}
{self._type} {name}_autograd({self._parameters}) {{
  if (transformed({{{listed}}})) return {name}_formula({given});
  if (at::GradMode::is_enabled() && ({wanted})) return {applied};
  at::AutoDispatchBelowADInplaceOrView below;
  {call}
  return op.call({given});
}}
"""

    def _function(self, call: str, floats: Sequence[str]) -> str:
        name, inputs = self.op.name, self._inputs
        outputs = self.op.signature.outputs
        several, closed = len(outputs) > 1, bool(self.formula.backward)
        taken = [f"Tensor {one}" for one in inputs] + [
            f"{kind} {one}" for kind, one in self._scalars
        ]
        saved = [*inputs, *(["y"] if closed else [])]
        stored = " ".join(f'ctx->saved_data["{one}"] = {one};' for _, one in self._scalars)
        getter = {"double": "toDouble", "int64_t": "toInt", "bool": "toBool"}
        loaded = " ".join(
            f'[[maybe_unused]] const {kind} {one} = ctx->saved_data["{one}"].{getter[kind]}();'
            for kind, one in self._scalars
        )
        tensors = " ".join(
            f"[[maybe_unused]] const Tensor& {one} = saved[{place}];"
            for place, one in enumerate(saved)
        )
        if several:
            whole = [i for i in range(len(outputs)) if i not in self._floating]
            marked = ", ".join(f"std::get<{i}>(y)" for i in whole)
            made = ", ".join(f"std::get<{i}>(y)" for i in range(len(outputs)))
            ends = (
                f"ctx->mark_non_differentiable({{{marked}}});\n    return variable_list{{{made}}};"
            )
        else:
            ends = "return y;"
        made_of = "variable_list" if several else "Tensor"
        return f"""
struct {name}_grad : torch::autograd::Function<{name}_grad> {{
  static {made_of} forward(AutogradContext* ctx, {", ".join(taken)}) {{
    at::AutoDispatchBelowADInplaceOrView below;
    {call}
    auto y = op.call({self._given});
    ctx->save_for_backward({{{", ".join(saved)}}});
    {stored}
    {ends}
  }}
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {{
    const auto saved = ctx->get_saved_variables();
    [[maybe_unused]] const Tensor& g = gradients[0];
    {tensors}
    {loaded}
{self._closed() if closed else ""}{self._again(floats)}
  }}
}};"""

    def _closed(self) -> str:
        """The line that ends a backward without a gradient to follow: not all of these have one."""
        given = [*self.formula.backward]
        given += ["Tensor()"] * (len(self._inputs) - len(given) + len(self._scalars))
        return f"    if (!at::GradMode::is_enabled()) return {{{', '.join(given)}}};\n"

    def _again(self, floats: Sequence[str]) -> str:
        """The formula once more, with its own gradient, which a second one can be taken of."""
        lines = [
            "const bool twice = at::GradMode::is_enabled();",
            "at::AutoGradMode record(true);",
        ]
        lines += [
            f"const Tensor {one}_ = twice ? {one} : leaf({one});"
            if one in floats
            else f"const Tensor {one}_ = {one};"
            for one in self._inputs
        ]
        scalars = [one for _, one in self._scalars]
        again = (
            f"{self.op.name}_formula({', '.join([*(f'{one}_' for one in self._inputs), *scalars])})"
        )
        lines.append(f"const auto made = {again};")
        lines.append("variable_list given, of, wanted; std::vector<int> places;")
        for place in self._floating:
            one = f"std::get<{place}>(made)" if len(self.op.signature.outputs) > 1 else "made"
            lines.append(
                f"if (gradients[{place}].defined()) "
                f"{{ given.push_back({one}); of.push_back(gradients[{place}]); }}"
            )
        for place, one in enumerate(self._inputs):
            if one in floats:
                lines.append(
                    f"if (ctx->needs_input_grad({place}) && {one}_.requires_grad()) "
                    f"{{ wanted.push_back({one}_); places.push_back({place}); }}"
                )
        lines += [
            f"variable_list all({len(self._inputs) + len(self._scalars)});",
            "if (wanted.empty() || given.empty()) return all;",
            "const auto found =",
            "    torch::autograd::grad(given, wanted, of, std::nullopt, twice, true);",
            "for (size_t i = 0; i < places.size(); ++i) all[places[i]] = found[i];",
            "return all;",
        ]
        return "".join(f"    {line}\n" for line in lines)


def translation_unit(operators: Sequence[Operator]) -> str:
    """The whole of a library's C++."""
    space = operators[0].space
    parts = [
        f"// Generated by portkern.\n#define OPERATORS {len(operators)}\n"
        '#include "library.h"\n\nnamespace {\n'
    ]
    parts += [operator.text() for operator in operators]
    parts.append("}  // namespace\n")
    defined = []
    for one in operators:
        defined.append(f'  m.def("{one.schema}", {{at::Tag::pt2_compliant_tag}});')
        head = replace(one).schema.partition("(")[2].partition(")")[0]
        defined.append(f'  m.def("_explain_{one.op.name}({head}) -> int[]");')
    body = "\n".join(defined)
    parts.append(f"TORCH_LIBRARY({space}, m) {{\n{body}\n}}\n")
    for key in ("CPU", "CUDA"):
        parts.append(_registered(space, key, operators, "backend"))
    parts.append(_registered(space, "Autograd", operators, "autograd"))
    for key in ("AutocastCPU", "AutocastCUDA", "FuncTorchBatched"):  # as the formula does there
        parts.append(_registered(space, key, operators, "formula"))
    explained = "\n".join(
        f'  m.impl("_explain_{one.op.name}", &{one.op.name}_explain);' for one in operators
    )
    parts.append(f"TORCH_LIBRARY_IMPL({space}, CompositeExplicitAutograd, m) {{\n{explained}\n}}\n")
    for one in operators:
        scalars = len(one.whole)
        parts.append(
            f"static const int {one.op.name}_scalars = operators[{one.number}].scalars = {scalars};"
        )
    return "\n".join(parts) + "\n"


def _registered(space: str, key: str, operators: Sequence[Operator], suffix: str) -> str:
    lines = [f'  m.impl("{one.op.name}", &{one.op.name}_{suffix});' for one in operators]
    body = "\n".join(lines)
    return f"TORCH_LIBRARY_IMPL({space}, {key}, m) {{\n{body}\n}}\n"
