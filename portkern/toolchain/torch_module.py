"""A candidate's class ModelNew as a kernel: constructed as the op's file says, with the parameters
that each call passes. Used inside the worker."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError, LaunchError
from portkern.spec.backend import Artifact, Build, Call, Device, Kernel
from portkern.spec.from_torch.source import with_sizes
from portkern.spec.from_torch.traced import Argument
from portkern.spec.module_form import ModuleForm
from portkern.spec.op import Signature
from portkern.toolchain import returned

if TYPE_CHECKING:
    import torch

    from portkern.toolchain.torch_device import TorchDevice

#: The most parameters and buffers of a class in a message.
_MOST_NAMES = 12


def write(request: Build, workdir: Path) -> Artifact:
    """The source as it is; there is nothing to compile until its code runs. Raises BuildError."""
    path = workdir / f"{request.candidate.op}.py"
    path.write_text(request.candidate.source, encoding="utf-8")
    try:
        ast.parse(request.candidate.source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BuildError(f"{path.name} is not Python: {error}") from error
    return Artifact(path, "python")


def import_class(path: Path, entry: str) -> Callable[..., object]:
    """The class in the module at ``path``. Raises BuildError without one, and what the file
    raises."""
    name = f"portkern_candidate_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, NameError, ImportError, AttributeError) as error:
        raise BuildError(f"{path.name} cannot be imported: {error}") from error
    defined = getattr(module, entry, None)
    if not isinstance(defined, type):
        raise BuildError(f"{path.name} defines no class {entry!r}; expected 'class {entry}'")
    return defined


def load(artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
    """Loads a module on the device, with torch's own way to build extensions."""
    defined = import_class(artifact.path, request.candidate.entry)
    module = TorchModule(defined, request, device.device)
    opened: Device = device
    return Kernel(opened, module.launch)


class TorchModule:
    """One class, constructed once for each size that it is called at."""

    def __init__(self, defined: Callable[..., Any], request: Build, device: torch.device) -> None:
        import torch

        self._class, self._request, self._name = defined, request, request.candidate.entry
        self._signature: Signature = request.signature
        self._form = request.signature.module or _plain(request.signature)
        self._dtype: torch.dtype = getattr(torch, request.dtype)
        self._device = device
        self._constructed: dict[tuple[int, ...], _Constructed] = {}
        self._values = {
            one.value: _value(one.value) for one in self._form.arguments if not one.name
        }

    def launch(self, call: Call) -> Sequence[torch.Tensor]:
        import torch

        constructed = self.construct(call.dims)
        leaves = constructed(call.inputs, call.scalars)
        result = leaves[0] if len(leaves) == 1 else leaves
        return returned.outputs(
            result, self._request, call.dims, kind=torch.Tensor, called="torch.Tensor"
        )

    def construct(self, dims: Mapping[str, int]) -> _Constructed:
        """The module constructed for these lengths. Raises LaunchError where its parameters are not
        the op's."""
        key = tuple(dims.values())
        if key not in self._constructed:
            self._constructed[key] = self._construct(dims)
        return self._constructed[key]

    def _construct(self, dims: Mapping[str, int]) -> _Constructed:
        problems = []
        for numbers in self._form.choices(dims):
            model = self._made(numbers)
            problem = self._problem(model, dims)
            if not problem:
                return _Constructed(model, self._signature, self._form, self._values)
            problems.append(problem)
        raise LaunchError(problems[0])

    def _made(self, numbers: Mapping[str, int]) -> torch.nn.Module:
        import torch

        torch.manual_seed(0)  # as the reference's is, where parameters are not inputs
        given = _constructor_arguments(self._form.constructor, numbers)
        named = given if isinstance(given, dict) else {}
        model: torch.nn.Module = self._class(*(() if named else given), **named)
        if not isinstance(model, torch.nn.Module):
            raise BuildError(f"{self._name} is not a torch.nn.Module; expected a subclass of it")
        model = model.to(self._device, self._dtype).requires_grad_(False)
        for part in model.modules():
            for name, value in vars(part).items():
                if isinstance(value, torch.Tensor):
                    kind = self._dtype if value.is_floating_point() else value.dtype
                    part.__dict__[name] = value.to(self._device, kind)
        return model

    def _problem(self, model: torch.nn.Module, dims: Mapping[str, int]) -> str:
        """Which parameter is missing or of another shape; '' if none is."""
        own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        specs = {spec.name: spec for spec in self._signature.inputs}
        for name, path in self._form.state.items():
            sizes = list(specs[name].sizes(dims))
            if _owner(model, path) is None:
                has = [f"{known}{list(tensor.shape)}" for known, tensor in own.items()]
                raise LaunchError(
                    f"{self._name} has no parameter or buffer {path!r}, which Model has and the "
                    f"op passes as {name!r}, {sizes}; "
                    f"it has {', '.join(has[:_MOST_NAMES]) or 'none'}"
                )
            got = list(own[path].shape) if path in own else sizes
            if got != sizes:
                return (
                    f"{path} of {self._name} is {got}, expected {sizes}, as {path} of Model "
                    f"is for {', '.join(f'{axis}={length}' for axis, length in dims.items())}"
                )
        return ""


