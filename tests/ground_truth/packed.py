"""Trainings on packed sequences, by name: several in one row, as transformers' DataCollatorWithFlattening makes them."""

from recordings import SMALL_VOCABULARY, llama, mistral, phi3, qwen3

SGD = {"optimizer": "sgd foreach"}  # so that the step is not what takes most
FLASH = {"attention": "flash_attention_2"}

PACKED = {
    "packed_llama_flash": (llama(**SMALL_VOCABULARY, num_hidden_layers=6), {**SGD, **FLASH, "batch": 4, "packed": 4}),
    "packed_llama_flash_loss": (llama(vocab_size=64000), {**SGD, **FLASH, "batch": 2, "packed": 1}),
    "packed_llama_flash_checkpointed": (
        llama(**SMALL_VOCABULARY, num_hidden_layers=6),
        {**SGD, **FLASH, "batch": 4, "packed": 8, "checkpointing": "non_reentrant"},
    ),
    "packed_llama_flash_cached": (llama(**SMALL_VOCABULARY, use_cache=True), {**SGD, **FLASH, "batch": 4, "packed": 4}),
    "packed_qwen3_flash_autocast": (
        qwen3(vocab_size=4096), {**SGD, **FLASH, "batch": 4, "packed": 2, "precision": "autocast_bf16"},
    ),
    "packed_phi3_flash": (phi3(vocab_size=4096), {**SGD, **FLASH, "batch": 4, "packed": 4}),
    "packed_mistral_flash_window": (
        mistral(vocab_size=1024, sliding_window=256), {**SGD, **FLASH, "batch": 4, "packed": 2},
    ),
    "packed_llama_sdpa": (llama(**SMALL_VOCABULARY, num_hidden_layers=6), {**SGD, "batch": 4, "packed": 4}),
    "packed_llama_sdpa_checkpointed": (
        llama(**SMALL_VOCABULARY, num_hidden_layers=6),
        {**SGD, "batch": 4, "packed": 4, "checkpointing": "non_reentrant"},
    ),
    "packed_mistral_sdpa_window": (
        mistral(vocab_size=1024, sliding_window=512), {**SGD, "batch": 2, "packed": 2},
    ),
    "packed_llama_sdpa_cached": (llama(**SMALL_VOCABULARY, use_cache=True), {**SGD, "batch": 4, "packed": 4}),
    "packed_llama_eager": (llama(**SMALL_VOCABULARY), {**SGD, "batch": 2, "packed": 4, "attention": "eager"}),
}  # fmt: skip

# Sequences in every `sequence` tokens, all of one length; the batch is one row.
MORE_SETTINGS = {"packed": 0, "batches": "collated"}


def install(settings):
    """What tensors that hold nothing cannot answer is answered for them: that rows are packed, and where. flash_attn's
    functions are its Python around PyTorch's own build of the same kernels."""
    from transformers import masking_utils, modeling_flash_attention_utils as flash, modeling_utils

    import torch

    sequences = settings["batch"] * settings["packed"]
    length = settings["sequence"] // settings["packed"]
    ask = masking_utils.find_packed_sequence_indices

    def numbered(position_ids):
        return ask(position_ids) if sequences > 1 else None

    masking_utils.find_packed_sequence_indices = numbered

    asked = flash._is_packed_sequence

    def is_packed(position_ids, batch_size):
        asked(position_ids, batch_size)
        return True

    prepare = flash.prepare_fa_kwargs_from_position_ids

    def prepared(position_ids):
        nonzero = torch.Tensor.nonzero
        torch.Tensor.nonzero = lambda x: torch.empty((sequences, 1), dtype=torch.int64, device=x.device)
        try:
            return prepare(position_ids)
        finally:
            torch.Tensor.nonzero = nonzero

    flash._is_packed_sequence, flash.prepare_fa_kwargs_from_position_ids = is_packed, prepared
    if settings["attention"] != "flash_attention_2":
        return

    class VarlenFunction(torch.autograd.Function):
        """flash_attn_interface.py FlashAttnVarlenFunc, of flash_attn 2.8."""

        @staticmethod
        def forward(ctx, q, k, v, ends_q, ends_k, dropout, scale, causal, window):
            out, lse, rng_state, _, _ = torch.ops.aten._flash_attention_forward(
                q, k, v, ends_q, ends_k, length, length, dropout, causal, False, scale=scale,
                window_size_left=window[0], window_size_right=window[1],
            )  # fmt: skip
            ctx.save_for_backward(q, k, v, out, lse, ends_q, ends_k, rng_state)
            ctx.said = (dropout, scale, causal, window)
            return out

        @staticmethod
        def backward(ctx, gradient):
            q, k, v, out, lse, ends_q, ends_k, rng_state = ctx.saved_tensors
            dropout, scale, causal, window = ctx.said
            unused = torch.empty((), dtype=torch.int64, device=q.device)
            dq, dk, dv = torch.ops.aten._flash_attention_backward(
                gradient, q, k, v, out, lse, ends_q, ends_k, length, length, dropout, causal, rng_state, unused,
                scale=scale, window_size_left=window[0], window_size_right=window[1],
            )  # fmt: skip
            return dq, dk, dv, *[None] * 6

    def flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
        causal=False, window_size=(-1, -1), softcap=0.0, deterministic=False, block_table=None,
    ):  # fmt: skip
        window = (None, None) if window_size == (-1, -1) else (window_size[0], 0)
        return VarlenFunction.apply(
            q, k, v, cu_seqlens_q, cu_seqlens_k, dropout_p, softmax_scale, causal, window
        )

    flash._flash_fn = flash._flash_varlen_fn = flash_attn_varlen_func
    flash._flash_with_kvcache_fn = flash._pad_fn = flash._unpad_fn = None
    flash._process_flash_kwargs_fn = flash._lazy_define_process_function(flash_attn_varlen_func)
    flash._process_with_kvcache_kwargs_fn = dict
    flash._loaded_implementation = "flash_attention_2"
    modeling_utils.PreTrainedModel._flash_attn_can_dispatch = lambda *_, **__: True
