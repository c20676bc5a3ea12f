"""Follows every storage of a fake-tensor run: who made it, when it died, what it became.

MemTracker gives totals by category; this says which tensors they are. Both count the same storages, and `record_fake`
asserts that their peaks agree."""

import weakref
from collections import Counter

import torch
from torch.distributed._tools.common_utils import get_untyped_storages
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# The use counts, as this file reads them, of a gradient that nobody but the engine holds. `record_fake.py --check`
# finds the engine of a run with real tensors on the CPU to decide in the same way, sum by sum.
TENSOR_USES = 4
STORAGE_USES = 2

ROUND = 512  # what the CUDA caching allocator rounds every block up to, and MemTracker with it


class Storage:
    """One storage: its rounded bytes, what made it, and its category, which is settled at the end of the step."""

    __slots__ = ("id", "bytes", "op", "module", "phase", "shape", "dtype", "category")

    def __init__(self, id, bytes, op, module, phase, tensor, category):
        self.id, self.bytes, self.op, self.module, self.phase = id, bytes, op, module, phase
        self.shape, self.dtype = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        self.category = category


def dense(tensor):
    """Whether the elements fill their storage range without overlap, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def in_backward():
    return torch._C._current_graph_task_id() != -1


class StorageLog(TorchDispatchMode):
    def __init__(self, model, device, in_place_accumulation=False):
        super().__init__()
        self.device = torch.device(device).type
        self.in_place_accumulation = in_place_accumulation
        self.names = {id(module): (name, type(module).__name__) for name, module in model.named_modules()}
        self.stack = []  # the modules whose forward is running, outermost first
        self.module_of_node = {}  # an autograd node's sequence number -> the module whose forward made it
        self.last_node = torch.autograd._get_sequence_nr()
        self.phase = "setup"
        self.live = {}  # id(StorageImpl) -> Storage
        self.refs = {}
        self.total = 0
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

    def note_peak(self, op):
        if self.total > self.peak:
            self.peak, self.peak_live = self.total, list(self.live.values())
            self.peak_at = {"op": op, "module": self.where()[0], "class": self.where()[1], "phase": self.now()}

    def by_category(self, entries=None):
        out = Counter()
        for entry in self.live.values() if entries is None else entries:
            out[entry.category] += entry.bytes
        return dict(sorted(out.items()))

    # ---- where are we -----------------------------------------------------------------------------------------------

    def now(self):
        if self.phase == "backward" and self.stack:
            return "recompute"
        return self.phase

    def where(self):
        """(name, class) of the module that runs, or whose backward runs."""
        if self.stack:
            return self.names.get(self.stack[-1], ("", "?"))
        if self.phase == "backward":
            node = torch._C._current_autograd_node()
            if node is None:
                return ("", "autograd engine")
            return self.names.get(self.module_of_node.get(node._sequence_nr()), ("", node.name()))
        return ("", self.phase)

    def op_name(self, func):
        name = str(func).removeprefix("aten.").removesuffix(".default")
        if self.phase == "backward" and not self.stack:
            node = torch._C._current_autograd_node()
            name += " in " + (node.name().removeprefix("torch::autograd::") if node else "accumulation")
        return name

    # ---- storages ---------------------------------------------------------------------------------------------------

    def add(self, storage, tensor, op):
        key = storage._cdata
        size = -(-storage.nbytes() // ROUND) * ROUND if self.device == "cuda" else storage.nbytes()
        if key in self.live:
            if size != self.live[key].bytes:
                raise RuntimeError("a storage was resized: not modelled by this log")
            return
        if size == 0:
            return
        module = self.where()
        if op == "given":
            category = "other"
        elif self.now() in ("forward", "recompute"):
            category = "activation"
        else:
            category = "temporary"
        entry = Storage(self.count, size, op, module, self.now(), tensor, category)
        self.count += 1
        self.live[key] = entry
        self.refs[key] = weakref.ref(storage, lambda _, key=key: self.drop(key))
        self.total += size
        if self.events is not None:
            self.events.append(("alloc", entry))

    def drop(self, key):
        entry = self.live.pop(key)
        del self.refs[key]
        self.total -= entry.bytes
        if self.events is not None:
            self.events.append(("free", entry))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "prim.device" in str(func):
            return func(*args, **kwargs)
        self.name_nodes()
        op = self.op_name(func)
        result = None
        if self.engine_adds(func, args):
            result = self.accumulate(*args)
        if result is None:
            result = func(*args, **kwargs)
        if "scaled_dot_product" in str(func) or "efficient_attention" in str(func):
            self.attention_ops[str(func).removeprefix("aten.").removesuffix(".default")] += 1
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == self.device:
                for storage in get_untyped_storages(tensor):
                    self.add(storage, tensor, op)
        self.note_peak(op)
        return result

    def engine_adds(self, func, args):
        """Whether autograd's engine sums two gradients of one tensor: it does so while the node that made the second
        is still the current one. No backward formula of the recorded models adds two tensors of one shape itself."""
        if func is not torch.ops.aten.add.Tensor or not in_backward() or self.stack:
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
        now = torch.autograd._get_sequence_nr()
        if self.stack:
            for number in range(self.last_node, now):
                self.module_of_node[number] = self.stack[-1]
        self.last_node = now

    def enter_module(self, module, inputs):
        self.name_nodes()
        if id(module) in self.names:
            self.stack.append(id(module))

    def leave_module(self, module, inputs, output):
        self.name_nodes()
        if id(module) in self.stack:  # an early stop of recomputation leaves modules without a word
            while self.stack.pop() != id(module):
                pass

    def __enter__(self):
        self.hooks = [
            register_module_forward_pre_hook(self.enter_module),
            register_module_forward_hook(self.leave_module, always_call=True),
        ]
        return super().__enter__()

    def __exit__(self, *args):
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*args)
