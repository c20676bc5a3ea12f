"""Process groups of one process: PyTorch's fake one stands for every backend, and what other ranks would answer is
answered as if they had what this one has."""

import functools
import sys

from . import after_import, ending

# What a call does with its group, as far as the memory of NCCL's communicators depends on it.
KINDS = {
    "all_reduce": "reduces", "all_reduce_coalesced": "reduces", "broadcast": "reduces", "reduce": "reduces",
    "barrier": "reduces", "all_gather": "shards", "all_gather_into_tensor": "shards", "_all_gather_base": "shards",
    "all_gather_single": "shards", "all_gather_coalesced": "shards", "reduce_scatter": "shards",
    "reduce_scatter_tensor": "shards", "_reduce_scatter_base": "shards", "reduce_scatter_single": "shards",
    "all_to_all": "exchanges", "all_to_all_single": "exchanges", "scatter": "exchanges", "gather": "exchanges",
    "all_gather_object": "shards", "broadcast_object_list": "reduces", "gather_object": "exchanges",
}  # fmt: skip
FUNCTIONAL = {
    "all_reduce": "reduces", "all_reduce_coalesced": "reduces", "broadcast": "reduces", "all_gather_tensor": "shards",
    "all_gather_tensor_autograd": "shards", "all_gather_into_tensor_coalesced": "shards",
    "reduce_scatter_tensor": "shards", "reduce_scatter_tensor_autograd": "shards",
    "reduce_scatter_tensor_coalesced": "shards", "all_to_all_single": "exchanges",
    "all_to_all_single_autograd": "exchanges", "permute_tensor": "exchanges",
}  # fmt: skip
MESSAGES = ("send", "recv", "isend", "irecv")
ON_DEVICE = ("nccl", "undefined", "")


class Group:
    def __init__(self, ranks, backend):
        self.ranks, self.backend = list(ranks), backend
        self.uses, self.peers = set(), set()

    def on_device(self):
        return any(part.split(":")[-1] in ON_DEVICE for part in self.backend.split(",")) or "nccl" in self.backend

    def told(self):
        return {
            "ranks": self.ranks, "backend": self.backend, "on_device": self.on_device(), "uses": sorted(self.uses),
            "peers": sorted(self.peers),
        }  # fmt: skip


class Groups:
    def __init__(self, torch, run):
        self.torch, self.run, self.c10d = torch, run, torch.distributed.distributed_c10d
        self.asked = "nccl"
        self.of = {}  # process group -> Group

    def find(self, group):
        if group is None or not isinstance(group, self.c10d.ProcessGroup):
            group = self.c10d.GroupMember.WORLD
        return self.of.get(group)

    def note(self, group, kind, peer=None):
        its = self.find(group)
        if its is None:
            return
        if kind:
            its.uses.add(kind)
        if peer is not None and peer != self.run.rank:
            its.peers.add(peer)


def prepare(torch, run):
    if not torch.distributed.is_available():
        return
    groups = Groups(torch, run)
    begin_worlds(groups)
    answer_objects(groups)
    watch_calls(groups)
    answer_replicas(groups)


def put(groups, name, function):
    """In place of one of torch.distributed's, wherever it is called by that name."""
    for module in (groups.torch.distributed, groups.c10d):
        if hasattr(module, name):
            setattr(module, name, function)


def fake_options():
    """Newer releases let the fake group give what this rank has for all others."""
    try:
        from torch._C._distributed_c10d import FakeProcessGroup

        options = FakeProcessGroup.Options()
        options.simulate_uniform_ranks = True
        return options
    except (ImportError, AttributeError, TypeError):
        return None


