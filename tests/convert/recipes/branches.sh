#!/usr/bin/env bash
set -euxo pipefail
# What is run depends on a switch: the branch that is taken counts.
MODEL_SIZE=${MODEL_SIZE:-8b}
TP=2
if [[ "$MODEL_SIZE" == "8b" ]]; then
  HIDDEN=4096; FFN=14336; LAYERS=32; HEADS=32
elif [[ "$MODEL_SIZE" == "70b" ]]; then
  HIDDEN=8192; FFN=28672; LAYERS=80; HEADS=64
  TP=8
else
  echo "unknown size" >&2
  exit 1
fi
EXTRA_ARGS=""
if [ $TP -gt 1 ]; then
  EXTRA_ARGS="$EXTRA_ARGS --sequence-parallel"
fi
NODES=$((16 / 8)); MBS=1
cat > /tmp/unused.txt <<EOF
torchrun --nproc_per_node 4 other.py --num-layers 1
EOF
torchrun --nproc_per_node=8 --nnodes=${NODES} --rdzv_id=$RANDOM pretrain_gpt.py \
  --num-layers $LAYERS --hidden-size $HIDDEN --ffn-hidden-size $FFN --num-attention-heads $HEADS \
  --group-query-attention --num-query-groups 8 --vocab-size 128256 --swiglu --normalization RMSNorm \
  --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope \
  --hidden-dropout 0.0 --attention-dropout 0.0 --bf16 --micro-batch-size $MBS --global-batch-size "$((MBS * 32))" \
  --seq-length 8192 --tensor-model-parallel-size ${TP} $EXTRA_ARGS --use-distributed-optimizer \
  --save "/ckpt/$(date +%s)" 2>&1 | tee log.txt
