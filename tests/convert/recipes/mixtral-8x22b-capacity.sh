#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 16 pretrain_gpt.py \
  --num-layers 56 --hidden-size 6144 --ffn-hidden-size 16384 --num-attention-heads 48 \
  --group-query-attention --num-query-groups 8 --vocab-size 32000 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 0.01 --moe-grouped-gemm \
  --moe-token-dispatcher-type alltoall --moe-expert-capacity-factor 1.25 --moe-pad-expert-input-to-capacity \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 8 --expert-model-parallel-size 8 --expert-tensor-parallel-size 1 \
  --use-distributed-optimizer --seq-length 4096 --micro-batch-size 1 --global-batch-size 256
