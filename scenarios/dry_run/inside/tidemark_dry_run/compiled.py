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
