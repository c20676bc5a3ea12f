#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --vocab-size 128256 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --tensor-model-parallel-size 2 --fp8-format hybrid --fp8-amax-history-len 1024 \
  --tp-comm-overlap --seq-length 4096 --micro-batch-size 1 --global-batch-size 32 --rampup-batch-size 16 16 1000
