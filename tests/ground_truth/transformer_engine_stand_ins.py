"""Transformer Engine's extension for PyTorch, as far as memory goes: transformer_engine_torch's functions allocate what its
sources (transformer_engine/pytorch/csrc/extensions, 2.11) say, and compute nothing. Its Python side runs as it is.

Not known without cuDNN: what its attention works in. Its backward pass is taken to sum query gradients in fp32.
"""

import importlib.util
import sys
import types
from pathlib import Path

TYPES = {
    "kByte": "uint8", "kInt16": "int16", "kInt32": "int32", "kInt64": "int64", "kFloat32": "float32",
    "kFloat16": "float16", "kBFloat16": "bfloat16", "kFloat8E4M3": "float8_e4m3fn", "kFloat8E5M2": "float8_e5m2",
    "kFloat4E2M1": "float4",
}  # fmt: skip


class Constant(str):
    """One of an enumeration's, by name."""

    def __int__(self):
        return 0


class Constants(type):
    """A class that has every name that is asked for."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = Constant(f"{cls.__name__}.{name}")
        setattr(cls, name, value)
        return value


def constants(name):
    return Constants(name, (), {})


def dtype_of(named):
    import torch

    return named if isinstance(named, torch.dtype) else getattr(torch, TYPES[named.split(".")[1]])


def device():
    import torch

    return torch.device("cuda", torch.cuda.current_device())


# ---- extensions/gemm.cpp ----


def generic_gemm(
    A, transa, B, transb, D, quantizer, out_dtype, bias, bias_type, gelu, gelu_in, grad, workspace, size, accumulate,
    split_accumulator, comm_overlap=None, comm_type=None, extra_output=None, bulk_overlap=False, alpha=1.0, beta=None,
):  # fmt: skip
    import torch

    if D is None:
        rows = A.shape[0] if transa else A.shape[-1]
        outer = (B.shape[-1],) if transb else tuple(B.shape[:-1])
        D = torch.empty((*outer, rows), dtype=dtype_of(out_dtype) if out_dtype else A.dtype, device=A.device)
    bias_gradient = torch.empty(B.shape[-1], dtype=D.dtype, device=D.device) if bias is not None and grad else None
    return D, bias_gradient, None, extra_output


def te_general_grouped_gemm(
    A, transa, B, transb, D, out_dtype, m_splits, bias, bias_type, single_output, pre_gelu_out, grad, workspaces, size,
    accumulate, split_accumulator, sms,
):  # fmt: skip
    import torch

    if D is None or not D:
        if single_output:
            raise NotImplementedError("a single output that is not given")
        D = [
            torch.empty((b.shape[0], a.shape[0] if transa else a.shape[-1]), dtype=dtype_of(out_dtype), device=a.device)
            for a, b in zip(A, B)
        ]
    return bias


# ---- extensions/normalization.cpp, common/normalization: partial sums of the weight's gradient ----


def norm_fwd(input, weight, bias, eps, out, quantizer, out_dtype, margin, zero_centered, centered):
    import torch

    rows = input.numel() // input.shape[-1]
    mean = torch.empty(rows, dtype=torch.float32, device=input.device) if centered else None
    inverse = torch.empty(rows, dtype=torch.float32, device=input.device)
    if out is None:
        out = torch.empty(input.shape, dtype=dtype_of(out_dtype), device=input.device)
    return out, mean, inverse


def layernorm_fwd(input, weight, bias, eps, out, quantizer, out_dtype, margin, zero_centered):
    return norm_fwd(input, weight, bias, eps, out, quantizer, out_dtype, margin, zero_centered, True)


def rmsnorm_fwd(input, weight, eps, out, quantizer, out_dtype, margin, zero_centered):
    return norm_fwd(input, weight, None, eps, out, quantizer, out_dtype, margin, zero_centered, False)


def norm_bwd(gradient, x, weight, biased):
    import torch

    made = [torch.empty_like(x), torch.empty_like(weight)] + ([torch.empty_like(weight)] if biased else [])
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    partial = torch.empty((len(made) - 1) * blocks * weight.numel(), dtype=torch.float32, device=x.device)
    del partial
    return made


def layernorm_bwd(gradient, x, mean, inverse, weight, margin, zero_centered):
    return norm_bwd(gradient, x, weight, True)


def rmsnorm_bwd(gradient, x, inverse, weight, margin, zero_centered):
    return norm_bwd(gradient, x, weight, False)


# ---- extensions/attention.cpp ----


def get_fused_attn_backend(*arguments):
    return sys.modules["transformer_engine_torch"].NVTE_Fused_Attn_Backend.NVTE_F16_arbitrary_seqlen


def batch_and_heads(layout, q):
    """Of queries as they lie: sbhd, bshd."""
    first, second, heads = q.shape[:3]
    return (second, heads, first) if layout.split(".NVTE_")[1].startswith("SB") else (first, heads, second)


def fused_attn_fwd(
    max_q, max_kv, training, scale, dropout, zero, layout, bias_type, mask, softmax, window, cu_q, cu_kv, q, k, v,
    *more,
):  # fmt: skip
    import torch

    out = torch.empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype, device=q.device)
    rng_state = torch.empty(2, dtype=torch.int64, device=q.device)
    batch, heads, rows = batch_and_heads(layout, q)
    statistics = torch.empty((batch, heads, rows, 1), dtype=torch.float32, device=q.device)
    return [out, statistics, rng_state]


def fused_attn_bwd(
    max_q, max_kv, scale, dropout, zero, layout, bias_type, mask, softmax, window, deterministic, cu_q, cu_kv, q, k, v,
    *more,
):  # fmt: skip
    import torch

    name, kind = layout.split(".NVTE_")[1], dict(dtype=q.dtype, device=q.device)
    if name in ("SB3HD", "BS3HD"):
        mixed = torch.empty((*q.shape[:-2], 3, *q.shape[-2:]), **kind)
        made = [mixed[..., i, :, :] for i in range(3)]
    elif name in ("SBH3D", "BSH3D"):
        mixed = torch.empty((*q.shape[:-1], 3, q.shape[-1]), **kind)
        made = [mixed[..., i, :] for i in range(3)]
    elif "2" in name:
        made = [torch.empty(q.shape, **kind)]
        inner = name.endswith("H2D")
        shape = (*k.shape[:-1], 2, k.shape[-1]) if inner else (*k.shape[:-2], 2, *k.shape[-2:])
        mixed = torch.empty(shape, **kind)
        made += [mixed[..., i, :] if inner else mixed[..., i, :, :] for i in range(2)]
    else:
        made = [torch.empty(x.shape, **kind) for x in (q, k, v)]
    sums = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    del sums
    return [*made, None, None]


def like_first(first, *more):
    import torch

    return torch.empty_like(first, memory_format=torch.contiguous_format)


def number(value):
    return lambda *arguments, **more: value


def module():
    made = types.ModuleType("transformer_engine_torch")
    for name in (
        "DType", "FP8FwdTensors", "FP8BwdTensors", "NVTE_QKV_Layout", "NVTE_QKV_Format", "NVTE_Bias_Type",
        "NVTE_Mask_Type", "NVTE_Softmax_Type", "NVTE_Fused_Attn_Backend", "CommOverlapType", "CommOverlapAlgo",
        "Float8BlockScaleTensorFormat", "FP8TensorMeta", "CommOverlap", "CommOverlapP2P", "CommOverlapHelper",
        "CommOverlapCore", "CommOverlapBase", "CommOverlapP2PBase",
    ):  # fmt: skip
        setattr(made, name, constants(name))
    for function in (
        generic_gemm, te_general_grouped_gemm, layernorm_fwd, rmsnorm_fwd, layernorm_bwd, rmsnorm_bwd,
        get_fused_attn_backend, fused_attn_fwd, fused_attn_bwd,
    ):  # fmt: skip
        setattr(made, function.__name__, function)
    for name in ("fused_rope_forward", "fused_rope_backward"):
        setattr(made, name, like_first)
    made.get_cudnn_version = number(91500)
    made.get_cublasLt_version = number(130000)
    made.get_num_cublas_streams = number(4)
    made.device_supports_multicast = made.ubuf_built_with_mpi = number(False)
    made.get_stream_priority_range = number((0, -1))

    def absent(name):
        if name.startswith("__"):
            raise AttributeError(name)

        def asked(*arguments, **more):
            raise NotImplementedError(f"transformer_engine_torch.{name} has no stand-in")

        asked.__name__ = name
        return asked

    made.__getattr__ = absent
    made.__all__ = [name for name in vars(made) if not name.startswith("__")]
    return made


def install():
    """Before transformer_engine is imported: its extension, what loads libraries of CUDA's, and what wants ONNX."""
    sys.modules["transformer_engine_torch"] = module()
    exported = sys.modules["transformer_engine.pytorch.onnx_extensions"] = types.ModuleType("onnx_extensions")
    exported.__getattr__ = lambda name: None
    folder = Path(importlib.util.find_spec("transformer_engine").origin).parent / "common"
    common = types.ModuleType("transformer_engine.common")
    common.__path__, common.__package__ = [str(folder)], "transformer_engine.common"
    common.load_framework_extension = lambda framework: None
    sys.modules["transformer_engine.common"] = common
    import transformer_engine

    transformer_engine.common = common
