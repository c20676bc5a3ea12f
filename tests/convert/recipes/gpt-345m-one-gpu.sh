export CUDA_DEVICE_MAX_CONNECTIONS=1
# 345 million parameters, on a single device.
GPT_ARGS="
    --num-layers 24
    --hidden-size 1024
    --num-attention-heads 16
    --seq-length 1024
    --max-position-embeddings 1024
    --micro-batch-size 4
    --global-batch-size 8
    --lr 0.00015
    --train-iters 500000
    --lr-decay-iters 320000
    --lr-decay-style cosine
    --min-lr 1.0e-5
    --weight-decay 1e-2
    --lr-warmup-fraction .01
    --clip-grad 1.0
    --fp16
"
DATA_ARGS="
    --data-path $DATA_PATH
    --vocab-file gpt2-vocab.json
    --merge-file gpt2-merges.txt
    --tokenizer-type GPT2BPETokenizer
    --split 949,50,1
"
torchrun --nproc_per_node 1 --nnodes 1 pretrain_gpt.py \
    $GPT_ARGS \
    $DATA_ARGS \
    --log-interval 100 --save-interval 10000 --eval-interval 1000 --eval-iters 10
