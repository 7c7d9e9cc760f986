/* classes.c - see tokenizer_config.h: the steps that classes of transformers build themselves. */
#include "tokenizer_config.h"
#include "base/base.h"

#define BAR "\xe2\x96\x81" /* what stands for a blank: U+2581 */
#define FROM_BYTES                                                                                 \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"          \
    "{\"String\":\"" BAR "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"
#define BYTE_LEVEL(prefix, regex)                                                                  \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix                                         \
    ",\"trim_offsets\":true,\"use_regex\":" regex "}"
#define MODEL(bytes) "\"model\":{\"type\":\"BPE\",\"fuse_unk\":" bytes ",\"byte_fallback\":" bytes

static const char llama[] =
    "{\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" BAR
    "\",\"prepend_scheme\":\"%s\",\"split\":false}," FROM_BYTES "%s]}," MODEL("true") "}}";

static const char gemma[] =
    "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" BAR
    "\"},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
    "\"MergedWithPrevious\",\"invert\":false}," FROM_BYTES "]}," MODEL("true") "%s";

static const char qwen2[] =
    "{\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|"
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false}," BYTE_LEVEL(
        "%s", "false") "]},\"decoder\":" BYTE_LEVEL("true", "true") "," MODEL("false") "}}";

static const char gpt2[] = "{\"normalizer\":null,\"pre_tokenizer\":" BYTE_LEVEL(
    "%s", "true") ",\"decoder\":" BYTE_LEVEL("true", "true") "," MODEL("false") "}}";

sheaf_status *sheaf__class_build(json_t *parts, sheaf__tokenizer_class class,
                                 const sheaf__tokenizer_config *s, const char *unknown)
{
    sheaf_text text = { 0 };
    json_t *made = NULL;
    switch (class) {
    case SHEAF__GENERIC: return NULL;
    case SHEAF__LLAMA_TOKENIZER:
        sheaf__text_add(&text, llama,
                        s->prefix_space == 0 ? "never"
                        : s->legacy          ? "always"
                                             : "first",
                        s->prefix_space == 0
                            ? ""
                            : ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
        break;
    case SHEAF__GEMMA_TOKENIZER:
        sheaf__text_add(&text, gemma, unknown == NULL ? "" : ",\"unk_token\":");
        if (unknown != NULL)
            sheaf__text_json(&text, unknown);
        sheaf__text_add(&text, "}}");
        break;
    default:
        sheaf__text_add(&text, class == SHEAF__QWEN2_TOKENIZER ? qwen2 : gpt2,
                        s->prefix_space == 1 ? "true" : "false");
    }
    sheaf_status *st =
        text.failed ? sheaf__no_memory("tokenizer") : sheaf__json_parse(&made, text.at, text.size);
    if (st == NULL && json_object_update(parts, made) != 0)
        st = sheaf__no_memory("tokenizer");
    json_decref(made);
    sheaf__text_release(&text);
    return st;
}

const char *sheaf__class_name(sheaf__tokenizer_class class, int which)
{
    static const char end[] = "<|endoftext|>";
    static const char *const names[][SHEAF__NAMES] = {
        [SHEAF__LLAMA_TOKENIZER] = { [SHEAF__BOS] = "<s>",
                                     [SHEAF__EOS] = "</s>",
                                     [SHEAF__UNK] = "<unk>" },
        [SHEAF__GEMMA_TOKENIZER] = { [SHEAF__BOS] = "<bos>",
                                     [SHEAF__EOS] = "<eos>",
                                     [SHEAF__UNK] = "<unk>",
                                     [SHEAF__PAD] = "<pad>",
                                     [SHEAF__MASK] = "<mask>" },
        [SHEAF__QWEN2_TOKENIZER] = { [SHEAF__EOS] = end, [SHEAF__UNK] = end, [SHEAF__PAD] = end },
        [SHEAF__GPT2_TOKENIZER] = { [SHEAF__BOS] = end, [SHEAF__EOS] = end, [SHEAF__UNK] = end },
    };
    return names[class][which];
}
