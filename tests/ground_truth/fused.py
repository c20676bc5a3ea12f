"""Trainings with fused kernels in place of transformers' modules, by name: settings beside those of recordings.py."""

from recordings import SMALL_VOCABULARY, gemma2, llama, qwen3

ALL = ["rope", "rms_norm", "swiglu", "fused_linear_cross_entropy"]

SGD = {"optimizer": "sgd foreach"}  # so that the step is not what takes most


def gemma(**chosen):
    config = gemma2(**chosen)
    dropped = ("query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping", "sliding_window")
    return {**{key: value for key, value in config.items() if key not in dropped},
            "architectures": ["GemmaForCausalLM"], "model_type": "gemma"}  # fmt: skip


def gemma3(**chosen):
    return {**gemma2(attn_logit_softcapping=None, final_logit_softcapping=None, sliding_window=512, **chosen),
            "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "rope_local_base_freq": 10000.0}  # fmt: skip

FUSED = {
    "liger_llama_bf16": (llama(vocab_size=100000), {**SGD, "liger": ALL, "batch": 4}),
    "liger_llama_bf16_layers": (
        llama(**SMALL_VOCABULARY, num_hidden_layers=6), {**SGD, "liger": ALL, "batch": 4, "clip_grad_norm": 1.0},
    ),
    "liger_llama_autocast": (llama(), {**SGD, "liger": ALL, "batch": 4, "precision": "autocast_bf16"}),
    "liger_llama_fp32": (llama(vocab_size=8192), {**SGD, "liger": ALL, "precision": "fp32", "batch": 2}),
    "liger_llama_checkpointed": (llama(), {**SGD, "liger": ALL, "batch": 8, "checkpointing": "non_reentrant"}),
    "neftune_llama_bf16": (llama(), {**SGD, "neftune": 5.0, "batch": 2}),
    "liger_qwen3_tied": (qwen3(vocab_size=32000), {**SGD, "liger": ALL, "batch": 4}),
    "liger_gemma_bf16": (gemma(), {**SGD, "liger": ALL, "batch": 4}),
    "liger_gemma3_bf16": (gemma3(), {**SGD, "liger": ALL, "batch": 4}),
    "liger_gemma3_autocast": (
        gemma3(vocab_size=8192), {**SGD, "liger": ALL, "batch": 4, "precision": "autocast_bf16", "checkpointing": "non_reentrant"},
    ),
}

MORE_SETTINGS = {"liger": [], "neftune": None, "batches": "collated"}  # which of its modules; as in drawn.py


def apply(config, settings):
    """Liger's before the model is made, as its functions would have it."""
    if not settings.get("liger"):
        return
    import liger_kernel.transformers as liger

    patch = {
        "llama": liger.apply_liger_kernel_to_llama,
        "qwen3": liger.apply_liger_kernel_to_qwen3,
        "gemma": liger.apply_liger_kernel_to_gemma,
        "gemma3_text": liger.apply_liger_kernel_to_gemma3_text,
    }
    its = {"swiglu": "geglu"} if config["model_type"].startswith("gemma") else {}
    names = (*ALL, "cross_entropy")
    patch[config["model_type"]](**{its.get(name, name): name in settings["liger"] for name in names})


def add_noise(model, settings):
    """As Trainer does it (integrations/neftune.py activate_neftune)."""
    from transformers.integrations.neftune import neftune_post_forward_hook

    embeddings = model.get_input_embeddings()
    embeddings.neftune_noise_alpha = settings["neftune"]
    embeddings.register_forward_hook(neftune_post_forward_hook)
