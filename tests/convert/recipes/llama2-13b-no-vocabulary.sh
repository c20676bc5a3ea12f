#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 40 --hidden-size 5120 --ffn-hidden-size 13824 --num-attention-heads 40 \
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-2-13b-hf \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 128
