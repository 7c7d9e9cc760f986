/* spm.c - a sentencepiece tokenizer.model as a tokenizer.json; see spm_file.h.
 *
 * Merges are not in the file: a pair of tokens whose join is a token is a merge, in the order of
 * the ids of what is joined, the shorter left part first (generate_merges() of transformers). */
#include "spm_file.h"

#include "vocab.h"
#include "base/base.h"

static sheaf_status *put_file(sheaf_text *json, const sheaf__spm *m)
{
    sheaf__vocab vocab = { 0 };
    sheaf_status *st = NULL;
    sheaf__text_add(
        json,
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
        "\"\xe2\x96\x81\"},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
        "\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}%s]},"
        "\"model\":{\"type\":\"BPE\",\"fuse_unk\":true,\"byte_fallback\":%s,"
        "\"unk_token\":",
        m->byte_fallback ? ",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" : "",
        m->byte_fallback ? "true" : "false");
    sheaf__text_json_bytes(json, m->unk_piece.at, m->unk_piece.size);
    for (int64_t i = 0; st == NULL && i < m->count; i++) {
        const sheaf__text_piece *text = &m->piece[i].text;
        sheaf__text_add(json, i > 0 ? "," : ",\"vocab\":{");
        sheaf__text_json_bytes(json, text->at, text->size);
        sheaf__text_add(json, ":%" PRId64, i);
        st = sheaf__vocab_add(&vocab, text->at, text->size, (uint64_t)i);
    }
    sheaf__text_add(json, "},\"merges\":[");
    if (st == NULL)
        sheaf__vocab_merges(json, &vocab);
    sheaf__text_add(json, "]}}");
    sheaf__vocab_release(&vocab);
    return st;
}

static sheaf_status *list_tokens(json_t **out, const sheaf__spm *m)
{
    json_t *all = json_object(), *extra = json_array();
    bool good = json_object_set_new(all, "extra", extra) == 0;
    for (int64_t i = 0; good && i < m->count; i++) {
        const sheaf__spm_piece *p = &m->piece[i];
        if (p->type == SHEAF__SPM_CONTROL || p->type == SHEAF__SPM_USER_DEFINED)
            good = json_array_append_new(extra, json_pack("{s:s%, s:b, s:b}", "content", p->text.at,
                                                          p->text.size, "normalized", 0, "special",
                                                          p->type == SHEAF__SPM_CONTROL)) == 0;
    }
    const struct {
        const char *key;
        int64_t id;
        sheaf__text_piece text;
    } named[] = { { "bos_token", m->bos, m->bos_piece },
                  { "eos_token", m->eos, m->eos_piece },
                  { "unk_token", m->unk, m->unk_piece } };
    for (int i = 0; good && i < 3; i++)
        if (named[i].id >= 0)
            good = json_object_set_new(all, named[i].key,
                                       json_pack("s%", named[i].text.at, named[i].text.size)) == 0;
    if (!good) {
        json_decref(all);
        return sheaf__no_memory("tokenizer.model");
    }
    *out = all;
    return NULL;
}

sheaf_status *sheaf__spm_convert(sheaf_text *json, json_t **tokens, const char *bytes, size_t size,
                                 bool own_steps)
{
    sheaf__spm m;
    sheaf_status *st = sheaf__spm_read(&m, bytes, size);
    if (!own_steps)
        TRY(st, sheaf__spm_no_table(&m));
    TRY(st, put_file(json, &m));
    if (st == NULL && json->failed)
        st = sheaf__no_memory("tokenizer.model");
    TRY(st, list_tokens(tokens, &m));
    sheaf__spm_release(&m);
    return st;
}
