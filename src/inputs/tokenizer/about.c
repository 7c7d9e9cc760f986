/* about.c - what an open tokenizer is: its tokens, and their names. */
#include <string.h>

#include "parts.h"

int64_t sheaf__tokenizer_size(const sheaf__tokenizer *t)
{
    const int64_t last = t->added.count > 0 ? t->added.token[t->added.count - 1].id + 1 : 0;
    return last > t->vocab.ids ? last : t->vocab.ids;
}

int32_t sheaf__tokenizer_find(const sheaf__tokenizer *t, const char *token)
{
    const sheaf__added_token *added = sheaf__added_find(&t->added, token, strlen(token));
    return added != NULL ? added->id : sheaf__vocab_find(&t->vocab, token, strlen(token));
}

const char *sheaf__tokenizer_token(const sheaf__tokenizer *t, int32_t id)
{
    const sheaf__added_token *added = sheaf__added_of(&t->added, id);
    return added != NULL ? added->content : sheaf__vocab_token(&t->vocab, id, NULL);
}

int32_t sheaf__tokenizer_bos(const sheaf__tokenizer *t)
{
    return t->bos;
}

int32_t sheaf__tokenizer_eos(const sheaf__tokenizer *t)
{
    return t->eos;
}
