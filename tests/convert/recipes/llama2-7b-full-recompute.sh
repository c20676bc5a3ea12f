#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py \
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 \
  --tokenizer-type Llama2Tokenizer --tokenizer-model /models/tokenizer.model --vocab-size 32000 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --seq-length 4096 --micro-batch-size 2 --global-batch-size 256 \
  --use-flash-attn --use-distributed-optimizer --no-masked-softmax-fusion --attention-softmax-in-fp32
