#!/bin/bash

torchrun --nproc-per-node 8 --nnodes 256 pretrain_gpt.py \
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --vocab-size 129280 \
  --normalization RMSNorm \
  --swiglu \
  --disable-bias-linear \
  --untie-embeddings-and-output-weights \
  --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 \
  --bf16 \
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --rope-type yarn \
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 \
  --moe-layer-freq '([0]*3+[1]*58)' --moe-router-score-function sigmoid --moe-router-enable-expert-bias \
  --moe-router-num-groups 8 --moe-router-group-topk 4 --moe-router-topk-scaling-factor 2.5 \
  --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-4 --moe-router-dtype fp32 \
  --moe-grouped-gemm --moe-permute-fusion --moe-token-dispatcher-type alltoall \
  --pipeline-model-parallel-size 16 --decoder-last-pipeline-num-layers 1 \
  --expert-model-parallel-size 64 --expert-tensor-parallel-size 1 --use-distributed-optimizer \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
  --seq-length 4096 --micro-batch-size 1 --global-batch-size 8192
