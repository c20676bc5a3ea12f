"""How many tokens each expert of Megatron core gets, where its dispatchers read that from the device."""

import functools
import math

from . import after_import


def prepare(torch, routing):
    told = Told(routing)
    after_import("megatron.core.transformer.moe.router", lambda module: router(module, told))
    after_import("megatron.core.transformer.moe.token_dispatcher", lambda module: dispatchers(module, torch, told))


class Told:
    def __init__(self, routing):
        self.routing = routing
        self.config = None  # of the routers
        self.local = None  # an all-gather dispatcher at work

    def counts(self, tokens, ranks=1):
        """Of all experts, for as many tokens of each of so many ranks, which are routed alike; those over the capacity are
        dropped, or added where experts are filled up to it."""
        config = self.config
        made = self.routing.counts(tokens * config.moe_router_topk, config.num_moe_experts)
        factor = config.moe_expert_capacity_factor
        if factor is not None:
            capacity = math.ceil(tokens * config.moe_router_topk / config.num_moe_experts * factor)
            filled_up = config.moe_pad_expert_input_to_capacity
            made = [capacity if filled_up else min(number, capacity) for number in made]
        return [number * ranks for number in made]

    def of_map(self, mask, experts_first=False):
        """Counts of a map's experts, in a map of tokens and experts; nothing of another one."""
        if self.config is None or not mask.is_cuda or str(mask.dtype) != "torch.bool" or mask.dim() != 2:
            return None
        experts, tokens = mask.shape if experts_first else reversed(mask.shape)
        its = self.local
        if its is not None and experts == its.num_local_experts:
            ranks = its.tp_size * its.ep_size
            counts = self.counts(tokens // ranks, ranks)
            return [counts[i] for i in its.local_expert_indices]
        return self.counts(tokens) if experts == self.config.num_moe_experts else None


def router(module, told):
    begin = module.TopKRouter.__init__

    @functools.wraps(begin)
    def __init__(self, config, *args, **kwargs):
        told.config = config
        begin(self, config, *args, **kwargs)

    module.TopKRouter.__init__ = __init__


def dispatchers(module, torch, told):
    all_to_all(getattr(module, "MoEAlltoAllTokenDispatcher", None), told)
    all_gather(getattr(module, "MoEAllGatherTokenDispatcher", None), told)
    maps(torch, told)


def all_to_all(kind, told):
    read = getattr(kind, "_maybe_dtoh_and_synchronize", None)
    if read is None:
        return

    @functools.wraps(read)
    def call(self, point, tokens_per_expert=None):
        with told.routing.tells():
            tokens_per_expert = read(self, point, tokens_per_expert)
        if point == self.cuda_dtoh_point:
            fill_splits(self, tokens_per_expert, told)
        return tokens_per_expert

    kind._maybe_dtoh_and_synchronize = call


def all_gather(kind, told):
    """It asks which of all ranks' tokens its own experts get. Releases before 0.13 know two halves of its work."""

    def at_work(function):
        @functools.wraps(function)
        def call(self, *args, **kwargs):
            before, told.local = told.local, self
            try:
                return function(self, *args, **kwargs)
            finally:
                told.local = before

        return call

    for name in ("token_permutation", "token_unpermutation", "dispatch_postprocess"):
        if name in vars(kind or object):
            setattr(kind, name, at_work(getattr(kind, name)))


def maps(torch, told):
    """Maps of tokens and experts: how many places are chosen, and how many of each expert."""
    select, add = torch.Tensor.masked_select, torch.Tensor.sum

    @functools.wraps(select)
    def masked_select(values, mask):
        counts = told.of_map(mask, experts_first=True)
        if counts is not None:
            told.routing.answer(sum(counts))
        return select(values, mask)

    @functools.wraps(add)
    def sums(values, *args, **kwargs):
        result = add(values, *args, **kwargs)
        counts = told.of_map(values) if kwargs.get("dim") == 0 else None
        if counts is not None and result.numel() == len(counts):
            told.routing.fill(result, counts)
        return result

    torch.Tensor.masked_select, torch.Tensor.sum = masked_select, sums


def filled(counts, numbers):
    """What the host has of counts, an array or a tensor; the device's are copied again by whoever needs them."""
    if counts is None or getattr(counts, "is_cuda", False):
        return
    if hasattr(counts, "copy_"):
        import torch

        numbers = torch.tensor(numbers, dtype=counts.dtype)
    counts[...] = numbers


def fill_splits(dispatcher, tokens_per_expert, told):
    """Of a rank's experts, and of what it exchanges with other ranks."""
    local = dispatcher.num_local_experts
    counts = told.counts(dispatcher.routing_map.size(0))
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