class _Constructed:
    """An instance; calls put the op's tensors in the place of its parameters."""

    def __init__(
        self,
        model: torch.nn.Module,
        signature: Signature,
        form: ModuleForm,
        values: Mapping[str, object],
    ) -> None:
        self._model, self._form, self._values = model, form, values
        self._names = [spec.name for spec in signature.inputs]
        owners = {name: _owner(model, path) for name, path in form.state.items()}
        self._places = [
            (self._names.index(name), *owner) for name, owner in owners.items() if owner
        ]

    def __call__(
        self, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Any]
    ) -> Sequence[torch.Tensor]:
        for index, owner, name, changes in self._places:
            # A call may change a norm's running statistics, as Model's own do.
            owner[name] = inputs[index].clone() if changes else inputs[index]
        named = {**dict(zip(self._names, inputs, strict=True)), **scalars}
        given = [
            named[one.name] if one.name else self._values[one.value] for one in self._form.arguments
        ]
        return _leaves(self._model(*given))


def _plain(signature: Signature) -> ModuleForm:
    """The form of an op that is not a class: nothing to construct, all inputs are arguments."""
    names = [tensor.name for tensor in signature.inputs] + [s.name for s in signature.scalars]
    return ModuleForm(arguments=tuple(map(Argument, names)))


def _owner(model: torch.nn.Module, path: str) -> tuple[dict[str, object], str, bool] | None:
    """The module that keeps a parameter or buffer, and whether it is a buffer."""
    owner: Any = model
    *parents, name = path.split(".")
    for parent in parents:
        owner = owner._modules.get(parent) if hasattr(owner, "_modules") else None
        if owner is None:
            return None
    if owner._parameters.get(name) is not None:
        return owner._parameters, name, False
    return (owner._buffers, name, True) if owner._buffers.get(name) is not None else None


def _leaves(result: Any) -> Sequence[Any]:
    if isinstance(result, tuple | list) and not any(isinstance(x, tuple | list) for x in result):
        return result
    from torch.utils._pytree import tree_leaves

    return tree_leaves(result)


def _constructor_arguments(source: str, numbers: Mapping[str, int]) -> Any:
    if not source:
        return ()
    namespace: dict[str, Any] = {"__name__": "get_init_inputs"}
    exec(compile(with_sizes(source, numbers), "<get_init_inputs>", "exec"), namespace)
    return namespace["get_init_inputs"]()


def _value(text: str) -> object:
    """An argument that the file fixes, as it says it."""
    import torch

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return eval(text, {"torch": torch, "inf": float("inf"), "nan": float("nan")})
