/* classes.c - see tokenizer_config.h: the steps that classes of transformers build themselves. */
#include "tokenizer_config.h"

#include "base/base.h"
#include "pattern.h"

#define BAR "\xe2\x96\x81" /* stands for a blank: U+2581 */

void sheaf__put_byte_level(sheaf_text *json, const sheaf__byte_level_form *form)
{
    sheaf__text_add(json,
                    "\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\","
                    "\"pretokenizers\":[",
                    form->composed ? "{\"type\":\"NFC\"}" : "null");
    if (form->digits)
        sheaf__text_add(json, "{\"type\":\"Digits\",\"individual_digits\":true},");
    if (form->pattern != NULL) {
        sheaf__text_add(json, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        sheaf__text_json(json, form->pattern);
        sheaf__text_add(json, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    sheaf__text_add(json,
                    "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,"
                    "\"use_regex\":%s}]},\"decoder\":{\"type\":\"ByteLevel\","
                    "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}",
                    form->prefix ? "true" : "false", form->pattern != NULL ? "false" : "true");
}

/* The decoder without its end. */
static void put_decoder(sheaf_text *json, bool bytes)
{
    sheaf__text_add(json,
                    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                    "\"pattern\":{\"String\":\"" BAR "\"},\"content\":\" \"}%s",
                    bytes ? ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" : "");
}

void sheaf__put_bars(sheaf_text *json, bool bytes)
{
    sheaf__text_add(json, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                          "\"content\":\"" BAR "\"},");
    put_decoder(json, bytes);
    sheaf__text_add(json, "]}");
}

static void put_llama(sheaf_text *json, const sheaf__tokenizer_config *s)
{
    sheaf__text_add(json,
                    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\","
                    "\"replacement\":\"" BAR "\",\"prepend_scheme\":\"%s\",\"split\":false},",
                    s->prefix_space == 0 ? "never"
                    : s->legacy          ? "always"
                                         : "first");
    put_decoder(json, true);
    sheaf__text_add(json, "%s]}",
                    s->prefix_space == 0
                        ? ""
                        : ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
}

sheaf_status *sheaf__class_build(json_t *parts, sheaf__tokenizer_class class,
                                 const sheaf__tokenizer_config *s, const char *unknown)
{
    const bool qwen2 = class == SHEAF__QWEN2_TOKENIZER, gemma = class == SHEAF__GEMMA_TOKENIZER,
               bytes = gemma || class == SHEAF__LLAMA_TOKENIZER;
    sheaf_text text = { 0 };
    json_t *made = NULL;
    if (class == SHEAF__GENERIC)
        return NULL;
    sheaf__text_add(&text, "{");
    if (gemma) {
        sheaf__put_bars(&text, true);
        sheaf__text_add(&text, ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"
                               "\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false}");
    } else if (bytes) {
        put_llama(&text, s);
    } else {
        sheaf__put_byte_level(
            &text, &(sheaf__byte_level_form){ .pattern = qwen2 ? sheaf__qwen2_pattern : NULL,
                                              .composed = qwen2,
                                              .prefix = s->prefix_space == 1 });
    }
    sheaf__text_add(&text, ",\"model\":{\"type\":\"BPE\",\"fuse_unk\":%s,\"byte_fallback\":%s",
                    bytes ? "true" : "false", bytes ? "true" : "false");
    if (gemma && unknown != NULL) {
        sheaf__text_add(&text, ",\"unk_token\":");
        sheaf__text_json(&text, unknown);
    }
    sheaf__text_add(&text, "}}");
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
