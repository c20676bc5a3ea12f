"""torch.compile on a device that does nothing. Dynamo, AOTAutograd and Inductor run as they are, since what is kept for
the backward pass and which buffers there are is theirs to say. Kernels are written and then left alone: Triton would take
most of the time to compile what nobody runs, and none could be timed against another."""

import functools
import os

from . import after_import


def prepare(torch, run):
    # Kernels are asked for in this process; others would compile them.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    after_import("torch._inductor.runtime.triton_heuristics", lambda module: kernels(module, run))
    after_import("torch._inductor.autotune_process", lambda module: choices(module, run))


def kernels(module, run):
    for name in ("CachingAutotuner", "DebugAutotuner"):
        kind = getattr(module, name, None)
        if kind is None or not hasattr(kind, "run"):
            continue
        kind.run = left_alone(kind.run, run)
        if hasattr(kind, "precompile"):
            kind.precompile = left_alone(kind.precompile)


def left_alone(function, run=None):
    @functools.wraps(function)
    def call(self, *args, **kwargs):
        if run is not None:
            run.stand_in("Inductor's kernels: written, neither compiled nor run")

    return call


def choices(module, run):
    """Of kernels that templates write (flex_attention, products) in several ways, Inductor compiles each and measures which
    is fastest. All are as fast here, and the first is taken."""
    kind = getattr(module, "TritonBenchmarkRequest", None)
    if kind is not None and hasattr(kind, "precompile"):

        def precompile(self):
            self.n_regs = None

        kind.precompile = precompile
    for its in vars(module).values():
        if isinstance(its, type) and its.__name__.endswith("BenchmarkRequest") and "benchmark" in vars(its):
            its.benchmark = measured(its.benchmark, run)


def measured(function, run):
    @functools.wraps(function)
    def benchmark(self, *args, **kwargs):
        run.stand_in("which of several ways to write a kernel is fastest: the first")
        return 1.0

    return benchmark
