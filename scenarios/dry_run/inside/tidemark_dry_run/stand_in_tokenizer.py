"""A tokenizer with as many tokens as its model's embedding has rows, and the special ones where the configuration says."""

import json
import os

CHAT = (
    "{% for message in messages %}{% if message['role'] == 'assistant' %}{{ '<|assistant|>' }}{% generation %}"
    "{{ message['content'] + eos_token }}{% endgeneration %}{% else %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# Those that transformers' classes of tokenizers add where they are not there: the vocabulary would grow.
USUAL = ("<|endoftext|>", "<unk>", "<s>", "</s>", "<pad>", "<bos>", "<eos>", "<mask>", "<|im_start|>", "<|im_end|>",
         "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")  # fmt: skip
ENCODERS = ("bert", "roberta", "electra", "deberta", "albert", "mpnet")


def write(folder, config):
    """How many tokens it has, or none where the environment has no tokenizers."""
    try:
        import tokenizers
    except ImportError:
        return None
    text = config.get("text_config") or config
    encodes = any(kind in str(config.get("model_type")) for kind in ENCODERS)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    special = special_tokens(text, encodes)
    size = max(int(text.get("vocab_size") or default_size(folder)), len(alphabet) + len(special))
    vocabulary = vocabulary_of(size, special, alphabet)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in special.values()])
    if encodes:
        begin, end = special["cls_token"], special["sep_token"]
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B:1 {end}:1",
            special_tokens=[(begin, vocabulary[begin]), (end, vocabulary[end])],
        )  # fmt: skip
    made.save(os.path.join(folder, "tokenizer.json"))
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT, **special}
    longest = text.get("max_position_embeddings") or text.get("n_positions") or (512 if encodes else None)
    if longest:
        said["model_max_length"] = longest
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(said, file)
    return size


def default_size(folder):
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder).get_text_config().vocab_size


def special_tokens(config, encodes):
    if encodes:
        return {f"{what}_token": f"[{what.upper()}]" for what in ("pad", "unk", "cls", "sep", "mask")}
    found = {}
    for what in ("bos", "eos", "pad"):
        place = config.get(f"{what}_token_id")
        place = place[0] if isinstance(place, list) and place else place
        if isinstance(place, int) and place >= 0:
            found[f"{what}_token"] = f"<|{place}|>"
    found.setdefault("eos_token", "<|eos|>")
    found.setdefault("pad_token", "<|endoftext|>")
    return found


def vocabulary_of(size, special, alphabet):
    """Specials whose name is a place lie there, others first; then bytes, then what nothing is ever cut into."""
    places = {}
    for token in special.values():
        inner = token.strip("<|>")
        if inner.isdigit() and int(inner) < size:
            places[int(inner)] = token
    ahead = [token for token in dict.fromkeys((*special.values(), *alphabet, *USUAL)) if token not in places.values()]
    vocabulary = {}
    for place in range(size):
        vocabulary[places.get(place) or (ahead.pop(0) if ahead else f"<|{place}|>")] = place
    return vocabulary
