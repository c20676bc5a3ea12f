"""Trainings under optimizers that keep less than AdamW, by name: settings beside those of recordings.py."""

from recordings import WIDE, gpt2, llama, no_dropout


# Few tokens and a small vocabulary, so that the optimizer's step is what takes most.
def of(optimizer, config=None, **chosen):
    return config or llama(**WIDE), {"sequence": 256, "optimizer": optimizer, **chosen}


def small_gpt2(**chosen):
    return gpt2(n_layer=3, vocab_size=4096, **no_dropout(), **chosen)


OPTIMIZERS = {
    "optimizer_adafactor_bf16": of("adafactor", clip_grad_norm=1.0),
    "optimizer_adafactor_fp32": of("adafactor", small_gpt2(), precision="fp32"),
    "optimizer_adafactor_with_mean": of("adafactor", beta1=0.9, precision="autocast_bf16", weight_decay=0.1),
    "optimizer_torch_adafactor_for_loop": of("torch_adafactor for-loop", weight_decay=0.1),
    "optimizer_torch_adafactor_foreach": of("torch_adafactor foreach", small_gpt2(), precision="fp32"),
    "optimizer_muon_bf16": of("muon foreach", clip_grad_norm=1.0),
    "optimizer_muon_fp32": of("muon for-loop", small_gpt2(), precision="fp32", weight_decay=0.1),
    "optimizer_adamw_8bit_bf16": of("adamw_8bit", clip_grad_norm=1.0),
    "optimizer_adamw_8bit_tied": of("adamw_8bit", small_gpt2(), precision="autocast_bf16"),
    "optimizer_adamw_8bit_narrow_embeddings": of("adamw_8bit", small_gpt2(), precision="fp32", narrow_embeddings=True),
    "optimizer_lion_32bit_bf16": of("lion_32bit"),
    "optimizer_lion_8bit_bf16": of("lion_8bit", weight_decay=0.1),
    "optimizer_apollo_bf16": of("apollo", rank=64),
    "optimizer_apollo_fp32": of("apollo", precision="fp32", weight_decay=0.1),
    "optimizer_galore_bf16": of("galore", rank=64, clip_grad_norm=1.0),
    "optimizer_galore_fp32": of("galore", precision="fp32", weight_decay=0.1),
    "optimizer_galore_layerwise_bf16": of("galore_layerwise", rank=64, clip_grad_norm=1.0),
    "optimizer_adam_foreach_decayed": of("adam foreach", weight_decay=0.1),
    "optimizer_adam_for_loop_decayed": of("adam for-loop", weight_decay=0.1, clip_grad_norm=1.0),
    "optimizer_paged_adamw_32bit_bf16": of("paged_adamw_32bit", clip_grad_norm=1.0),
    "optimizer_paged_adamw_8bit_fp32": of("paged_adamw_8bit", small_gpt2(), precision="fp32"),
}

# Beyond those in recordings.py.
MORE_SETTINGS = {
    "batches": "collated",  # as in drawn.py
    "weight_decay": 0.0,
    "beta1": None,  # of transformers' Adafactor
    "rank": None,  # of APOLLO and GaLore
    "narrow_embeddings": False,  # 8-bit optimizers keep embeddings' state in 8 bits too; Trainer has it in 32
}


class Both:
    """Two optimizers, each of some of the parameters."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    @property
    def state(self):
        return {key: value for its in self.optimizers for key, value in its.state.items()}

    @property
    def param_groups(self):
        return [group for its in self.optimizers for group in its.param_groups]

    def zero_grad(self, **how):
        for its in self.optimizers:
            its.zero_grad(**how)

    def step(self):
        for its in self.optimizers:
            its.step()


def muon(model, decay, choice):
    """Matrices between the embedding and the head are Muon's, as its documentation has it."""
    import torch

    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    ends = {id(p) for p in (*(m.weight for m in ends), *(m.weight for m in embeddings(model)))}
    hidden = [p for p in model.parameters() if p.ndim == 2 and id(p) not in ends]
    mine = {id(p) for p in hidden}
    others = [p for p in model.parameters() if id(p) not in mine]
    return Both(torch.optim.Muon(hidden, weight_decay=decay), torch.optim.AdamW(others, weight_decay=decay, **choice))


