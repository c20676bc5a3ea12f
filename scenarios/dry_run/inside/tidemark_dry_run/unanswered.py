"""Experts that routing.py does not know: how many tokens they get, the host asks the device, whose answer would be none.
What follows from that would leave their activations out, so the run stops there and names the place."""

import functools
import re
import sys

from . import after_import, ending

# A module's class says that experts are its own, and not those of a model or a layer around it.
OF_EXPERTS = re.compile(r"expert|moe|mixture", re.IGNORECASE)
AROUND = re.compile(r"(Model|For[A-Z]\w*|DecoderLayer|TransformerLayer|Attention|Router|Gate|LM)$")
FRAMES = 24
EXPERTS = 4096  # more numbers than a layer has experts are something else


def prepare(torch, run):
    places(torch, run)
    rows(torch, run)
    counts(torch, run)
    after_import("deep_ep", lambda module: buffers(module, run))


def stop(run, what, frame):
    stack = ending.stack_of(frame)
    print(f"tidemark dry-run: {what} says how many tokens experts get, which a device that does nothing does not know",
          file=sys.stderr)  # fmt: skip
    for line in stack:
        print(f"  {line}", file=sys.stderr)
    run.end("refused", {"type": "experts", "message": what, "stack": stack})


def is_of_experts(torch, frame, modules=1, but=None):
    """Whether one of the innermost modules that are at work has experts."""
    seen = [but]
    for _ in range(FRAMES):
        if frame is None or len(seen) > modules:
            break
        its = frame.f_locals.get("self")
        if isinstance(its, torch.nn.Module) and not any(its is other for other in seen):
            name = type(its).__name__
            if OF_EXPERTS.search(name) and not AROUND.search(name):
                return True
            seen.append(its)
        frame = frame.f_back
    return False


def places(torch, run):
    """Which tokens an expert gets, where nobody has said how many: none were found."""

    def watched(name, function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if torch.compiler.is_compiling():
                return function(*args, **kwargs)
            told = run.routing.told
            found = function(*args, **kwargs)
            first = found[0] if isinstance(found, tuple) and found else found
            if type(first) is not torch.Tensor or not first.is_cuda or first.numel():
                return found
            if run.routing.told == told and args and getattr(args[0], "numel", lambda: 0)():
                frame = ending.frame_of_caller()
                if is_of_experts(torch, frame):
                    stop(run, name, frame)
            return found

        return call

    for owner, prefix, names in (
        (torch, "torch", ("nonzero", "where", "masked_select", "argwhere")),
        (torch.Tensor, "torch.Tensor", ("nonzero", "masked_select", "argwhere")),
    ):
        for name in names:
            setattr(owner, name, watched(f"{prefix}.{name}", getattr(owner, name)))


def rows(torch, run):
    """Masks as indices ask where nobody sees it; what they leave are experts that get nothing."""
    forward = torch.nn.Linear.forward

    @functools.wraps(forward)
    def call(self, input):
        if not torch.compiler.is_compiling() and type(input) is torch.Tensor and input.is_cuda and not input.numel():
            frame = ending.frame_of_caller()
            if not run.routing.asked and is_of_experts(torch, frame, modules=3, but=self):
                while frame.f_back is not None and frame.f_globals.get("__name__") == "torch.nn.modules.module":
                    frame = frame.f_back  # from where it was called
                stop(run, "the rows of an expert", frame)
        return forward(self, input)

    torch.nn.Linear.forward = call


def counts(torch, run):
    """Tokens of each expert, read as numbers: all are zero."""
    some_get_none = 0 in run.routing.shares.weights

    def is_unknown(tensor):
        if run.routing.telling or some_get_none or type(tensor) is not torch.Tensor:
            return False
        whole = not tensor.is_floating_point() and tensor.dtype is not torch.bool
        return whole and tensor.dim() == 1 and 1 < tensor.numel() <= EXPERTS

    read, copy, move = torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.to

    def looked_at(what, on_host):
        if not any(on_host):
            frame = ending.frame_of_caller()
            if is_of_experts(torch, frame):
                stop(run, what, frame)

    @functools.wraps(read)
    def tolist(self):
        found = read(self)
        if self.is_cuda and is_unknown(self):
            looked_at("torch.Tensor.tolist", found)
        return found

    def on_host(name, function):
        @functools.wraps(function)
        def call(self, *args, **kwargs):
            made = function(self, *args, **kwargs)
            if self.is_cuda and not made.is_cuda and is_unknown(made) and not torch.compiler.is_compiling():
                looked_at(f"torch.Tensor.{name}", read(made))
            return made

        return call

    torch.Tensor.tolist, torch.Tensor.cpu, torch.Tensor.to = tolist, on_host("cpu", copy), on_host("to", move)


def buffers(module, run):
    """DeepEP exchanges tokens in its own buffers, and waits for the device to say how many came."""

    def refusing(name):
        def __init__(self, *args, **kwargs):
            stop(run, f"DeepEP's {name}", ending.frame_of_caller())

        return __init__

    for name in ("Buffer", "HybridEPBuffer", "ElasticBuffer"):
        kind = getattr(module, name, None)
        if isinstance(kind, type):
            kind.__init__ = refusing(name)
