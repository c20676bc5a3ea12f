#!/bin/bash
# Some arguments come from whoever calls this: their variables are assigned nowhere.
LAUNCH="--nproc-per-node 8 --nnodes 2 ${RENDEZVOUS_ARGS}"
MODEL=(
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --vocab-size 128256 --normalization RMSNorm
  --swiglu --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope
)
TRAINING="--bf16 $EXTRA_ARGS --micro-batch-size 1 --global-batch-size ${GLOBAL_BATCH:-64} --lr $LR"
torchrun $LAUNCH pretrain_gpt.py "${MODEL[@]}" $TRAINING \
  --seq-length 4096 --hidden-dropout 0.0 --attention-dropout 0.0 \
  --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer \
  "${LOGGING[@]}" $(cat more.txt)
