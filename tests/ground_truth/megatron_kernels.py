"""Compiled extensions that Megatron-LM asks for, as far as memory goes: what each allocates is what its sources say,
and nothing is computed. Apex's for local layers, Transformer Engine's for the optimizer."""

import sys
import types


def module(name, **functions):
    made = types.ModuleType(name)
    made.__dict__.update(functions)
    sys.modules[name] = made


def norm_of_apex():
    """apex/normalization/fused_layer_norm.py, and csrc/layer_norm_cuda_kernel.cu: partial sums of 16 rows for each of
    both parameters' gradients."""
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input, weight, bias, normalized_shape, eps, memory_efficient=False):
            made, rows = torch.empty_like(input), input.numel() // weight.numel()
            mean, inverse = (torch.empty(rows, dtype=torch.float32, device="cuda") for _ in range(2))
            ctx.save_for_backward(input, weight, bias, mean, inverse)
            return made

        @staticmethod
        def backward(ctx, gradient):
            input, weight, bias, mean, inverse = ctx.saved_tensors
            made = torch.empty_like(input), torch.empty_like(weight), torch.empty_like(bias)
            partial = [torch.empty((16, weight.numel()), dtype=torch.float32, device="cuda") for _ in range(2)]
            del partial
            return *made, None, None, None

    for name in ("apex", "apex.normalization"):
        module(name, __path__=[])
    module("apex.normalization.fused_layer_norm", FusedLayerNormAffineFunction=Function)


def before_import(settings):
    """Apex: csrc/megatron/scaled_upper_triang_masked_softmax.h (backward works in place), scaled_masked_softmax.h,
    fused_weight_gradient_dense.cpp (cuBLAS adds into the gradient)."""
    import torch

    if settings.get("transformer_engine"):
        import transformer_engine_stand_ins

        transformer_engine_stand_ins.install()
    if settings["apex"]:
        norm_of_apex()
    module(
        "scaled_upper_triang_masked_softmax_cuda",
        forward=lambda inputs, scale: torch.empty_like(inputs),
        backward=lambda gradients, results, scale: gradients,
    )
    module(
        "scaled_masked_softmax_cuda",
        forward=lambda inputs, mask, scale: torch.empty_like(inputs),
        backward=lambda gradients, results, scale: gradients,
        get_batch_per_block=lambda queries, keys, batches, heads: 4 if max(keys, 1) > 128 else 8,
    )
    module(
        "fused_weight_gradient_mlp_cuda",
        wgrad_gemm_accum_fp32=lambda inputs, gradients, into: None,
        wgrad_gemm_accum_fp16=lambda inputs, gradients, into: None,
    )


def applier(op, overflow, lists, *arguments):
    return op(65536, overflow, lists, *arguments)


def l2norm(chunk, overflow, lists, per_tensor=False):
    """common/multi_tensor/l2norm.cu by way of pytorch/csrc/extensions/multi_tensor/l2norm.cpp: partial sums of up to
    320 blocks, and the norm."""
    import torch

    partial = torch.zeros(320, dtype=torch.float32, device="cuda")
    norm = torch.empty(1, dtype=torch.float32, device="cuda")
    del partial
    return norm, torch.empty(0, dtype=torch.float32, device="cuda")


def scale(chunk, overflow, lists, factor):
    return None


DUMMIES = {}


def dummy_gradient(shape, dtype, zero=False):
    """pytorch/module/base.py get_dummy_wgrad: one of each shape and type, for ever."""
    import torch

    key = (*shape, dtype)
    if key not in DUMMIES:
        DUMMIES[key] = torch.empty(shape, dtype=dtype, device="cuda")
    return DUMMIES[key].detach()


WORKSPACES = []


def general_gemm(a, b, out_dtype=None, layout="TN", out=None, bias=None, grad=False):
    """pytorch/cpp_extensions/gemm.py: a result, and one workspace of the device for all products (get_cublas_workspace)."""
    import torch

    if not WORKSPACES:
        size = 32 << 20 if torch.cuda.get_device_capability()[0] >= 9 else 4 << 20
        WORKSPACES.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    rows, columns = b.shape[1] if layout[1] == "T" else b.shape[0], a.shape[0] if layout[0] == "T" else a.shape[1]
    made = torch.empty((rows, columns), dtype=out_dtype or a.dtype, device="cuda") if out is None else out
    return [made, None, None, None]


def after_import():
    import torch
    from megatron.core import optimizer
    from megatron.core.optimizer import clip_grads, distrib_optimizer
    from megatron.core.optimizer import optimizer as wrappers

    class FusedAdam(torch.optim.Optimizer):
        """transformer_engine/pytorch/optimizers/fused_adam.py with fp32 states, or Apex's: both keep two states of each
        parameter from the first step on, count steps on the host, and update in one kernel."""

        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, **more):
            super().__init__(params, dict(lr=lr, bias_correction=True, betas=betas, eps=eps, weight_decay=weight_decay))
            self.overflow = torch.tensor([0], dtype=torch.int, device="cuda")

        def step(self, closure=None):
            for group in self.param_groups:
                group["step"] = group.get("step", 0) + 1
                for parameter in group["params"]:
                    if parameter.grad is None or self.state[parameter]:
                        continue
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.state[parameter][name] = torch.zeros_like(parameter, dtype=torch.float32)

    from megatron.core import fp8_utils
    from megatron.core.tensor_parallel import layers

    fp8_utils._quantize_param_shard_impl = lambda *arguments, **more: None  # no parameter is FP8
    if hasattr(layers, "HAVE_TE"):
        layers.HAVE_TE, layers.get_dummy_wgrad = True, dummy_gradient
    optimizer.Adam = distrib_optimizer.Adam = FusedAdam
    if hasattr(optimizer, "USING_PYTORCH_OPTIMIZER"):
        optimizer.USING_PYTORCH_OPTIMIZER = False
    clip_grads.multi_tensor_applier = wrappers.multi_tensor_applier = applier
    clip_grads.l2_norm_impl = l2norm
    clip_grads.multi_tensor_scale_impl = wrappers.multi_tensor_scale_impl = scale
    router_products()


def router_products():
    """RouterGatingLinearFunction takes Transformer Engine's product wherever that is installed, whatever the layers are;
    up to core 0.16 it asks for a name that Transformer Engine lost with 2.10, and does without."""
    import megatron.core
    from megatron.core.transformer.moe import moe_utils

    release = tuple(int(part) for part in megatron.core.__version__.split(".")[:2])
    if release >= (0, 17) and getattr(moe_utils, "te_general_gemm", moe_utils) is None:
        moe_utils.te_general_gemm = general_gemm
