"""Records the memory of trainings under torch.compile as record_sharded.py does: transformers' modules and LitGPT's.

python tests/ground_truth/record_compiled.py --all
python tests/ground_truth/record_compiled.py NAME...

LitGPT is found where `pip install --no-deps --target FOLDER litgpt==0.4.11` leaves it, with FOLDER in PYTHONPATH.
"""

import contextlib
import sys

import compiled
import record_sharded
import sharded
from compiled import RECORDINGS  # noqa: F401

OUT = record_sharded.HERE.parent / "golden" / "compiled" / "models"
MADE_BY = record_sharded.MADE_BY


def settings_of(name):
    return sharded.settings_of(name, compiled.RECORDINGS, compiled.DEFAULTS)


def litgpt_module():
    """litgpt.model without what the package imports besides (lightning)."""
    import importlib
    import importlib.util
    import types

    package = types.ModuleType("litgpt")
    package.__path__ = list(importlib.util.find_spec("litgpt").submodule_search_locations)
    utils = types.ModuleType("litgpt.utils")
    utils.find_multiple = lambda n, k: n if n % k == 0 else n + k - (n % k)
    sys.modules |= {"litgpt": package, "litgpt.utils": utils}
    return importlib.import_module("litgpt.model"), importlib.import_module("litgpt.config")


def litgpt_model(config):
    model, configs = litgpt_module()
    neox = config["model_type"] == "gpt_neox"
    said = {
        "block_size": config["max_position_embeddings"], "padded_vocab_size": config["vocab_size"],
        "vocab_size": config["vocab_size"], "n_layer": config["num_hidden_layers"], "n_embd": config["hidden_size"],
        "n_head": config["num_attention_heads"], "intermediate_size": config["intermediate_size"],
    }  # fmt: skip
    if neox:
        said |= {"rotary_percentage": config["rotary_pct"]}
    else:
        said |= {
            "n_query_groups": config["num_key_value_heads"], "rotary_percentage": 1.0, "parallel_residual": False,
            "bias": False, "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP",
        }  # fmt: skip
    return model.GPT(configs.Config(**said))


def transformers_model(config, settings):
    import transformers

    model_class = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    config._attn_implementation = settings["attention"]
    return model_class(config)


def blocks(model):
    if hasattr(model, "transformer"):
        return model.transformer.h
    return model.base_model.layers


def compile_regions(model):
    """accelerate.utils.compile_regions: what is repeated one by one, and what else has no repeated parts."""
    import torch

    repeated = blocks(model)
    for name, module in list(model.named_modules()):
        inside = any(module is part or module in part.modules() for part in repeated)
        if module in list(repeated):
            module.compile()
        elif not inside and module is not repeated and not any(part is repeated for part in module.modules()):
            parent = model.get_submodule(name.rpartition(".")[0]) if name else None
            if parent is not None and any(part is repeated for part in parent.modules()):
                module.compile()
    torch._dynamo.config.cache_size_limit = 64
    return model


def prepare(config, settings):
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import training

    types = {"bf16": torch.bfloat16, "fp32": torch.float32}
    world = settings["world"]
    torch.set_default_dtype(types[settings["parameters"]])
    try:
        with torch.device("meta" if world > 1 else "cuda"):
            if settings["modules"] == "litgpt":
                model = litgpt_model(config)
            else:
                model = transformers_model(config, settings)
    finally:
        torch.set_default_dtype(torch.float32)
    model.to(types[settings["parameters"]])
    model.train()
    if settings["checkpointing"]:
        reentrant = settings["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if world > 1:
        dist.init_process_group("fake", rank=settings["rank"], world_size=world, store=FakeStore())
        policy = MixedPrecisionPolicy(
            param_dtype=types[settings["precision"]], reduce_dtype=types[settings["reduce_dtype"]]
        )
        how = {"mesh": init_device_mesh("cuda", (world,)), "mp_policy": policy,
               "reshard_after_forward": settings["reshard_after_forward"]}  # fmt: skip
        for layer in blocks(model):
            fully_shard(layer, **how)
        fully_shard(model, **how)
        model.to_empty(device="cuda")
    torch._dynamo.config.recompile_limit = 64
    prepared = compile_regions(model) if settings["compile"] == "regional" else torch.compile(model)
    return Trained(model, prepared, settings), training.build_optimizer(model, settings), training.Batches(
        config, settings
    )


class Trained:
    """A model, what is called in its place, and the variables of LitGPT's loop."""

    def __init__(self, model, called, settings):
        self.model, self.called, self.settings = model, called, settings
        self.logits = self.loss = None


def train_step(trained, optimizer, batches, settings):
    import torch

    optimizer.zero_grad(set_to_none=True)
    if settings["modules"] == "litgpt":
        batch = batches()
        trained.logits = trained.called(batch["input_ids"])
        rows = trained.logits = trained.logits.reshape(-1, trained.logits.size(-1))
        trained.loss = torch.nn.functional.cross_entropy(rows, batch["labels"].reshape(-1), ignore_index=-1)
        trained.loss.backward()
        return optimizer.step()
    passes = settings["micro_batches"]
    for micro_batch in range(passes):
        batch = batches()
        if settings["world"] > 1:
            trained.model.set_requires_gradient_sync(settings["sync_each_batch"] or micro_batch + 1 == passes)
        loss = trained.called(**batch).loss
        loss.backward()
    optimizer.step()


def streams(trained):
    return record_sharded.streams(trained.model) if trained.settings["world"] > 1 else {}


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        record_sharded.main(sys.modules[__name__])
