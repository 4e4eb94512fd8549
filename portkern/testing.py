"""The contract of every backend, as a pytest suite that third-party backends run too.

Subclass :class:`BackendContract` in a test file and define the fixtures ``backend`` and
``target`` (one that this machine can build for); see tests/test_backend_contract.py, and
examples/numba_cuda_backend for a backend of a distribution of its own. A backend ships kernels for
as many operators as it likes: what it ships must be right, what it does not ship is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from portkern import ops
from portkern.cells.selection import RunStage, built_to_run
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import Built, Failure, StageLimits
from portkern.evaluator.result import Result
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.guard import TorchOps
from portkern.records.record import Verdict
from portkern.spec import catalogue, target
from portkern.spec.backend import Backend, Build, Missing, Ready, Venue, VenueKind, Venues
from portkern.spec.candidate import Candidate
from portkern.spec.op import FLOATS, Op, Workload
from portkern.spec.target import Target

#: relu kernels that compute nothing: each must be evaluated wrong. A plugin adds its language.
NO_OPS = {
    "c++": 'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) { return 0; }',
    "cuda": (
        'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream)'
        " { return 0; }"
    ),
    "hip": (
        'extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, hipStream_t stream)'
        " { return 0; }"
    ),
    "numba": "import numba\n\n@numba.njit\ndef relu(x, y):\n    pass\n",
    "opencl": 'SOURCE = ""\n\ndef relu(queue, program, x, y, *, n):\n    pass\n',
    "pallas": (
        "import jax.numpy as jnp\n\n"
        "def relu(x, *, interpret=False):\n    return jnp.zeros_like(x)\n"
    ),
    "triton": "def relu(x, y):\n    pass\n",
}
QUICK = TrialOptions(
    limits=StageLimits(run_s=300.0),
    plan=TimingPlan(rounds=2, burst_s=0.001, most=5, budget_s=0.0, patient=False),
)

#: Emulators are slow: the contract's sizes have no more bytes of inputs and outputs.
SMALL_BYTES = 1 << 16


def evaluate(
    candidate: Candidate,
    op: Op,
    backend: Backend,
    where: Target,
    workloads: list[Workload],
    *,
    dtype: str = "float32",
    folder: Path,
    options: TrialOptions = QUICK,
    torch_ops: TorchOps = "forbid",
    sanitize: Sequence[str] = (),
) -> Built | list[Result]:
    """Build a candidate and evaluate it on its best venue: the results, or the build that has
    none. ``sanitize`` names checkers that look on where an emulator has them."""
    ready = backend.probe(where)
    venue = RunStage(sanitize=tuple(sanitize)).of(backend.venues(where), backend, candidate).best
    assert isinstance(ready, Ready), ready
    request = Build(
        candidate,
        op.signature,
        dtype,
        where,
        workloads[0].dims,
        op.signature.scalar_values(workloads[0].scalars),
        runnable=isinstance(backend.venues(where).hardware, Venue),
        **built_to_run(venue),
    )
    [built] = build.build_all(
        [build.BuildRequest(backend, request)],
        [ready.toolchain],
        limits=options.limits,
        cache=ArtifactCache(folder),
    )
    if isinstance(built.outcome, Failure) or isinstance(venue, Missing):
        return built
    contestant = Contestant(built.request, built.outcome, venue, torch_ops)
    with Trial(op, dtype, [contestant], options) as trial:
        return [trial.run(workload)[0] for workload in workloads]


class BackendContract:
    """Each test is one promise that the rest of portkern relies on."""

    @pytest.fixture
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """One artifact cache for all tests of the session: equal builds are built once."""
        folder = tmp_path_factory.getbasetemp() / "contract"
        folder.mkdir(exist_ok=True)
        return folder

    @pytest.fixture
    def live(self, backend: Backend, target: Target) -> Backend:
        """The backend, if its toolchain is here; skips with the backend's own reason."""
        state = backend.probe(target)
        if isinstance(state, Missing):
            pytest.skip(f"{backend.name}: {state}")
        return backend

    @pytest.fixture
    def running(self, live: Backend, target: Target) -> Backend:
        """The backend, if something here runs its kernels; skips with the reason."""
        venue = live.venues(target).best
        if isinstance(venue, Missing):
            pytest.skip(f"{live.name}: {venue}")
        return live

    def test_it_has_a_name_languages_and_a_guide(self, backend: Backend) -> None:
        assert backend.name.isidentifier()
        assert backend.languages
        assert all(suffix.startswith(".") for suffix in backend.languages)
        assert len(guide(backend)) > 500

    def test_it_claims_its_target_and_not_everything(
        self, backend: Backend, target: Target
    ) -> None:
        assert backend.supports(target) is True
        claims = {where.name: backend.supports(where) for where in all_targets()}
        assert not all(claims.values())
        assert not backend.usual_target or claims[backend.usual_target]

    def test_probing_any_target_answers_with_a_toolchain_or_a_reason(
        self, backend: Backend
    ) -> None:
        for where in filter(backend.supports, all_targets()):
            state = backend.probe(where)
            assert isinstance(state, Ready | Missing)
            assert state.toolchain if isinstance(state, Ready) else state.reason

    def test_every_missing_venue_says_why(self, backend: Backend) -> None:
        for where in filter(backend.supports, all_targets()):
            venues = backend.venues(where)
            assert isinstance(venues, Venues)
            for kind in get_args(VenueKind):
                venue = getattr(venues, kind)
                assert venue.kind == kind if isinstance(venue, Venue) else venue.reason

    def test_it_ships_kernels_in_its_own_languages(self, backend: Backend) -> None:
        shipped = [kernel for op in ops.ALL for kernel in catalogue.candidates(op, backend)]
        assert shipped
        assert {kernel.language for kernel in shipped} <= set(backend.languages.values())

    def test_it_tells_authors_what_to_define(self, backend: Backend) -> None:
        """A declaration has every tensor that the function is handed, and its scalars."""
        signature = ops.load("layernorm").signature
        for language in backend.languages.values():
            told = backend.declaration(signature, language)
            named = [one.name for one in signature.inputs]
            named += [scalar.name for scalar in signature.scalars]
            named += [output.name for output in signature.outputs if backend.style == "dps"]
            assert "layernorm(" in told
            assert all(re.search(rf"\b{name}\b", told) for name in named)

    def test_prose_is_a_failed_build_with_the_tools_words(
        self, live: Backend, target: Target, folder: Path
    ) -> None:
        for language in live.languages.values():
            failure = self.failed_build(live, target, language, "this is not a kernel", folder)
            assert failure.verdict is Verdict.BUILD_FAILED
            assert failure.log or failure.detail

    def test_a_source_without_the_entry_is_told_what_was_expected(
        self, live: Backend, target: Target, folder: Path
    ) -> None:
        for language in live.languages.values():
            source = NO_OPS[language].replace("relu", "another")
            failure = self.failed_build(live, target, language, source, folder)
            assert failure.verdict is Verdict.BUILD_FAILED
            assert "relu" in failure.detail

    def failed_build(
        self, backend: Backend, where: Target, language: str, source: str, folder: Path
    ) -> Failure:
        op = ops.load("relu")
        candidate = Candidate("relu", backend.name, language, source, "relu", style=backend.style)
        workloads = list(op.workloads["ci"][:1])
        built = evaluate(candidate, op, backend, where, workloads, folder=folder)
        assert isinstance(built, Built) and isinstance(built.outcome, Failure), built
        return built.outcome

    def shipped(self, op: str, backend: Backend) -> list[Candidate]:
        """The backend's kernels for the operator; skips where it has none."""
        return catalogue.candidates(op, backend) or pytest.skip(f"{backend.name} ships no {op}")

    @pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
    def test_its_softmax_is_right_at_small_and_odd_sizes(
        self, running: Backend, target: Target, folder: Path, dtype: str
    ) -> None:
        op = ops.load("softmax")
        workloads = [*op.workloads["ci"], *op.workloads["edge"]]
        for candidate in self.shipped("softmax", running):
            if isinstance(running.accepts(candidate, dtype), Missing):
                continue
            results = evaluate(
                candidate, op, running, target, workloads, dtype=dtype, folder=folder
            )
            assert isinstance(results, list), results
            bad = {w.name: r.detail for w, r in zip(workloads, results, strict=True) if r.detail}
            assert not bad

    @pytest.mark.parametrize("name", ops.ALL)
    def test_what_it_ships_is_right_at_small_sizes(
        self, running: Backend, target: Target, folder: Path, name: str
    ) -> None:
        """Sizes are none, one element and odd numbers of them; the ops take turns with the
        dtypes."""
        op = ops.load(name)
        edge = op.workloads["edge"]
        small = [w for w in edge if op.tensor_bytes(w.dims, "float32") <= SMALL_BYTES]
        workloads = [op.workloads["ci"][0], *small]
        for candidate in self.shipped(name, running):
            dtype = FLOATS[ops.ALL.index(name) % len(FLOATS)]
            if isinstance(running.accepts(candidate, dtype), Missing):
                dtype = "float32"
            results = evaluate(
                candidate, op, running, target, workloads, dtype=dtype, folder=folder
            )
            assert isinstance(results, list), results
            bad = {w.name: r.detail for w, r in zip(workloads, results, strict=True) if r.detail}
            assert not bad, (candidate.language, dtype, bad)

    def test_a_kernel_that_does_nothing_is_wrong(
        self, running: Backend, target: Target, folder: Path
    ) -> None:
        op = ops.load("relu")
        for language in running.languages.values():
            source = NO_OPS[language]
            candidate = Candidate(
                "relu", running.name, language, source, "relu", style=running.style
            )
            results = evaluate(
                candidate, op, running, target, list(op.workloads["ci"]), folder=folder
            )
            assert isinstance(results, list), results
            assert {r.verdict for r in results} == {Verdict.WRONG}

    def test_hardware_results_are_timed_and_emulated_ones_are_not(
        self, running: Backend, target: Target, folder: Path
    ) -> None:
        name = next(op for op in ops.ALL if catalogue.candidates(op, running))
        op = ops.load(name)
        [candidate, *_] = self.shipped(name, running)
        results = evaluate(candidate, op, running, target, list(op.workloads["ci"]), folder=folder)
        assert isinstance(results, list), results
        on_hardware = isinstance(running.venues(target).hardware, Venue)
        assert [r.samples is not None for r in results] == [on_hardware] * len(results)


def all_targets() -> list[Target]:
    return [target.load(name) for name in target.names()]


def guide(backend: Backend) -> str:
    """The guide for authors of kernels of this backend: ``guide.md`` beside its module."""
    from importlib.resources import files

    file = files(type(backend).__module__) / "guide.md"
    return file.read_text(encoding="utf-8") if file.is_file() else ""
