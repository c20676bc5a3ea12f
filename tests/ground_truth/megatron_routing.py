"""What a device that computes would say of Megatron-LM's routers: every expert is chosen by as many tokens. Shapes alone
depend on it."""

import ctypes
import functools


def even(dispatcher, routing_map):
    """Tokens of one rank that choose one expert."""
    return routing_map.size(0) * dispatcher.config.moe_router_topk // dispatcher.num_experts


def filled(counts, number):
    """What the host has of counts, an array or a tensor; the device's are copied again by whoever needs them."""
    if counts is not None and not (hasattr(counts, "is_cuda") and counts.is_cuda):
        counts[...] = number


def tell_all_to_all(dispatchers):
    kind = dispatchers.MoEAlltoAllTokenDispatcher
    read = kind._maybe_dtoh_and_synchronize

    @functools.wraps(read)
    def told(self, point, tokens_per_expert=None):
        tokens_per_expert = read(self, point, tokens_per_expert)
        if point == self.cuda_dtoh_point:
            each = even(self, self.routing_map)
            filled(tokens_per_expert, each * self.ep_size * self.tp_size)
            filled(self.input_splits, each * self.num_local_experts)
            filled(self.output_splits, each * self.num_local_experts)
            filled(self.output_splits_tp, each * self.num_local_experts * self.ep_size)
            if self.num_local_experts > 1:
                filled(self.num_global_tokens_per_local_expert, each)
        return tokens_per_expert

    kind._maybe_dtoh_and_synchronize = told


def tell(config):
    """`config` has moe_router_topk and num_experts."""
    import torch
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None  # core 0.16 asks for it also where there is no Transformer Engine
    tell_all_to_all(token_dispatcher)
    answer = ctypes.CDLL(None).null_cuda_answer
    answer.argtypes = (ctypes.c_longlong,)
    select, add = torch.Tensor.masked_select, torch.Tensor.sum

    def chosen(number):
        """Of so many places where a token could choose an expert."""
        return number * config.moe_router_topk // config.num_experts

    def masked_select(values, mask):
        answer(chosen(mask.numel()))
        return select(values, mask)

    def sums(values, *arguments, **more):
        """Of a map of tokens and experts: how many tokens each expert has."""
        result = add(values, *arguments, **more)
        if values.is_cuda and values.dtype == torch.bool and values.dim() == 2 and more.get("dim") == 0:
            result.copy_(torch.full(result.shape, chosen(values.size(0)), dtype=result.dtype))
        return result

    torch.Tensor.masked_select, torch.Tensor.sum = masked_select, sums
