"""What is recorded: one training step, written as a Hugging Face user writes it."""

import contextlib

import torch
import transformers
from transformers import masking_utils

MODELS = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_neox": "GPTNeoXForCausalLM",
    "gpt_bigcode": "GPTBigCodeForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}


def train_step(model, optimizer, batch, settings, mark):
    """`mark` is told when a phase ends. The batch, the model and the optimizer outlive the step; `loss` (and `outputs`
    where they are kept) live until it returns."""
    optimizer.zero_grad(set_to_none=True)
    mark("zero_grad")
    with autocast(settings):
        if settings["outputs"] == "kept":
            outputs = model(**batch)
            loss = outputs.loss
        else:
            loss = model(**batch).loss
    mark("forward")
    loss.backward()
    mark("backward")
    if settings["clip_grad_norm"]:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
        mark("clip")
    optimizer.step()
    mark("optimizer")


def autocast(settings):
    name = {"autocast_bf16": torch.bfloat16, "autocast_fp16": torch.float16}.get(settings["precision"])
    return torch.autocast("cuda", dtype=name) if name else contextlib.nullcontext()


def build_model(config, settings):
    """The model on the (fake) device, in training mode, checkpointed as asked."""
    model_class = getattr(transformers, MODELS[config["model_type"]])
    config = transformers.AutoConfig.for_model(**config)
    config._attn_implementation = settings["attention"]
    dtype = {"pure_bf16": torch.bfloat16}.get(settings["precision"], torch.float32)
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            model = model_class(config)
    finally:
        torch.set_default_dtype(torch.float32)
    model.train()
    if settings["checkpointing"]:
        reentrant = settings["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    return model


def build_optimizer(model, settings):
    kind, _, implementation = settings["optimizer"].partition(" ")
    choice = {"foreach": {"foreach": True}, "fused": {"fused": True}, "for-loop": {"foreach": False}}[implementation]
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, **choice)
    return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9 if kind == "sgd_momentum" else 0.0, **choice)


def build_batch(config, settings):
    shape = (settings["batch"], settings["sequence"])
    ids = torch.randint(0, config["vocab_size"], shape, device="cuda")
    return {"input_ids": ids, "labels": ids}


def one_sequence_per_row():
    """transformers asks of the positions whether a row packs several sequences, which fake tensors cannot answer. They
    do not: what the question allocates is kept, and the answer is the one that a real run gives."""
    ask = masking_utils.find_packed_sequence_indices

    def answer(position_ids):
        packed = ask(position_ids)
        (packed[:, -1] == 0).all()

    masking_utils.find_packed_sequence_indices = answer
