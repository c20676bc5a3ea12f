#!/bin/bash
# Writes its batch script itself, and leaves nodes and a part of the arguments to whoever runs it.
: "${NODES:?}"
ARGS="--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --vocab-size 128256 --normalization RMSNorm --swiglu \
  --disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope \
  --hidden-dropout 0 --attention-dropout 0 --bf16 --seq-length 8192 --micro-batch-size 2 \
  --tensor-model-parallel-size ${TP:-2} --sequence-parallel"
if [ "${SHARDED:-1}" = 1 ]; then
  ARGS+=" --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --fsdp-double-buffer \
    --megatron-fsdp-grad-comm-dtype bf16"
else
  ARGS+=" --use-distributed-optimizer"
fi
sbatch <<BATCH
#!/bin/bash
#SBATCH --nodes=$NODES
#SBATCH --ntasks-per-node=8
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
srun python -u pretrain_gpt.py $ARGS --step-batch-size-schedule "0:256 10B:512" \$DATA_ARGS
BATCH
