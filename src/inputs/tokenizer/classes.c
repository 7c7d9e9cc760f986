/* classes.c - see beside.h: the steps that classes of transformers build themselves. */
#include "beside.h"
#include "base/base.h"

#define LOWER_ONE_EIGHTH "\xe2\x96\x81" /* what stands for a blank: U+2581 */
#define FROM_BYTES                                                                                           \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" LOWER_ONE_EIGHTH \
    "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"

static const char qwen2_split[] =
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,"
    "\"trim_offsets\":true,\"use_regex\":false}]}";

static const char bpe_options[] = "{\"type\":\"BPE\",\"fuse_unk\":%s,\"byte_fallback\":%s,"
                                  "\"ignore_merges\":false%s%s}";

static char *text_of(const char *format, const char *a, const char *b, const char *c, const char *d)
{
    const size_t size = strlen(format) + strlen(a) + strlen(b) + strlen(c) + strlen(d) + 1;
    char *text = malloc(size);
    const char *const words[] = { a, b, c, d };
    int word = 0;
    char *to = text;
    for (const char *at = format; text != NULL && *at != '\0'; at++) {
        if (at[0] != '%' || at[1] != 's') {
            *to++ = *at;
            continue;
        }
        to = stpcpy(to, words[word++]);
        at++;
    }
    if (text != NULL)
        *to = '\0';
    return text;
}

static void build_llama(sheaf__built *b, const sheaf__beside *s)
{
    const bool prefix = s->prefix_space != 0;
    b->normalizer = "null";
    b->pre_tokenizer = text_of("{\"type\":\"Metaspace\",\"replacement\":\"" LOWER_ONE_EIGHTH
                               "\",\"prepend_scheme\":\"%s\",\"split\":false}",
                               !prefix     ? "never"
                               : s->legacy ? "always"
                                           : "first",
                               "", "", "");
    b->decoder = text_of(
        FROM_BYTES "%s]}",
        prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "", "", "", "");
    b->model = text_of(bpe_options, "true", "true", "", "");
}

static void build_gemma(sheaf__built *b, const char *unknown)
{
    sheaf_text name = { 0 };
    sheaf__text_json(&name, unknown == NULL ? "" : unknown);
    b->normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
                    "\"" LOWER_ONE_EIGHTH "\"}";
    b->pre_tokenizer = text_of("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
                               "\"MergedWithPrevious\",\"invert\":false}",
                               "", "", "", "");
    b->decoder = text_of(FROM_BYTES "]}", "", "", "", "");
    if (!name.failed && unknown != NULL)
        b->model = text_of(bpe_options, "true", "true", ",\"unk_token\":", name.at);
    else if (!name.failed)
        b->model = text_of(bpe_options, "true", "true", "", "");
    sheaf__text_release(&name);
}

static void build_byte_level(sheaf__built *b, const sheaf__beside *s, bool qwen2)
{
    const char *prefix = s->prefix_space == 1 ? "true" : "false";
    b->normalizer = qwen2 ? "{\"type\":\"NFC\"}" : "null";
    b->pre_tokenizer = text_of(qwen2 ? qwen2_split
                                     : "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,"
                                       "\"trim_offsets\":true,\"use_regex\":true}",
                               prefix, "", "", "");
    b->decoder = text_of("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                         "\"use_regex\":true}",
                         "", "", "", "");
    b->model = text_of(bpe_options, "false", "false",
                       ",\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\"", "");
}

sheaf_status *sheaf__class_build(sheaf__built *b, sheaf__tokenizer_class class,
                                 const sheaf__beside *s, const char *unknown)
{
    switch (class) {
    case SHEAF__GENERIC: return NULL;
    case SHEAF__LLAMA_TOKENIZER: build_llama(b, s); break;
    case SHEAF__GEMMA_TOKENIZER: build_gemma(b, unknown); break;
    case SHEAF__QWEN2_TOKENIZER: build_byte_level(b, s, true); break;
    case SHEAF__GPT2_TOKENIZER: build_byte_level(b, s, false); break;
    }
    return b->normalizer == NULL || b->pre_tokenizer == NULL || b->decoder == NULL ||
                   b->model == NULL
               ? sheaf__no_memory("tokenizer")
               : NULL;
}

void sheaf__built_release(sheaf__built *b)
{
    free(b->pre_tokenizer);
    free(b->decoder);
    free(b->model);
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
