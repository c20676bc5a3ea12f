"""How many tokens each expert gets, which the device would have computed: even, or by shares that were asked for. Routers'
own results stay as they are; answered is where the host reads how many there are, since shapes depend on it."""

import contextlib
import ctypes
import functools
import os

from . import after_import, ending, megatron_routing


class Shares:
    """What tidemark was told: "even", or numbers that are repeated over all experts."""

    def __init__(self, text):
        self.text = text or "even"
        self.weights = [1.0] if self.text == "even" else [float(part) for part in self.text.split(",")]

    def counts(self, tokens, experts):
        """Whole numbers with the sum of `tokens`."""
        weights = [self.weights[i % len(self.weights)] for i in range(experts)]
        whole, sum_so_far, given, made = sum(weights) or 1.0, 0.0, 0, []
        for weight in weights:
            sum_so_far += weight
            upto = round(tokens * sum_so_far / whole)
            made.append(upto - given)
            given = upto
        return made

    def said(self):
        return "as many for each" if self.text == "even" else f"by the shares {self.text}"


class Routing:
    def __init__(self, torch, run):
        self.torch, self.run = torch, run
        self.shares = Shares(run.told.get("TIDEMARK_DRY_RUN_ROUTING"))
        answer = getattr(ctypes.CDLL(None), "null_cuda_answer", None)
        if answer is not None:
            answer.argtypes = (ctypes.c_longlong,)
        self._answer = answer or (lambda number: None)
        self.asked = False  # whether anybody was told how many tokens experts get
        self.told = 0  # numbers so far
        self.telling = 0  # whoever reads counts from the device gets them told before they are used
        self.masks = {}  # code -> Mask, of a function that asks where its experts are chosen

    def answer(self, number):
        """What the host reads from the device next, where that is one number."""
        self.told += 1
        self._answer(number)

    @contextlib.contextmanager
    def tells(self):
        self.telling += 1
        try:
            yield
        finally:
            self.telling -= 1

    def counts(self, tokens, experts):
        self.asked = True
        self.run.stand_in(f"tokens that a router sends to experts: {self.shares.said()}")
        return self.shares.counts(tokens, experts)

    def fill(self, result, counts):
        result.copy_(self.torch.tensor(counts, dtype=result.dtype))
        return result


class Mask:
    """A one-hot mask of (tokens, choices, experts), whose experts the code goes through one after another."""

    def __init__(self, choices, counts):
        self.choices, self.counts, self.at = choices, counts, 0

    def next(self):
        self.at += 1
        return self.counts[(self.at - 1) % len(self.counts)]


def prepare(torch, run):
    routing = run.routing = Routing(torch, run)
    counted(torch, routing)
    chosen(torch, routing)
    after_import("torchtitan.distributed.expert_parallel", lambda module: torchtitan(module, torch, routing))
    megatron_routing.prepare(torch, routing)


def counted(torch, routing):
    """Histograms of chosen experts (torchtitan, transformers' grouped experts)."""
    histogram, bins_of = torch.histc, torch.bincount

    def is_choice(tensor):
        return tensor.is_cuda and type(tensor) is torch.Tensor

    @functools.wraps(histogram)
    def histc(input, bins=100, min=0, max=0, **kwargs):
        if torch.compiler.is_compiling():
            return histogram(input, bins=bins, min=min, max=max, **kwargs)
        result = histogram(input, bins=bins, min=min, max=max, **kwargs)
        # An expert for each bin: numbers of experts are whole.
        if not is_choice(input) or max not in (bins, bins - 1):
            return result
        return routing.fill(result, routing.counts(input.numel(), bins))

    @functools.wraps(bins_of)
    def bincount(input, weights=None, minlength=0):
        if torch.compiler.is_compiling():
            return bins_of(input, weights, minlength)
        if minlength and weights is None and is_choice(input):
            routing.answer(minlength - 1)
        result = bins_of(input, weights, minlength)
        if not minlength or weights is not None or not is_choice(input) or result.numel() != minlength:
            return result
        return routing.fill(result, routing.counts(input.numel(), minlength))

    torch.histc, torch.bincount, torch.Tensor.bincount = histc, bincount, bincount


