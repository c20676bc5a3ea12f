#!/bin/bash
# 70B on eight nodes.
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export NVTE_ALLOW_NONDETERMINISTIC_ALGO=1
torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py \
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \
  --group-query-attention --num-query-groups 8 \
  --vocab-size 128256 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 4 \
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
  --seq-length 8192 --micro-batch-size 1 --global-batch-size 128 \
  --cross-entropy-loss-fusion --cross-entropy-fusion-impl te \
  --no-create-attention-mask-in-dataloader