def embeddings(model):
    import torch

    return [m for m in model.modules() if isinstance(m, torch.nn.Embedding)]


def bitsandbytes_optimizer(model, kind, decay, settings):
    """As transformers' Trainer makes it (trainer_optimizer.py), but in one group."""
    import bitsandbytes

    classes = {"adamw_8bit": "AdamW8bit", "lion_32bit": "Lion32bit", "lion_8bit": "Lion8bit",
               "paged_adamw_32bit": "PagedAdamW32bit", "paged_adamw_8bit": "PagedAdamW8bit"}  # fmt: skip
    made = getattr(bitsandbytes.optim, classes[kind])(model.parameters(), weight_decay=decay)
    if kind.endswith("8bit") and not settings["narrow_embeddings"]:
        manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
        for module in embeddings(model):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    return made


def apollo(model, decay, settings):
    """As transformers' Trainer makes it (trainer_optimizer.py) with optim_target_modules = ["attn", "mlp"]."""
    import apollo_torch
    import torch

    linears = [m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in name]
    targets = {id(m.weight): m.weight for m in linears}
    how = {"rank": settings["rank"] or 128, "proj": "random", "scale_type": "channel", "update_proj_gap": 200,
           "scale": 1.0, "proj_type": "std"}  # fmt: skip
    groups = [{"params": [p for p in model.parameters() if id(p) not in targets]},
              {"params": [p for p in model.parameters() if id(p) in targets], **how}]  # fmt: skip
    return apollo_torch.APOLLOAdamW(groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay)


class Layerwise:
    """What transformers' Trainer sees of optimizers that step in the backward pass (LayerWiseDummyOptimizer)."""

    def __init__(self, optimizers):
        self.optimizers = optimizers

    @property
    def state(self):
        return {key: value for its in self.optimizers for key, value in its.state.items()}

    @property
    def param_groups(self):
        return [group for its in self.optimizers for group in its.param_groups]

    def zero_grad(self, **how):
        pass

    def step(self):
        pass


def galore(model, kind, decay, settings):
    """As transformers' Trainer makes it (trainer_optimizer.py) with optim_target_modules = ["attn", "mlp"]."""
    import galore_torch
    import torch

    linears = [m for name, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "lm_head" not in name]
    targets = {id(m.weight) for m in linears}
    how = {"rank": settings["rank"] or 128, "update_proj_gap": 200, "scale": 0.25, "proj_type": "std"}

    def made(groups):
        return galore_torch.GaLoreAdamW(
            groups, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=decay, no_deprecation_warning=True
        )

    if kind == "galore":
        others = [p for p in model.parameters() if id(p) not in targets]
        return made([{"params": others}, {"params": [p for p in model.parameters() if id(p) in targets], **how}])
    by_parameter = {p: made([{"params": [p], **(how if id(p) in targets else {})}]) for p in model.parameters()}

    def update(parameter):
        if parameter.grad is not None:
            by_parameter[parameter].step()
            by_parameter[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    return Layerwise(list(by_parameter.values()))


def build(model, kind, choice, settings):
    import torch
    import transformers

    decay = settings["weight_decay"]
    if kind == "adafactor":
        return transformers.optimization.Adafactor(
            model.parameters(), lr=1e-3, scale_parameter=False, relative_step=False, beta1=settings["beta1"],
            weight_decay=decay,
        )  # fmt: skip
    if kind == "torch_adafactor":
        return torch.optim.Adafactor(model.parameters(), weight_decay=decay, **choice)
    if kind == "muon":
        return muon(model, decay, choice)
    if kind == "apollo":
        return apollo(model, decay, settings)
    if kind.startswith("galore"):
        return galore(model, kind, decay, settings)
    return bitsandbytes_optimizer(model, kind, decay, settings)
