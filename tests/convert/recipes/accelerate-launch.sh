#!/bin/bash
# The launcher's own file, and flags beside it.
export NCCL_DEBUG=WARN
ACCELERATE_LOG_LEVEL=info accelerate launch --config_file accelerate-fsdp2.yaml --num_processes 16 \
  scripts/sft.py --model_name_or_path=mistralai/Mistral-7B-v0.1 --max_seq_length 2048 \
  --per_device_train_batch_size 4 --gradient_accumulation_steps 4 --bf16 --learning_rate 2.0e-05 \
  --attn_implementation flash_attention_2 --loss_type nll --logging_steps 5
