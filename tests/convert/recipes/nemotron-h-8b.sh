#!/bin/bash

export CUDA_DEVICE_MAX_CONNECTIONS=1

MODEL_ARGS=(
    --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec
    --is-hybrid-model
    --hybrid-override-pattern 'M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-'
    --mamba-state-dim 128 --mamba-head-dim 64 --mamba-num-groups 8 --mamba-num-heads 128
    --num-layers 52 --hidden-size 4096 --ffn-hidden-size 21504 --num-attention-heads 32
    --group-query-attention --num-query-groups 8 --kv-channels 128
    --squared-relu --normalization RMSNorm --disable-bias-linear
    --untie-embeddings-and-output-weights --position-embedding-type none
    --vocab-size 131072 --max-position-embeddings 8192
)

torchrun --nproc-per-node 8 --nnodes 4 pretrain_mamba.py "${MODEL_ARGS[@]}" \
    --use-mcore-models --bf16 --hidden-dropout 0 --attention-dropout 0 \
    --tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --seq-length 8192 --micro-batch-size 1 --global-batch-size 64
