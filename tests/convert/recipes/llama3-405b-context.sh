#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 64 pretrain_gpt.py \
  --num-layers 126 --hidden-size 16384 --ffn-hidden-size 53248 --num-attention-heads 128 \
  --group-query-attention --num-query-groups 8 --vocab-size 128256 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --tensor-model-parallel-size 8 --sequence-parallel --context-parallel-size 2 --cp-comm-type p2p \
  --pipeline-model-parallel-size 8 \
  --decoder-first-pipeline-num-layers 15 --decoder-last-pipeline-num-layers 15 \
  --use-distributed-optimizer \
  --seq-length 8192 --micro-batch-size 1 --global-batch-size 512
