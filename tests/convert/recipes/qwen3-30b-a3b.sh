#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --kv-channels 128 \
  --group-query-attention --num-query-groups 4 --qk-layernorm --vocab-size 151936 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
  --tensor-model-parallel-size 1 --expert-model-parallel-size 8 --pipeline-model-parallel-size 2 --use-distributed-optimizer \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 \
  --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-3
