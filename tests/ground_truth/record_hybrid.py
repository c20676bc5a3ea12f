"""Steps Megatron's HybridDeviceOptimizer over one rank's shards of a model, for record_offload.py. The optimizer is
Megatron's own; what is around it stands for Megatron's distributed optimizer, as far as the optimizer is asked:

- it is made of the whole parameters first, then again of the shards, and the first is left to the garbage collector;
- a shard is an even part of each parameter. Megatron cuts the buffer of all gradients: its shards' sizes differ;
- precision-aware: shards are views of the bf16 parameters, gradients of the fp32 buffer (decoupled_grad). Otherwise
  shards are fp32 copies of the parameters, which stay on the device;
- what is not offloaded is stepped by PyTorch's fused AdamW in place of Transformer Engine's.
"""

import importlib.metadata
import importlib.util
import sys
from types import SimpleNamespace

import record_sharded

MADE_BY = record_sharded.MADE_BY
HOST_LINES = {
    "param.detach().clone().cpu().pin_memory()": "copies_of_parameters",
    "param.detach().clone().float()": "parameters",
    "param = param.pin_memory()": "parameters",
}
HOST_MADE_BY = {
    "_set_sub_optimizer_grads": "gradients",
    "param_copy_back_gpu_hook": "parameters",
    "fp32_param_copy_back_gpu_hook": "parameters",
}


def optimizer_class():
    """From the folder of a release, without the rest of Megatron."""
    for folder in sys.path:
        path = f"{folder}/megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py"
        try:
            open(path).close()
        except OSError:
            continue
        spec = importlib.util.spec_from_file_location("hybrid_optimizer", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.HybridDeviceOptimizer
    raise FileNotFoundError("no release of Megatron among --releases")


def versions():
    return {"megatron-core": importlib.metadata.version("megatron-core")}


def prepare(config, settings):
    import torch
    import transformers

    model_class = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    with torch.device("meta"):
        shapes = [tuple(parameter.shape) for parameter in model_class(config).parameters()]
    parameters = [torch.nn.Parameter(torch.empty(s, dtype=torch.bfloat16, device="cuda")) for s in shapes]
    world, rank = settings["world"], settings["rank"]

    def part(tensor):
        size = tensor.numel() // world
        return tensor.detach().view(-1)[rank * size : (rank + 1) * size]

    buffer = torch.zeros(sum(p.numel() for p in parameters), dtype=torch.float32, device="cuda")
    gradients, at = [], 0
    for parameter in parameters:
        gradients.append(part(buffer[at : at + parameter.numel()]))
        at += parameter.numel()
    said = {
        "offload_fraction": settings["fraction"], "cpu_optimizer_cls": torch.optim.AdamW,
        "gpu_optimizer_cls": torch.optim.AdamW, "param_update_in_fp32": True,
        "pin_cpu_grads": settings["pin_gradients"], "pin_cpu_params": settings["pin_parameters"],
        "overlap_cpu_optimizer_d2h_h2d": settings["overlap"],
        "lr": 1e-4, "weight_decay": 0.1, "betas": (0.9, 0.95), "eps": 1e-8, "fused": True,
    }  # fmt: skip
    kind = optimizer_class()
    optimizer = kind([{"params": parameters}], **said)
    shards = [part(p) if settings["precision_aware"] else part(p).clone().float() for p in parameters]
    optimizer = kind(params=[{"params": shards}], **optimizer.defaults)
    return SimpleNamespace(optimizer=optimizer, parameters=parameters, buffer=buffer), shards, gradients


def train_step(trained, shards, gradients, settings):
    for shard, gradient in zip(shards, gradients):
        if settings["precision_aware"]:
            shard.decoupled_grad = gradient
        else:
            shard.grad = gradient
    trained.optimizer.step()


def streams(trained):
    """What the streams are called; without overlap there is one, on which everything else runs too."""
    to_host, to_device = trained.optimizer._d2h_stream.cuda_stream, trained.optimizer._h2d_stream.cuda_stream
    return {} if to_host == to_device else {to_host: "to_host", to_device: "to_device"}
