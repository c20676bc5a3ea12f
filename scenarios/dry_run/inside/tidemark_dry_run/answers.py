"""What the host reads from the device. Kernels write nothing, so that it reads zeros: losses and norms are 0, nothing
overflows. Where a zero would be an answer that no training gets, another one is given, and said."""

import functools
import os
import sys

from . import after_import

# Where transformers asks the device whether a mask has padding, or a row several sequences.
MASKS = ("masking_utils.py", "modeling_attn_mask_utils.py")


def prepare(torch, run):
    finite(torch, run)
    equal(torch, run)
    places(torch, run)
    attention(torch, run)
    initialization(torch, run)
    convolutions(torch, run)
    after_import("transformers.masking_utils", lambda module: masks(module, torch, run))


def finite(torch, run):
    """Values are finite. torch.isfinite(x).all() would say no."""
    asked, every, every_of = torch.isfinite, torch.Tensor.all, torch.all

    @functools.wraps(asked)
    def isfinite(tensor):
        result = asked(tensor)
        if result.is_cuda:
            result._tidemark_all_true = True
        return result

    def answering(function):
        @functools.wraps(function)
        def all(self, *args, **kwargs):
            result = function(self, *args, **kwargs)
            if getattr(self, "_tidemark_all_true", False) or (result.is_cuda and is_of_mask(sys._getframe(1), run)):
                result._tidemark_all_true = True
            return result

        return all

    def reading(name):
        read = getattr(torch.Tensor, name)

        @functools.wraps(read)
        def call(self):
            if getattr(self, "_tidemark_all_true", False):
                run.stand_in("whether values are finite, or masks let all through: they are, and do")
                read(self)
                return True
            return without_remains(self, read(self))

        return call

    torch.isfinite = torch.Tensor.isfinite = isfinite  # by its name, which compilers of others look at
    torch.Tensor.all, torch.all = answering(every), answering(every_of)
    for name in ("item", "__float__", "__bool__"):
        setattr(torch.Tensor, name, reading(name))


def is_of_mask(frame, run):
    return os.path.basename(frame.f_code.co_filename) in MASKS and not getattr(run, "rows_are_packed", False)


def masks(module, torch, run):
    """Rows have one sequence each and no padding, unless positions that came from the host say otherwise."""
    fast = getattr(module, "fast_all", None)
    if fast:

        @functools.wraps(fast)
        def fast_all(tensor):
            result = fast(tensor)
            if result.is_cuda:
                result._tidemark_all_true = True
            return result

        module.fast_all = fast_all
    ask = getattr(module, "find_packed_sequence_indices", None)
    if ask:

        @functools.wraps(ask)
        def find_packed_sequence_indices(position_ids):
            if position_ids.is_cuda:
                there = position_ids.cpu()
                run.rows_are_packed = bool((there[:, 1:] - there[:, :-1] != 1).any()) and bool(there.any())
            try:
                return ask(position_ids)
            finally:
                run.rows_are_packed = False

        module.find_packed_sequence_indices = find_packed_sequence_indices


def without_remains(tensor, value):
    """What a tensor before it has left in memory is no loss or norm, and says of nothing that it is so: zero, and no. Whole
    numbers may be what the host copied there."""
    if isinstance(value, bool) and tensor.is_cuda and not is_whole(tensor):
        return False
    if isinstance(value, float) and tensor.is_cuda and not 1e-12 < abs(value) < 1e12:
        return 0.0
    return value


def is_whole(tensor):
    return not tensor.is_floating_point() and str(tensor.dtype) != "torch.bool"


def equal(torch, run):
    """Whether two tensors on the device hold the same: where their shapes do, they do."""

    def answered(function):
        @functools.wraps(function)
        def call(a, b, *args, **kwargs):
            result = function(a, b, *args, **kwargs)
            if getattr(a, "is_cuda", False) and getattr(b, "is_cuda", False) and a.shape == b.shape:
                run.stand_in("whether tensors on the device are equal: they are")
                return True
            return result

        return call

    torch.equal, torch.allclose = answered(torch.equal), answered(torch.allclose)


def places(torch, run):
    """Where a row of a mask is not zero: everywhere, since nothing of it is padding."""
    asked = torch.nonzero

    @functools.wraps(asked)
    def nonzero(input, *, as_tuple=False, **kwargs):
        found = asked(input, as_tuple=as_tuple, **kwargs)
        if kwargs or as_tuple or not input.is_cuda or input.dim() != 1 or input.is_floating_point() or found.numel():
            return found
        run.stand_in("where a row of whole numbers or a mask is not zero: everywhere")
        return torch.zeros((input.numel(), 1), dtype=found.dtype, device=found.device)

    torch.nonzero = nonzero


def attention(torch, run):
    """cuDNN builds a plan for its device before it runs, which only a device can answer."""
    try:
        torch.backends.cuda.enable_cudnn_sdp(False)
        from torch.nn import attention as module
    except (AttributeError, ImportError):
        return
    backend, choose = getattr(module, "SDPBackend", None), getattr(module, "sdpa_kernel", None)
    cudnn = getattr(backend, "CUDNN_ATTENTION", None)
    if cudnn is None or choose is None:
        return

    @functools.wraps(choose)
    def sdpa_kernel(backends, *args, **kwargs):
        asked = list(backends) if isinstance(backends, (list, tuple)) else [backends]
        if cudnn in asked:
            run.stand_in("cuDNN's attention: FlashAttention, or whatever else the script allows")
            asked = [b for b in asked if b != cudnn] or [backend.FLASH_ATTENTION, backend.MATH]
        return choose(asked, *args, **kwargs)

    module.sdpa_kernel = sdpa_kernel


def convolutions(torch, run):
    """cuDNN chooses among its algorithms, and how much they work in, by asking the device."""
    torch.backends.cudnn.enabled = False
    functional = torch.nn.functional

    def watched(function):
        @functools.wraps(function)
        def call(input, *args, **kwargs):
            if not torch.compiler.is_compiling() and input.is_cuda:
                run.stand_in("cuDNN's convolutions: PyTorch's own, which work in other buffers")
            return function(input, *args, **kwargs)

        return call

    for kind in ("conv", "conv_transpose"):
        for dimensions in "123":
            name = f"{kind}{dimensions}d"
            setattr(functional, name, watched(getattr(functional, name)))


def initialization(torch, run):
    """Releases that draw until all values lie within bounds would draw for ever."""
    init = torch.nn.init
    draw = init.trunc_normal_

    @functools.wraps(draw)
    def trunc_normal_(tensor, *args, **kwargs):
        if not tensor.is_cuda:
            return draw(tensor, *args, **kwargs)
        with torch.no_grad():
            return tensor.zero_()

    init.trunc_normal_ = trunc_normal_
