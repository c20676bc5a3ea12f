"""Follows every storage of a run: who made it, when it died, what it became.

MemTracker gives totals by category; this says which tensors they are. Both count the same storages, and `record_fake`
asserts that their peaks agree. Over real tensors it can also say what the kernels allocated for themselves."""

import functools
import threading
import weakref
from collections import Counter

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.distributed._tools.common_utils import get_untyped_storages
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The use counts, as this file reads them, of a gradient that nobody but the engine holds: measured, PyTorch 2.15. Were
# they wrong, the sums of bytes would differ from those of a plain run, which `record_fake` compares.
TENSOR_USES = 4
STORAGE_USES = 2

ROUND = 512  # what the CUDA caching allocator rounds every block up to, and MemTracker with it


class Storage:
    """One storage: its rounded bytes, what made it, and its category, which is settled at the end of the step."""

    __slots__ = ("id", "bytes", "requested", "op", "module", "phase", "shape", "dtype", "category")

    def __init__(self, id, requested, op, module, phase, tensor, category):
        self.id, self.requested, self.op, self.module, self.phase = id, requested, op, module, phase
        self.bytes = -(-requested // ROUND) * ROUND
        self.shape, self.dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        self.category = category


def short(func):
    return str(func).removeprefix("aten.").removesuffix(".default")


def dense(tensor):
    """Whether the elements fill their storage range without overlap, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def requested(which):
    return torch._C._cuda_memoryStats(0)["requested_bytes"]["all"][which]  # memory_stats() takes its time to sort


def in_backward():
    return torch._C._current_graph_task_id() != -1


def recomputing():
    """Backward itself runs without gradients; a checkpointed part runs again with them."""
    return in_backward() and torch.is_grad_enabled()


class StorageLog(TorchDispatchMode):
    def __init__(self, model, in_place_accumulation, runs_recomputed_nodes, with_kernels=False):
        """`runs_recomputed_nodes`: backward runs the nodes that recomputation made (reentrant checkpointing), not those
        of the first forward. `with_kernels` asks the caching allocator around every op; tensors must be real."""
        super().__init__()
        self.device = "cuda"
        self.in_place_accumulation = in_place_accumulation
        self.runs_recomputed_nodes = runs_recomputed_nodes
        self.with_kernels = with_kernels
        self.names = {id(module): (name, type(module).__name__) for name, module in model.named_modules()}
        self.stack = []  # the modules whose forward is running, outermost first, each (name, class)
        self.module_of_node = {}  # an autograd node's sequence number -> the module whose forward made it
        for module in model.modules():
            self.follow(module)
        self.last_node = {}  # of each thread: each numbers its own nodes
        self.phase = "setup"
        self.live = {}  # id(StorageImpl) -> Storage
        self.refs = {}
        self.total = 0
        self.requested = 0
        self.count = 0
        self.events = None  # a list while somebody wants them
        self.accumulations = Counter()  # sums of gradients that autograd's engine itself made, by kind
        self.attention_ops = Counter()
        self.reset_peak()

    # ---- categories -------------------------------------------------------------------------------------------------

    def name_tensors(self, tensors, category):
        """Everything in `tensors` is of `category`; storages not yet seen are added."""
        for tensor in tensors:
            if tensor is None or tensor.device.type != self.device:
                continue
            for storage in get_untyped_storages(tensor):
                self.add(storage, tensor, "given")
                entry = self.live.get(storage._cdata)
                if entry is not None:
                    entry.category = category

    # ---- the peak ---------------------------------------------------------------------------------------------------

    def reset_peak(self):
        self.peak, self.peak_live, self.peak_at = self.total, list(self.live.values()), None
        self.peak_requested = self.requested
        self.kernel_peak, self.kernel_peak_at = 0, None  # what the allocator saw, with what kernels held at the time
        self.kernels = {}  # (op, class) -> the most bytes that one call held beyond its results

    def note_peak(self, op):
        self.peak_requested = max(self.peak_requested, self.requested)
        if self.total > self.peak:
            self.peak, self.peak_live = self.total, list(self.live.values())
            self.peak_at = self.place(op)

    def place(self, op):
        name, kind = self.where()
        return {"op": op, "module": name, "class": kind, "phase": self.now()}

    def by_category(self, entries=None):
        out = Counter()
        for entry in self.live.values() if entries is None else entries:
            out[entry.category] += entry.bytes
        return dict(sorted(out.items()))

    # ---- where are we -----------------------------------------------------------------------------------------------

    def now(self):
        return "recompute" if recomputing() else self.phase

    def where(self):
        """(name, class) of the module that runs, or whose backward runs."""
        if self.stack:
            return self.stack[-1]
        if recomputing():
            return ("", "checkpointed layer")  # transformers recomputes its forward(), which is not followed
        node = torch._C._current_autograd_node()
        if node is None:
            return ("", "autograd engine" if in_backward() else self.phase)
        return self.module_of_node.get(node._sequence_nr(), ("", node.name()))

    def op_name(self, func):
        name = short(func)
        if in_backward() and not recomputing():
            node = torch._C._current_autograd_node()
            name += " in " + (node.name().removeprefix("torch::autograd::") if node else "engine")
        return name

    # ---- storages ---------------------------------------------------------------------------------------------------

    def add(self, storage, tensor, op):
        key = storage._cdata
        size = storage.nbytes()
        if key in self.live:
            if size != self.live[key].requested:
                raise RuntimeError("a storage was resized: not modelled by this log")
            return
        if size == 0:
            return
        entry = Storage(self.count, size, op, self.where(), self.now(), tensor, self.category(op))
        self.count += 1
        self.live[key] = entry
        self.refs[key] = weakref.ref(storage, lambda _, key=key: self.drop(key))
        self.total += entry.bytes
        self.requested += size
        if self.events is not None:
            self.events.append(("alloc", entry))

    def category(self, op):
        """What a storage is as long as nothing else is known of it."""
        if op == "given":
            return "other"
        if self.phase == "setup" or (self.phase == "forward" and not self.stack):
            return "bucket"  # DistributedDataParallel's: nothing else is made outside the model's modules
        return "activation" if self.now() in ("forward", "recompute") else "temporary"

    def drop(self, key):
        entry = self.live.pop(key)
        del self.refs[key]
        self.total -= entry.bytes
        self.requested -= entry.requested
        if self.events is not None:
            self.events.append(("free", entry))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "prim.device" in str(func):
            return func(*args, **kwargs)
        self.name_nodes()
        op = self.op_name(func)
        result = None
        if func is torch.ops.aten._local_scalar_dense.default and is_fake(args[0]) and args[0].device.type == "cuda":
            return 0.0  # as the device without kernels says: GradScaler has found no infinity
        if self.engine_adds(func, args):
            result = self.accumulate(*args)
        if result is None:
            result = self.measured(op, func, args, kwargs) if self.with_kernels else func(*args, **kwargs)
        if "scaled_dot_product" in str(func) or "efficient_attention" in str(func):
            self.attention_ops[short(func)] += 1
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == self.device:
                for storage in get_untyped_storages(tensor):
                    self.add(storage, tensor, op)
        self.note_peak(op)
        return result

    def measured(self, op, func, args, kwargs):
        before = requested("current")
        torch.cuda.reset_peak_memory_stats()
        result = func(*args, **kwargs)
        peak, after = requested("peak"), requested("current")
        own = peak - max(before, after)
        if own > 0:
            key = (op, self.where()[1])
            self.kernels[key] = max(own, self.kernels.get(key, 0))
        if peak > self.kernel_peak:
            self.kernel_peak, self.kernel_peak_at = peak, {**self.place(op), "held_by_kernel": own}
        return result

    def engine_adds(self, func, args):
        """Whether autograd's engine sums two gradients of one tensor: it does so while the node that made the second
        is still the current one. No backward formula of the recorded models adds two tensors of one shape itself."""
        if func is not torch.ops.aten.add.Tensor or not in_backward() or recomputing():
            return False
        into, tensor = args
        return isinstance(tensor, torch.Tensor) and into.shape == tensor.shape and into.dtype == tensor.dtype

    def accumulate(self, into, tensor):
        """What the engine's InputBuffer does outside a dispatch mode: it adds in place where nobody else holds the
        first summand or its storage (torch/csrc/autograd/input_buffer.cpp, can_accumulate_inplace; under a mode that
        answer is always no). Returns None where it would not."""
        storage = torch._C._storage_Use_Count(into.untyped_storage()._cdata)
        alone = into._use_count() <= TENSOR_USES and storage <= STORAGE_USES and dense(into)
        self.accumulations["in place" if alone else "out of place"] += 1
        return into.add_(tensor) if alone and self.in_place_accumulation else None

    # ---- modules ----------------------------------------------------------------------------------------------------

    def name_nodes(self):
        """Every autograd node made since the last call belongs to the module that runs now."""
        thread, now = threading.get_ident(), torch.autograd._get_sequence_nr()
        if self.stack and (self.runs_recomputed_nodes or not recomputing()):
            for number in range(self.last_node.get(thread, now), now):
                self.module_of_node[number] = self.stack[-1]
        self.last_node[thread] = now

    def follow(self, module):
        """Notes when `module` runs. A wrapper and no hook: hooks that must also see an early stop of recomputation
        (and MemTracker's do) keep the stopped layer's tensors alive."""
        forward, names = module.forward, self.names[id(module)]

        def followed(*args, **kwargs):
            self.name_nodes()
            self.stack.append(names)
            try:
                return forward(*args, **kwargs)
            finally:
                self.name_nodes()
                self.stack.pop()

        module.forward = functools.wraps(forward)(followed)
