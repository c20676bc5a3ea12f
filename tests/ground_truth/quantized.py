"""bitsandbytes' linears in place of a model's, made one after another as from_pretrained loads them, and what PEFT's
prepare_model_for_kbit_training makes of the rest."""

import bitsandbytes
import torch

HEAD = "lm_head"  # get_keys_to_not_convert


def no_outliers():
    """Where outliers are is read from the device, which has computed nothing; here none is."""
    torch.argwhere = lambda found: found.new_empty((0, found.dim()), dtype=torch.int64)


def model(model_class, config, dtype, chosen):
    if chosen["format"] == "int8":
        no_outliers()
    with torch.device("meta"):
        torch.set_default_dtype(dtype)
        try:
            made = model_class(config)
        finally:
            torch.set_default_dtype(torch.float32)
    for name, module in list(made.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != HEAD:
            parent, _, last = name.rpartition(".")
            setattr(made.get_submodule(parent), last, linear(module, dtype, chosen))
            continue
        for of, kept in (("_parameters", module._parameters), ("_buffers", module._buffers)):
            for key, tensor in kept.items():
                if tensor is None:
                    continue
                real = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
                kept[key] = torch.nn.Parameter(real) if of == "_parameters" else real
    made.tie_weights()
    made.is_loaded_in_8bit = chosen["format"] == "int8"
    made.is_loaded_in_4bit = not made.is_loaded_in_8bit
    return made


def linear(module, dtype, chosen):
    outputs, inputs = module.weight.shape
    bias = module.bias is not None
    loaded = torch.zeros(outputs, inputs, dtype=dtype)
    with torch.device("meta"):
        if chosen["format"] == "int8":
            made = bitsandbytes.nn.Linear8bitLt(inputs, outputs, bias, has_fp16_weights=False, threshold=6.0)
        else:
            kinds = {"compress_statistics": chosen["double_quant"], "quant_type": chosen["format"]}
            if storage := chosen.get("storage"):
                kinds["quant_storage"] = {"bf16": torch.bfloat16, "fp32": torch.float32}[storage]
            made = bitsandbytes.nn.Linear4bit(inputs, outputs, bias, compute_dtype=torch.bfloat16, **kinds)
    if chosen["format"] == "int8":
        weight = bitsandbytes.nn.Int8Params(loaded, requires_grad=False, has_fp16_weights=False)
    else:
        weight = bitsandbytes.nn.Params4bit(loaded, requires_grad=False, module=made, **kinds)
    made.weight = weight.to("cuda")
    if bias:
        made.bias = torch.nn.Parameter(torch.empty(outputs, dtype=dtype, device="cuda"))
    return made


def undoing(model):
    """What undoes the quantization: tensors that are no parameters, and the tables that bitsandbytes keeps."""
    yield from bitsandbytes.functional.name2qmap.values()
    for weight in model.parameters():
        state = getattr(weight, "quant_state", None)
        nested = getattr(state, "state2", None)
        for of, names in ((weight, ("SCB",)), (state, ("absmax", "code", "offset")), (nested, ("absmax", "code"))):
            yield from (its for name in names if (its := getattr(of, name, None)) is not None)


def prepare(model, chosen, checkpointing):
    import peft

    keywords = {"use_reentrant": checkpointing == "reentrant"}
    if chosen["prepare"] == "all":
        return peft.prepare_model_for_kbit_training(model, bool(checkpointing), keywords)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
        model.enable_input_require_grads()
    return model
