"""What is recorded: one training step, written as a Hugging Face user writes it."""

import contextlib
import os

import fused
import torch
import transformers
from torch._subclasses.fake_tensor import is_fake
from transformers import masking_utils

transformers.logging.set_verbosity_error()


def train_step(model, optimizer, scaler, batches, settings, mark):
    """`mark` is told when a phase ends. The batch, the model and the optimizer outlive the step; `loss` (and `outputs`
    where they are kept) live until it returns, or the next pass has its own."""
    optimizer.zero_grad(set_to_none=True)
    mark("zero_grad")
    passes = settings.get("micro_batches", 1)
    for micro_batch in range(passes):
        batch = batches()
        # DistributedDataParallel sums gradients over ranks in the last pass of a step only.
        with model.no_sync() if settings["ddp"] and micro_batch + 1 < passes else contextlib.nullcontext():
            with autocast(settings):
                if settings["outputs"] == "kept":
                    outputs = model(**batch)
                    loss = outputs.loss
                else:
                    loss = model(**batch).loss
            mark("forward")
            scaler.scale(loss).backward()
            mark("backward")
    if settings["clip_grad_norm"]:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
        mark("clip")
    scaler.step(optimizer)
    scaler.update()
    mark("optimizer")


PHASES = {"zero_grad": "forward", "forward": "backward", "clip": "optimizer", "optimizer": "between steps"}


def phase_after(phase, settings, last_pass=True):
    if phase == "backward" and not last_pass:
        return "forward"
    if phase == "backward":
        return "clip" if settings["clip_grad_norm"] else "optimizer"
    return PHASES[phase]


def prepare(config, settings):
    """Everything that lives through the training: (model, optimizer, scaler, batches)."""
    model = build_model(config, settings)
    return model, build_optimizer(model, settings), build_scaler(settings), Batches(config, settings)


def build_scaler(settings):
    """Only fp16 scales its loss; a scaler that is off passes everything through and allocates nothing."""
    return torch.amp.GradScaler("cuda", enabled=settings["precision"] == "autocast_fp16")


def reduced(state, bucket):
    """Stands for DistributedDataParallel's all-reduce: the fake process group's work carries no result, which its own
    hook would ask for."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def distribute(model, settings):
    """DistributedDataParallel as it is, in a world of two ranks whose collectives do nothing."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    views = settings["ddp"] == "views"
    # init_sync compares the ranks' parameters, which a fake world cannot answer; it is over before the first step.
    said = {"bucket_cap_mb": settings["bucket_cap_mb"]} if settings.get("bucket_cap_mb") else {}
    model = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[0], gradient_as_bucket_view=views, init_sync=False, **said
    )
    model.register_comm_hook(None, reduced)
    return model


def autocast(settings):
    types = {"autocast_bf16": torch.bfloat16, "bf16_autocast": torch.bfloat16, "autocast_fp16": torch.float16}
    name = types.get(settings["precision"])
    return torch.autocast("cuda", dtype=name) if name else contextlib.nullcontext()


def build_model(config, settings):
    """The model on the (fake) device, in training mode, checkpointed as asked."""
    fused.apply(config, settings)
    model_class = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    config._attn_implementation = settings["attention"]
    narrow = settings["precision"] in ("pure_bf16", "bf16_autocast")
    dtype = torch.bfloat16 if narrow else torch.float32
    if settings.get("quantization"):
        return build_quantized(model_class, config, dtype, settings)
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            model = model_class(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.train()
    if settings.get("neftune"):
        fused.add_noise(model, settings)
    if settings["checkpointing"]:
        reentrant = settings["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if settings.get("adapter"):
        model = adapt(model, settings["adapter"])
    return model


def build_quantized(model_class, config, dtype, settings):
    import quantized

    model = quantized.model(model_class, config, dtype, settings["quantization"])
    model.train()
    return adapt(quantized.prepare(model, settings["quantization"], settings["checkpointing"]), settings["adapter"])


def adapt(model, chosen):
    """PEFT's LoRA, by LoraConfig's arguments; "cast": the type that TRL's SFTTrainer gives to what is trained beside a
    quantized base."""
    import peft

    chosen = dict(chosen)
    casts = chosen.pop("autocast_adapter_dtype", True)
    cast = chosen.pop("cast", None)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **chosen)
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=casts)
    if cast:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to({"bf16": torch.bfloat16}[cast])
    return model


def build_optimizer(model, settings):
    kind, _, implementation = settings["optimizer"].partition(" ")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    choices = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}, "": {}}
    choice = choices[implementation]
    if kind not in ("adam", "adamw", "sgd", "sgd_momentum"):
        import optimizers

        return optimizers.build(model, kind, choice, settings)
    decay = settings.get("weight_decay", 0.1 if kind == "adamw" else 0.0)
    if kind in ("adam", "adamw"):
        choice["amsgrad"] = settings.get("amsgrad", False)
        named = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
        return named(trained, lr=1e-4, weight_decay=decay, **choice)
    momentum = 0.9 if kind == "sgd_momentum" else 0.0
    return torch.optim.SGD(trained, lr=1e-2, momentum=momentum, weight_decay=decay, **choice)


class Batches:
    """What a pass is given: one batch for all of them, or each time a new one, which is there before the loop's
    variable lets go of the last."""

    def __init__(self, config, settings, named=lambda tensors: None):
        self.shape = (settings["batch"], settings["sequence"])
        self.packed = settings.get("packed", 0)
        if self.packed:
            self.shape = (1, settings["batch"] * settings["sequence"])
            length = settings["sequence"] // self.packed
            self.places = torch.arange(length).repeat(settings["batch"] * self.packed).unsqueeze(0)
        self.vocabulary = config["vocab_size"]
        self.collated = settings.get("batches") == "collated"
        self.named = named
        self.tensors = None if self.collated else self.made()

    def made(self):
        ids = torch.randint(0, self.vocabulary, self.shape, device="cuda")
        last = self.places.cuda() if self.packed else torch.ones_like(ids) if self.collated else None
        tensors = (ids, ids.clone(), last) if self.collated else (ids, ids, None)
        self.named(tensors)
        return tensors

    def __call__(self):
        if self.collated:
            self.tensors = self.made()
        ids, labels, last = self.tensors  # a mask of ones is dropped by transformers, which reads it from the device
        places = {"position_ids": last} if self.packed else {}
        return {"input_ids": ids, "labels": labels, **places}


def answer_of_rows(settings):
    """Of questions that are asked of tensors' values."""
    if not settings.get("packed"):
        return one_sequence_per_row()
    import packed

    return packed.install(settings)


def one_sequence_per_row():
    """transformers asks of the positions whether a row packs several sequences, for which tensors without data have no
    answer. Here none does: what the question allocates stays, and the answer is the one that a real run gives."""
    if os.environ["NULL_CUDA_CAPABILITY"] != "80":
        torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN cannot be asked there
    ask = masking_utils.find_packed_sequence_indices

    def answer(position_ids):
        packed = ask(position_ids)
        if is_fake(packed):
            (packed[:, -1] == 0).all()

    masking_utils.find_packed_sequence_indices = answer
