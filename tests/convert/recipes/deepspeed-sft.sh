#!/bin/bash
# Supervised fine-tuning with the launcher of DeepSpeed.
MODEL=meta-llama/Llama-3.1-8B
deepspeed --num_nodes 1 --num_gpus 8 finetune.py \
  --deepspeed ds-zero3-auto.json \
  --model_name_or_path $MODEL \
  --data_path ./data/alpaca.json \
  --bf16 True \
  --output_dir output/$(basename $MODEL) \
  --num_train_epochs 3 \
  --per_device_train_batch_size 2 \
  --per_device_eval_batch_size 1 \
  --gradient_accumulation_steps 8 \
  --save_strategy "steps" --save_steps 1000 --save_total_limit 10 \
  --learning_rate 1e-5 --weight_decay 0.1 --adam_beta2 0.95 --warmup_ratio 0.01 --lr_scheduler_type "cosine" \
  --logging_steps 1 --report_to "none" \
  --model_max_length 4096 \
  --gradient_checkpointing True
