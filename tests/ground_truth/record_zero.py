"""Records the memory of trainings under DeepSpeed's ZeRO, as PyTorch's own allocator counts it, without a GPU: see
README.md.

python tests/ground_truth/record_zero.py --all
python tests/ground_truth/record_zero.py NAME...
"""

import gc
import importlib.metadata
import os
import sys
from pathlib import Path

import record_fake
import record_sharded
from zero import RECORDINGS, settings_of  # noqa: F401

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / "golden" / "zero" / "recordings"

# By the function of DeepSpeed that makes a tensor.
MADE_BY = {
    "setup_buckets": "reduce_bucket",
    "allreduce_bucket": "reduce_bucket",
    "copy_grads_in_partition": "gradients",
    "_build_compact_grad_partition_buffer": "gradients",
    "flatten_dense_tensors_aligned": "parameters",
    "_partition_param": "parameters",
    "defragment": "parameters",
    "_all_gather_dtype": "gathered_parameters",
    "_all_gather": "gathered_parameters",
    "all_gather_coalesced": "gathered_parameters",
    "__avg_scatter_grads": "reduce_bucket",
    "_create_fp32_partitions": "master",
}


# What the host is asked for: by a part of the line of code, or by the function.
HOST_LINES = {
    "weights_partition": "master",
    "temp_buffer_bit16": "bit16_staging",
    "temp_grad_buffer_for_cpu_offload": "gradient_staging",
    "subgroup_gradient_buffer": "gradients",
    "gradient_buffer = torch.zeros": "gradient_template",
    "grad_partitions_flat_buffer": "gradient_partitions",
    "bit16_partition_buffer": "parameters",
}
HOST_MADE_BY = {
    "_single_tensor_adamw": "optimizer",
    "new_cpu_locked_tensor": "locked_swap_buffers",
    "buffer_to_accumulate_to_in_cpu": "accumulated_gradients",
    "initialize_optimizer_states": "gradients",
    "async_accumulate_grad_in_cpu_via_gpu": "accumulated_gradients",
    "copy_grads_in_partition": "gradients",
    "_create_param_groups_fp16_flat_cpu_memory": "parameters",
    "_create_fp32_partitions": "master",
    "_partition_param": "partitioned_parameters",
    "_partitioned_params_swap_out": "parameters",
    "all_gather_coalesced": "gathered_parameters",
    "_allgather_params_coalesced": "gathered_parameters",
    "complete_grad_norm_calculation_for_cpu_offload": "norm",
    "_wait_for_offload_copies": "gradients",
    "_cast_module_mixed_precision": "model",
    "made_on_host": "model",
    "partition_grads": "gradient_partitions",
    "_reassign_or_swap_out_partitioned_parameters": "parameters",
    "unscale_and_clip_grads": "clipping",
    "_optimizer_step": "optimizer_state",
}


def streams(engine):
    """What the streams are called."""
    optimizer, names = engine.optimizer, {}
    for name in ("reduction_stream", "reduce_and_partition_stream"):
        if getattr(optimizer, name, None):
            names[getattr(optimizer, name).cuda_stream] = "reduction"
    if hasattr(optimizer, "parameter_offload"):
        coordinator = optimizer.parameter_offload.get_param_coordinator()
        names[coordinator._PartitionedParameterCoordinator__allgather_stream.cuda_stream] = "all_gather"
    return names


def versions():
    return {"deepspeed": importlib.metadata.version("deepspeed")}


def ds_config(settings):
    """The ds_config.json of a recording."""
    said = {
        "train_micro_batch_size_per_gpu": settings["batch"],
        "gradient_accumulation_steps": settings["micro_batches"],
        "gradient_clipping": settings["clip_grad_norm"] or 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": settings["optimizer"] == "cpu_adam",
        "zero_optimization": {"stage": settings["stage"], **settings["ds"]},
    }
    if settings["precision"] != "fp32":
        said[settings["precision"]] = {"enabled": True}
    if settings["accumulation"]:
        said["data_types"] = {"grad_accum_dtype": settings["accumulation"]}
    return said


def no_overflow():
    """Whether a gradient is infinite is read from the device, which has computed nothing; here none is."""
    from deepspeed.runtime import bf16_optimizer
    from deepspeed.runtime.zero import stage3, stage_1_and_2

    for module in (stage_1_and_2, stage3, bf16_optimizer):
        ask = module.is_invalid_grad_norm
        module.is_invalid_grad_norm = lambda norm, ask=ask: ask(norm) and False
    for optimizer in (stage_1_and_2.DeepSpeedZeroOptimizer, stage3.DeepSpeedZeroOptimizer_Stage3):
        ask = optimizer.has_overflow
        optimizer.has_overflow = lambda self, *rest, ask=ask: ask(self, *rest) and False