def begin_worlds(groups):
    run, c10d = groups.run, groups.c10d
    begin, helper, backend_of = c10d.init_process_group, c10d._new_process_group_helper, c10d.get_backend

    @functools.wraps(begin)
    def init_process_group(backend=None, *args, **kwargs):
        from torch.testing._internal.distributed import fake_pg  # noqa: F401  (registers the backend)

        groups.asked = str(backend or "cpu:gloo,cuda:nccl").lower()
        run.stand_in(f"process group of {run.world_size} ranks ({groups.asked})")
        more = {"pg_options": fake_options()} if fake_options() is not None else {}
        begin("fake", rank=run.rank, world_size=run.world_size, store=answering_store(groups), **more)

    @functools.wraps(helper)
    def new_process_group_helper(size, rank, ranks, backend, store, name, backend_options=None, *args, **kwargs):
        made = helper(size, rank, ranks, "fake", store, name, fake_options(), *args, **kwargs)
        group = made[0] if isinstance(made, tuple) else made
        if isinstance(group, c10d.ProcessGroup):
            asked = groups.asked if not backend or str(backend) in ("fake", "undefined") else str(backend).lower()
            groups.of[group] = Group(ranks or range(run.world_size), asked)
            run.groups.append(groups.of[group])
        return made

    @functools.wraps(backend_of)
    def get_backend(group=None):
        its = groups.find(group)
        if its is None:
            return backend_of(group)
        return "nccl" if "nccl" in its.backend else its.backend

    def split_group(parent_pg=None, split_ranks=None, *args, **kwargs):
        mine = None
        for ranks in split_ranks or []:
            made = c10d.new_group(ranks)
            if run.rank in ranks:
                mine = made
        return mine

    put(groups, "init_process_group", init_process_group)
    put(groups, "get_backend", get_backend)
    put(groups, "split_group", split_group)
    c10d._new_process_group_helper = new_process_group_helper
    c10d._store_based_barrier = lambda *args, **kwargs: None


