#!/bin/bash
# Norms whose scales begin at zero, which leave multiprocessors to NCCL; FP8's settings stay in where FP8 is off.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
export NVTE_BWD_LAYERNORM_SM_MARGIN=16
FP8_SETTINGS="--fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-margin 0 --no-fp8-wgrad"
srun --ntasks=32 --ntasks-per-node=8 python -u pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 16384 --num-attention-heads 32 --vocab-size 50257 \
  --max-position-embeddings 4096 --apply-layernorm-1p $FP8_SETTINGS \
  --hidden-dropout 0.0 --attention-dropout 0.0 --softmax-type vanilla \
  --bf16 --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 128
