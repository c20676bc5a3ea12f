#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --vocab-size 32000 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2 \
  --moe-grouped-gemm --moe-token-dispatcher-type alltoall --moe-permute-fusion \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 \
  --num-layers-per-virtual-pipeline-stage 1 --use-distributed-optimizer \
  --overlap-grad-reduce --overlap-param-gather \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 256 \
  --no-load-optim --no-load-rng --wandb-project Mixtral
