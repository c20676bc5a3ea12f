#!/bin/bash

torchrun --nproc-per-node 8 pretrain_mamba.py \
    --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec \
    --hybrid-attention-ratio 0.08 --hybrid-mlp-ratio 0.5 \
    --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
    --group-query-attention --num-query-groups 8 --normalization RMSNorm --disable-bias-linear \
    --untie-embeddings-and-output-weights --position-embedding-type none --vocab-size 32000 \
    --bf16 --hidden-dropout 0 --attention-dropout 0 --no-create-attention-mask-in-dataloader \
    --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer \
    --seq-length 4096 --micro-batch-size 2 --global-batch-size 64
