"""How many tokens each expert gets, which the device would have computed: even, or by shares that were asked for. Routers'
own results stay as they are; answered is where the host reads how many there are, since shapes depend on it."""

import ctypes
import functools
import os
import sys

from . import after_import


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
        self.answer = answer or (lambda number: None)  # of the next number that the host reads from the device
        self.masks = {}  # code -> Mask, of a function that asks where its experts are chosen
        self.of_megatron = None  # (chosen by a token, experts)

    def counts(self, tokens, experts):
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
    after_import("megatron.core.transformer.moe.router", lambda module: megatron_router(module, routing))
    after_import("megatron.core.transformer.moe.token_dispatcher", lambda module: megatron_dispatcher(module, torch, routing))


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

    torch.histc, torch.bincount = histc, bincount
    torch.Tensor.bincount = lambda self, *args, **kwargs: bincount(self, *args, **kwargs)


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
        frame = sys._getframe(1)
        if tensor.is_cuda and tensor.dim() == 2 and num_classes > 1 and is_of_transformers(frame):
            counts = routing.counts(tensor.numel(), experts_of(frame, num_classes))
            routing.masks[frame.f_code] = Mask(tensor.numel(), counts)
        return result

    def nonzero(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return places(self, *args, **kwargs)
        mask = routing.masks.get(sys._getframe(1).f_code) if self.is_cuda and self.dim() == 1 else None
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
            mask = routing.masks.get(sys._getframe(1).f_code)
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
            return dispatch(self, mod, inputs, device_mesh)
        finally:
            torch.Tensor.tolist = read

    kind._token_dispatch = _token_dispatch


def megatron_router(module, routing):
    begin = module.TopKRouter.__init__

    @functools.wraps(begin)
    def __init__(self, config, *args, **kwargs):
        routing.of_megatron = (config.moe_router_topk, config.num_moe_experts)
        begin(self, config, *args, **kwargs)

    module.TopKRouter.__init__ = __init__


def filled(counts, numbers):
    """What the host has of counts, an array or a tensor; the device's are copied again by whoever needs them."""
    if counts is None or getattr(counts, "is_cuda", False):
        return
    if hasattr(counts, "copy_"):
        import torch

        numbers = torch.tensor(numbers, dtype=counts.dtype)
    counts[...] = numbers


def megatron_dispatcher(module, torch, routing):
    kind = getattr(module, "MoEAlltoAllTokenDispatcher", None)
    read = getattr(kind, "_maybe_dtoh_and_synchronize", None)
    if read is not None:

        @functools.wraps(read)
        def told(self, point, tokens_per_expert=None):
            tokens_per_expert = read(self, point, tokens_per_expert)
            if point == self.cuda_dtoh_point:
                megatron_counts(self, tokens_per_expert, routing)
            return tokens_per_expert

        kind._maybe_dtoh_and_synchronize = told
    select, add = torch.Tensor.masked_select, torch.Tensor.sum

    def is_map(tensor):
        """Of tokens and experts."""
        return (
            routing.of_megatron is not None and tensor.is_cuda and tensor.dtype == torch.bool and tensor.dim() == 2
            and routing.of_megatron[1] in tensor.shape
        )  # fmt: skip

    def masked_select(values, mask):
        if is_map(mask):
            topk, experts = routing.of_megatron
            routing.answer(mask.numel() * topk // experts)
        return select(values, mask)

    def sums(values, *args, **kwargs):
        result = add(values, *args, **kwargs)
        if is_map(values) and kwargs.get("dim") == 0 and result.numel() == routing.of_megatron[1]:
            topk, experts = routing.of_megatron
            routing.fill(result, routing.counts(values.size(0) * topk, experts))
        return result

    torch.Tensor.masked_select, torch.Tensor.sum = masked_select, sums


def megatron_counts(dispatcher, tokens_per_expert, routing):
    """Of a rank's experts, and of what it exchanges with other ranks."""
    experts, local = dispatcher.num_experts, dispatcher.num_local_experts
    counts = routing.counts(dispatcher.routing_map.size(0) * dispatcher.config.moe_router_topk, experts)
    mine = [counts[i] for i in dispatcher.local_expert_indices]
    ranks, tensor = dispatcher.ep_size, dispatcher.tp_size
    filled(tokens_per_expert, [number * ranks * tensor for number in mine])
    filled(dispatcher.input_splits, [sum(counts[i * local : (i + 1) * local]) for i in range(ranks)])
    filled(dispatcher.output_splits, [sum(mine)] * ranks)
    filled(dispatcher.output_splits_tp, [sum(mine) * ranks] * tensor)
    if local > 1:
        table = dispatcher.num_global_tokens_per_local_expert
        if table is not None and not getattr(table, "is_cuda", False):
            for column, number in enumerate(mine):
                table[..., column] = number
