#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 32 --hidden-size 6144 --ffn-hidden-size 24576 --num-attention-heads 48 \
  --group-query-attention --num-query-groups 8 --kv-channels 128 \
  --squared-relu --untie-embeddings-and-output-weights --disable-bias-linear \
  --position-embedding-type rope --rotary-percent 0.5 --vocab-size 256000 \
  --hidden-dropout 0 --attention-dropout 0 --bf16 \
  --tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 64
