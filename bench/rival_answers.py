"""rival_answers.py - greedy answers of transformers, or of llama.cpp where MODEL is a GGUF file; a JSON object for each prompt.

  rival_answers.py MODEL QUESTIONS NEW THREADS

QUESTIONS are JSON Lines: conversations, or of llama.cpp what this program printed of them. An object has the ids of the
prompt, the new tokens with their end mark, and the two most probable ones at each position with their log-probabilities.
"""
import json
import sys


def transformers_answers(path, records, new, threads):
    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    for record in records:
        prompt = tokenizer.apply_chat_template(record["messages"], add_generation_prompt=True, return_dict=False)
        with torch.no_grad():
            said = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=new, output_scores=True,
                                  return_dict_in_generate=True)
        best = [torch.log_softmax(score[0], -1).topk(2) for score in said.scores]
        yield prompt, said.sequences[0, len(prompt):].tolist(), [list(zip(b.indices.tolist(), b.values.tolist())) for b in best]


def llama_cpp_answers(path, records, new, threads):
    """With its cache in float32; by default it is float16."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    for record in records:
        answer = server.handle_completions({"prompt": record["prompt"], "max_tokens": new, "temperature": 0, "logprobs": 2, "cache_prompt": False})
        said = answer["choices"][0]["logprobs"]["content"]
        yield record["prompt"], [one["id"] for one in said], [[(two["id"], two["logprob"]) for two in one["top_logprobs"]] for one in said]


def main():
    path, questions, new, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    with open(questions, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    answers = llama_cpp_answers if path.endswith(".gguf") else transformers_answers
    for prompt, tokens, best in answers(path, records, new, threads):
        print(json.dumps({"prompt": prompt, "tokens": tokens, "best": best}), flush=True)


main()
