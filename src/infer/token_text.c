/* token_text.c - see token_text.h. */
#include "infer/token_text.h"

#include "base/base.h"

static sheaf_status *take(sheaf__text_piece *out, sheaf__token_text *t, int32_t id, bool adds)
{
    const sheaf__codec *w = t->codec;
    const char byte = (char)id;
    *out = (sheaf__text_piece){ "", 0 };
    if (w->tokenizer == NULL) {
        t->bytes.size = 0;
        if (w->config->byte_vocab && id >= 0 && id < 256)
            sheaf__text_bytes(&t->bytes, &byte, 1);
        if (t->bytes.size > 0)
            *out = (sheaf__text_piece){ t->bytes.at, t->bytes.size };
        return t->bytes.failed ? sheaf__no_memory("a token") : NULL;
    }
    if (t->stream == NULL) {
        sheaf_status *st = sheaf__token_stream_new(&t->stream, w->tokenizer, true);
        if (st != NULL)
            return st;
        sheaf__token_stream_set_bytes(t->stream);
    }
    return adds ? sheaf__token_stream_push(&out->at, &out->size, t->stream, id)
                : sheaf__token_stream_push_if(&out->at, &out->size, t->stream, id);
}

sheaf_status *sheaf__token_text_next(sheaf__text_piece *out, sheaf__token_text *t, int32_t id)
{
    return take(out, t, id, true);
}

sheaf_status *sheaf__token_text_if(sheaf__text_piece *out, sheaf__token_text *t, int32_t id)
{
    return take(out, t, id, false);
}

const char *sheaf__token_text_name(const sheaf__token_text *t, int32_t id)
{
    const sheaf__tokenizer *tokenizer = t->codec->tokenizer;
    const char *name = tokenizer == NULL ? NULL : sheaf__tokenizer_token(tokenizer, id);
    return name != NULL && sheaf__tokenizer_written(tokenizer, name, strlen(name)) != NULL ? name
                                                                                           : NULL;
}

void sheaf__token_text_release(sheaf__token_text *t)
{
    sheaf__token_stream_free(t->stream);
    sheaf__text_release(&t->bytes);
    *t = (sheaf__token_text){ .codec = t->codec };
}