def ranks_agree():
    """What rank 0 tells the others of the order of parameters is read from the device: each rank's own order."""
    from deepspeed.runtime.zero import utils

    told = utils.get_lst_from_rank0

    def own(ints):
        told(ints)
        return ints

    utils.get_lst_from_rank0 = own
    utils.assert_lst_len_same_as_other_ranks = lambda ints: told([len(ints)])


def made_on_host(model_class, config):
    """In fp32, as models are made by default."""
    return model_class(config)


def operations_that_do_nothing():
    """DeepSpeed's compiled operations of the host, as far as memory goes: Adam writes to the tensors that it is given,
    and NVMe is read into and written from buffers that are locked (by mlock: CUDA does not know of it)."""
    import torch
    from deepspeed.ops.adam import cpu_adam
    from deepspeed.runtime.swap_tensor import partitioned_optimizer_swapper, partitioned_param_swapper
    from deepspeed.runtime.swap_tensor import pipelined_optimizer_swapper

    class Adam:
        create_adam = adam_update = destroy_adam = staticmethod(lambda *arguments: None)

    class Handle:
        locked = []

        def __init__(self, **settings):
            self.pending = 0

        def new_cpu_locked_tensor(self, numel, example):
            tensor = torch.empty(int(numel), dtype=example.dtype)
            begin = tensor.data_ptr()
            Handle.locked.append((begin, begin + tensor.nbytes))
            return tensor

        def free_cpu_locked_tensor(self, tensor):
            return True

        def is_pinned(self, tensor):
            begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
            return tensor.is_pinned() or any(low <= begin and end <= high for low, high in Handle.locked)

        def async_pread(self, *arguments):
            self.pending += 1
            return 0

        async_pwrite = async_pread

        def wait(self):
            done, self.pending = self.pending, 0
            return done

    class Nvme:
        aio_handle = Handle

    cpu_adam.CPUAdamBuilder = lambda: type("Builder", (), {"load": lambda self, **_: Adam})()
    for module in (partitioned_optimizer_swapper, partitioned_param_swapper, pipelined_optimizer_swapper):
        module.AsyncIOBuilder = lambda: type("Builder", (), {"load": lambda self, **_: Nvme})()


def prepare(config, settings):
    import deepspeed
    import torch
    import torch.distributed as dist
    import transformers
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import training

    world, rank = settings["world"], settings["rank"]
    os.environ.update(RANK=str(rank), LOCAL_RANK="0", WORLD_SIZE=str(world), MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    no_overflow()
    ranks_agree()
    operations_that_do_nothing()
    said = ds_config(settings)
    model_class = getattr(transformers, config["architectures"][0])
    config = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    config._attn_implementation = settings["attention"]
    if settings.get("quantization"):
        model = training.build_quantized(model_class, config, torch.bfloat16, settings)
    elif settings["stage"] == 3:
        with deepspeed.zero.Init(config_dict_or_path=said):
            model = model_class(config)
    else:
        model = made_on_host(model_class, config)
    model.train()
    if settings["checkpointing"] and not settings.get("quantization"):
        reentrant = settings["checkpointing"] == "reentrant"
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if settings.get("adapter") and not settings.get("quantization"):
        model = training.adapt(model, settings["adapter"])
    if settings["optimizer"] == "cpu_adam":
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer = DeepSpeedCPUAdam([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.1)
    else:
        optimizer = training.build_optimizer(model, settings)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=said, dist_init_required=False)
    return engine, training.Batches(vars(config), settings)


def train_step(engine, batches, settings):
    """As in training.py; the batch and the loss outlive each other as there."""
    for _ in range(settings["micro_batches"]):
        batch = batches()
        if settings["outputs"] == "kept":
            outputs = engine(**batch)
            loss = outputs.loss
        else:
            loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()


def made_by(frames):
    for frame in frames:
        if frame["name"] in MADE_BY:
            return MADE_BY[frame["name"]]
    return record_sharded.maker_of(frames, record_sharded.MADE_BY)


def record(name):
    import torch

    import training

    gc.disable()
    training.one_sequence_per_row()
    config, settings = settings_of(name)
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, stacks="python", context="alloc")
    engine, batches = prepare(config, settings)
    steps = record_sharded.counted_steps(lambda: train_step(engine, batches, settings))
    history = torch.cuda.memory._snapshot()["device_traces"][0]
    head = record_fake.head_of(name, config, settings, "real tensors on a device that does nothing")
    head["provenance"]["deepspeed"] = importlib.metadata.version("deepspeed")
    return {**head, "steps": steps, "live_at_peak": record_sharded.live_at_peak(history, made_by)}


if __name__ == "__main__":
    record_sharded.main(sys.modules[__name__])