def chosen(torch, routing):
    """transformers' loop over experts: a one-hot mask, which of them are hit, and for each of them by which tokens."""
    functional = torch.nn.functional
    encode, places, where_of = functional.one_hot, torch.Tensor.nonzero, torch.where

    def is_of_transformers(frame):
        return f"{os.sep}transformers{os.sep}" in frame.f_code.co_filename or "transformers_modules" in frame.f_code.co_filename

    def experts_of(frame, classes):
        """A class more than experts stands for tokens of other ranks'."""
        its = frame.f_locals.get("self")
        for name in ("num_experts", "n_routed_experts", "num_local_experts"):
            number = getattr(its, name, None)
            if isinstance(number, int) and classes - 1 <= number <= classes:
                return number
        return classes

    @functools.wraps(encode)
    def one_hot(tensor, num_classes=-1):
        if torch.compiler.is_compiling():
            return encode(tensor, num_classes)
        result = encode(tensor, num_classes)
        frame = ending.frame_of_caller()
        if tensor.is_cuda and tensor.dim() == 2 and num_classes > 1 and is_of_transformers(frame):
            counts = routing.counts(tensor.numel(), experts_of(frame, num_classes))
            routing.masks[frame.f_code] = Mask(tensor.numel(), counts)
        return result

    @functools.wraps(places)
    def nonzero(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return places(self, *args, **kwargs)
        mask = routing.masks.get(ending.frame_of_caller().f_code) if self.is_cuda and self.dim() == 1 else None
        if mask is None or self.numel() < len(mask.counts):
            return places(self, *args, **kwargs)
        hit = [i for i, count in enumerate(mask.counts) if count]
        mask.counts, mask.at = [mask.counts[i] for i in hit], 0
        routing.answer(len(hit))
        return routing.fill(places(self, *args, **kwargs), [[i] for i in hit])

    @functools.wraps(where_of)
    def where(*args, **kwargs):
        if torch.compiler.is_compiling():
            return where_of(*args, **kwargs)
        if len(args) == 1 and not kwargs and args[0].is_cuda:
            mask = routing.masks.get(ending.frame_of_caller().f_code)
            if mask is not None and args[0].numel() == mask.choices:
                routing.answer(mask.next())
        return where_of(*args, **kwargs)

    functional.one_hot, torch.Tensor.nonzero, torch.where = one_hot, nonzero, where


def torchtitan(module, torch, routing):
    """How many tokens go to each rank of experts, and come from it."""
    kind = getattr(module, "ExpertParallel", None)
    dispatch = getattr(kind, "_token_dispatch", None)
    if dispatch is None:
        return

    @functools.wraps(dispatch)
    def _token_dispatch(self, mod, inputs, device_mesh):
        tokens, per_expert = inputs[0].shape[0], inputs[1].numel()
        if not inputs[1].is_cuda:
            return dispatch(self, mod, inputs, device_mesh)
        ranks, mine = device_mesh.size(0), device_mesh.get_local_rank(0) if device_mesh.ndim > 1 else device_mesh.get_local_rank()
        counts = routing.counts(tokens, per_expert)
        parts = [sum(counts[i * per_expert // ranks : (i + 1) * per_expert // ranks]) for i in range(ranks)]
        answers = [parts, [parts[mine]] * ranks]
        read = torch.Tensor.tolist

        def tolist(tensor):
            if answers and not tensor.is_cuda and tensor.dim() == 1 and tensor.numel() == ranks:
                return answers.pop(0)
            return read(tensor)

        torch.Tensor.tolist = tolist
        try:
            with routing.tells():
                return dispatch(self, mod, inputs, device_mesh)
        finally:
            torch.Tensor.tolist = read

    kind._token_dispatch = _token_dispatch
