"""Small Llama-shaped models in plain PyTorch, and the four ways in which record_gpu.py trains them."""

import contextlib

import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    "tiny": {"hidden": 64, "ffn": 192, "layers": 2, "heads": 8, "kv_heads": 4, "vocabulary": 512},
    "small": {"hidden": 2048, "ffn": 5632, "layers": 8, "heads": 16, "kv_heads": 4, "vocabulary": 32000},
    "medium": {"hidden": 4096, "ffn": 14336, "layers": 6, "heads": 32, "kv_heads": 8, "vocabulary": 128256},
}

# name: what is trained and how; `ways` says over how many ranks, of which one runs.
JOBS = {
    "plain": {"shape": "small", "batch": 2, "sequence": 2048},
    "checkpointed": {"shape": "small", "batch": 4, "sequence": 2048, "checkpoint": True},
    "fsdp2_8": {"shape": "medium", "batch": 1, "sequence": 4096, "fsdp": 8},
    "fsdp2_64_last": {"shape": "medium", "batch": 1, "sequence": 4096, "fsdp": 64, "rank": 63},
    "fsdp2_8_checkpointed": {"shape": "medium", "batch": 2, "sequence": 4096, "fsdp": 8, "checkpoint": True},
    "tp_4": {"shape": "medium", "batch": 1, "sequence": 4096, "tensor": 4},
    "tp_2_fsdp2_4": {"shape": "medium", "batch": 1, "sequence": 4096, "tensor": 2, "fsdp": 4},
}
DEFAULTS = {"checkpoint": False, "fsdp": 1, "tensor": 1, "rank": 0, "learning_rate": 1e-4}


def job_named(name, shape=None):
    job = {**DEFAULTS, **JOBS[name]}
    job["shape"] = shape or job["shape"]
    return job


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def rotate(x, cosine, sine):
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).type_as(x)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.head_dim = shape["hidden"] // shape["heads"]
        self.wq = nn.Linear(shape["hidden"], shape["heads"] * self.head_dim, bias=False)
        self.wk = nn.Linear(shape["hidden"], shape["kv_heads"] * self.head_dim, bias=False)
        self.wv = nn.Linear(shape["hidden"], shape["kv_heads"] * self.head_dim, bias=False)
        self.wo = nn.Linear(shape["heads"] * self.head_dim, shape["hidden"], bias=False)

    def forward(self, x, cosine, sine):
        batch, sequence, _ = x.shape
        q, k, v = (w(x).view(batch, sequence, -1, self.head_dim).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return self.wo(out.transpose(1, 2).reshape(batch, sequence, -1))


class FeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.w1 = nn.Linear(shape["hidden"], shape["ffn"], bias=False)
        self.w3 = nn.Linear(shape["hidden"], shape["ffn"], bias=False)
        self.w2 = nn.Linear(shape["ffn"], shape["hidden"], bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention_norm = RMSNorm(shape["hidden"])
        self.attention = Attention(shape)
        self.mlp_norm = RMSNorm(shape["hidden"])
        self.mlp = FeedForward(shape)
        self.checkpoint = False

    def forward(self, x, cosine, sine):
        if not self.checkpoint:
            return self.run(x, cosine, sine)
        # Within fully_shard's hooks: what they gather is there, and keeps its sizes, while this runs again.
        return torch.utils.checkpoint.checkpoint(self.run, x, cosine, sine, use_reentrant=False)

    def run(self, x, cosine, sine):
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        return x + self.mlp(self.mlp_norm(x))


class Llama(nn.Module):
    def __init__(self, shape, sequence):
        super().__init__()
        self.embedding = nn.Embedding(shape["vocabulary"], shape["hidden"])
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape["layers"]))
        self.norm = RMSNorm(shape["hidden"])
        self.head = nn.Linear(shape["hidden"], shape["vocabulary"], bias=False)
        self.sequence, self.head_dim = sequence, shape["hidden"] // shape["heads"]
        self.set_angles("cpu")

    def set_angles(self, device):
        places = torch.arange(self.sequence, dtype=torch.float32, device=device)
        rates = 1.0 / 10000 ** (torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim)
        angles = torch.outer(places, rates)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        return self.head(self.norm(x))


def join_fake_job(job):
    """This process is one rank of a job whose collectives do nothing; returns its mesh, or None for a job of one."""
    world = job["fsdp"] * job["tensor"]
    if world == 1:
        return None
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=job["rank"], world_size=world, store=FakeStore())
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    return dist.device_mesh.init_device_mesh(kind, (job["fsdp"], job["tensor"]), mesh_dim_names=("fsdp", "tensor"))


def leave_fake_job():
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def parallelize(model, job, mesh):
    if job["tensor"] > 1:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {f"attention.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}
        plan |= {"attention.wo": RowwiseParallel(), "mlp.w1": ColwiseParallel(), "mlp.w3": ColwiseParallel()}
        plan |= {"mlp.w2": RowwiseParallel()}
        for layer in model.layers:
            parallelize_module(layer, mesh["tensor"], plan)
    if job["fsdp"] > 1:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["fsdp"], mp_policy=policy)
        fully_shard(model, mesh=mesh["fsdp"], mp_policy=policy)


def parameter_groups(model):
    """Distributed tensors and ordinary ones: a kernel for many tensors takes one kind."""
    kinds = {}
    for parameter in model.parameters():
        kinds.setdefault(type(parameter.data), []).append(parameter)
    return [{"params": parameters} for parameters in kinds.values()]


class Training:
    """A model, its optimizer and one batch on a device; `step` is one training step."""

    def __init__(self, job, device):
        shape = SHAPES[job["shape"]]
        self.mesh = join_fake_job(job)
        self.autocast = job["fsdp"] == 1
        with torch.device("meta"):
            self.model = Llama(shape, job["sequence"])
        for layer in self.model.layers:
            layer.checkpoint = job["checkpoint"]
        parallelize(self.model, job, self.mesh)
        self.model.to_empty(device=device)
        self.model.set_angles(device)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.normal_(0, 0.02) if parameter.dim() > 1 else parameter.fill_(1.0)
        self.optimizer = torch.optim.AdamW(parameter_groups(self.model), lr=job["learning_rate"], foreach=True)
        self.ids = torch.randint(0, shape["vocabulary"], (job["batch"], job["sequence"]), device=device)
        self.device = device

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        context = torch.autocast(self.device.type, torch.bfloat16) if self.autocast else contextlib.nullcontext()
        with context:
            logits = self.model(self.ids)
            loss = F.cross_entropy(logits.flatten(0, 1).float(), self.ids.flatten())
        del logits
        loss.backward()
        self.optimizer.step()
        return loss.detach()