def answering_store(groups):
    """A store that has what this rank put into it. What another rank would put there nobody knows."""
    run = groups.run

    class Store(groups.torch.distributed.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

        def get(self, key):
            if key not in self.values:
                raise RuntimeError(f"the script waits for {key!r} in the process group's store, which another rank would put there")
            return self.values[key]

        def add(self, key, amount):
            self.values[key] = str(int(self.values.get(key, b"0")) + amount).encode()
            return max(int(self.values[key]), run.world_size)  # whoever counts ranks has seen all

        def compare_set(self, key, expected, desired):
            return self.values.setdefault(key, desired.encode() if isinstance(desired, str) else bytes(desired))

        def check(self, keys):
            return True

        def wait(self, keys, timeout=None):
            return None

        def delete_key(self, key):
            return self.values.pop(key, None) is not None

        def num_keys(self):
            return len(self.values)

        def set_timeout(self, timeout):
            return None

    return Store()


def answer_objects(groups):
    """Objects that ranks hand each other: everybody has what this rank has."""
    run, c10d = groups.run, groups.c10d

    def size(group):
        return c10d.get_world_size(group)

    def all_gather_object(object_list, obj, group=None):
        run.stand_in("objects of other ranks: the same as this rank's")
        groups.note(group, "shards")
        object_list[:] = [obj] * size(group)

    def gather_object(obj, object_gather_list=None, dst=None, group=None, *args, **kwargs):
        run.stand_in("objects of other ranks: the same as this rank's")
        groups.note(group, "exchanges")
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * size(group)

    def broadcast_object_list(object_list, src=None, group=None, *args, **kwargs):
        groups.note(group, "reduces")
        if src is not None and src != run.rank:
            run.stand_in("objects that another rank broadcasts: what this rank had in their place")

    def scatter_object_list(output, inputs=None, src=None, group=None, *args, **kwargs):
        if inputs:
            output[0] = inputs[c10d.get_rank(group)]
        else:
            run.stand_in("objects that another rank scatters: what this rank had in their place")

    def recv_object_list(object_list, src=None, *args, **kwargs):
        wait_in_vain(run, f"objects that rank {kwargs.get('group_src', src)} would send")

    def send_object_list(object_list, dst=None, *args, **kwargs):
        return None

    def monitored_barrier(*args, **kwargs):
        return None

    for function in (all_gather_object, gather_object, broadcast_object_list, scatter_object_list, recv_object_list,
                     send_object_list, monitored_barrier):  # fmt: skip
        put(groups, function.__name__, function)
    after_import("deepspeed.runtime.pipe.engine", lambda module: stages_of_deepspeed(module, run))


def wait_in_vain(run, what):
    """What only another rank knows, and the shapes of tensors depend on."""
    stack = ending.stack_of(sys._getframe(2))
    print(f"tidemark dry-run: the script waits for {what}, and nobody does", file=sys.stderr)
    for line in stack:
        print(f"  {line}", file=sys.stderr)
    run.end("refused", {"type": "message", "message": what, "stack": stack})


def stages_of_deepspeed(module, run):
    """Stages of a pipeline tell the next one shapes by a message."""

    def _recv_tensor_meta(self, send_stage):
        wait_in_vain(run, f"the shapes of tensors that stage {send_stage} of the pipeline would send")

    if hasattr(module.PipelineEngine, "_recv_tensor_meta"):
        module.PipelineEngine._recv_tensor_meta = _recv_tensor_meta


def watch_calls(groups):
    torch, c10d = groups.torch, groups.c10d
    group_type = c10d.ProcessGroup

    def group_in(args, kwargs):
        if "group" in kwargs:
            return kwargs["group"]
        return next((a for a in args if isinstance(a, group_type)), None)

    def watched(function, kind):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if torch.compiler.is_compiling():
                return function(*args, **kwargs)
            groups.note(group_in(args, kwargs), kind)
            held = flat_copy(torch, function.__name__, args)
            result = function(*args, **kwargs)
            del held
            return result

        return call

    for name, kind in KINDS.items():
        if hasattr(c10d, name) and not name.endswith("_object") and name != "broadcast_object_list":
            put(groups, name, watched(getattr(c10d, name), kind))

    def messenger(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            peer = next((a for a in args[1:] if isinstance(a, int)), kwargs.get("dst", kwargs.get("src")))
            groups.note(group_in(args, kwargs), None, peer)
            return function(*args, **kwargs)

        return call

    for name in MESSAGES:
        put(groups, name, messenger(getattr(c10d, name)))
    batch = c10d.batch_isend_irecv

    @functools.wraps(batch)
    def batch_isend_irecv(operations):
        for operation in operations:
            groups.note(operation.group, None, getattr(operation, "peer", None))
        return batch(operations)

    put(groups, "batch_isend_irecv", batch_isend_irecv)
    watch_functional(groups)


def watch_functional(groups):
    torch, c10d = groups.torch, groups.c10d
    try:
        import torch.distributed._functional_collectives as functional
    except ImportError:
        return

    def group_of(arguments):
        for argument in arguments:
            if isinstance(argument, c10d.ProcessGroup):
                return argument
            if hasattr(argument, "get_group") and hasattr(argument, "mesh_dim_names"):
                return argument.get_group()
            if isinstance(argument, tuple) and len(argument) == 2 and hasattr(argument[0], "get_group"):
                return argument[0].get_group(argument[1])
            if isinstance(argument, str) and argument in names():
                return names()[argument]
        return None

    def names():
        return {getattr(group, "group_name", None): group for group in groups.of}

    def watched(function, kind):
        @functools.wraps(function)
        def call(*args, **kwargs):
            if not torch.compiler.is_compiling():
                try:
                    groups.note(group_of([*args, *kwargs.values()]), kind)
                except Exception:
                    pass
            return function(*args, **kwargs)

        return call

    for name, kind in FUNCTIONAL.items():
        if hasattr(functional, name):
            setattr(functional, name, watched(getattr(functional, name), kind))


def flat_copy(torch, name, args):
    """NCCL's group gathers lists by way of one tensor (newLikeFlat in torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp)."""
    if name not in ("all_gather", "reduce_scatter") or len(args) < 2:
        return None
    parts = args[0] if name == "all_gather" else args[1]
    if not isinstance(parts, (list, tuple)) or not parts or not getattr(parts[0], "is_cuda", False):
        return None
    if any(part.shape != parts[0].shape for part in parts):
        return None
    return torch.empty((len(parts), *parts[0].shape), dtype=parts[0].dtype, device=parts[0].device)


def answer_replicas(groups):
    """What DistributedDataParallel asks other ranks as it begins: they have the same parameters."""
    torch, run = groups.torch, groups.run
    distributed = torch.nn.parallel.distributed
    if hasattr(distributed, "_verify_param_shape_across_processes"):
        distributed._verify_param_shape_across_processes = lambda *args, **kwargs: None
    its = distributed.DistributedDataParallel
    begin = its.__init__

    @functools.wraps(begin)
    def __init__(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        groups.note(self.process_group, "reduces")
        # The fake group's work carries no result, which the reducer would ask for.
        hook = self.register_comm_hook

        def reduced(state, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        hook(None, reduced)

        def register_comm_hook(state, asked):
            run.stand_in("a communication hook of DistributedDataParallel: the bucket as it is")

        self.register_comm_hook = register_comm_hook

    its.__init__ = __init__
