#!/usr/bin/bash
set -ex
# The configuration of a file, and what the command line says otherwise.
NGPU=${NGPU:-"8"}
export LOG_RANK=${LOG_RANK:-0}
CONFIG_FILE=${CONFIG_FILE:-"./titan-llama3-8b.toml"}
overrides=""
if [ $# -ne 0 ]; then
    overrides="$*"
fi
PYTORCH_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" \
  --local-ranks-filter ${LOG_RANK} --role rank --tee 3 \
  -m torchtitan.train --job.config_file ${CONFIG_FILE} $overrides \
  --training.seq_len 4096 --training.local_batch_size=2 --activation_checkpoint.mode full --compile.enable
