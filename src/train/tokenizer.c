/* tokenizer.c - see tokenizer.h. */
#include "train/tokenizer.h"

#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/temporary.h"
#include "dialects/hf/new_tokens.h"

static sheaf_status *read_tokens(sheaf__new_tokens *out, const sheaf_train_options *o)
{
    return sheaf_in(sheaf__new_tokens_read(out, o->add_tokens,
                                           sheaf__is_given(o->tokenizer) ? o->tokenizer : o->model),
                    "`add-tokens`");
}

sheaf_status *sheaf__run_added(sheaf__added_rows *out, const sheaf_train_options *o)
{
    sheaf__new_tokens tokens = { 0 };
    *out = (sheaf__added_rows){ 0 };
    if (!sheaf__is_given(o->add_tokens))
        return NULL;
    sheaf_status *st = read_tokens(&tokens, o);
    if (st == NULL)
        *out = (sheaf__added_rows){ .first = tokens.first,
                                    .count = tokens.count,
                                    .random = o->add_tokens_init == SHEAF_ADD_TOKENS_RANDOM,
                                    .seed = o->seed };
    sheaf__new_tokens_release(&tokens);
    return st;
}

static sheaf_status *list_tokens(char **out, const sheaf__new_tokens *tokens)
{
    sheaf_text list = { 0 };
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < tokens->count && st == NULL; i++) {
        char *text = NULL;
        st = sheaf__json_text(&text, json_array_get(tokens->list, (size_t)i), JSON_COMPACT);
        sheaf__text_add(&list, "%" PRId64 ": %s\n", tokens->first + i, text == NULL ? "" : text);
        free(text);
    }
    TRY(st, sheaf__text_take(out, &list));
    sheaf__text_release(&list);
    return st;
}

static sheaf_status *write_tokenizer(sheaf__run_tokenizer *out, const sheaf_train_options *o)
{
    sheaf__new_tokens tokens = { 0 };
    sheaf_status *st = read_tokens(&tokens, o);
    TRY(st, list_tokens(&out->tokens, &tokens));
    if (st == NULL && (out->folder = malloc(SHEAF_PATH_SIZE)) == NULL)
        st = sheaf__no_memory("tokenizer of the run");
    TRY(st, sheaf__temporary_make(out->folder, SHEAF_PATH_SIZE, &out->lock, "tokenizer", true));
    out->temporary = st == NULL;
    TRY(st, sheaf__new_tokens_write(out->folder, &tokens,
                                    sheaf__is_given(o->tokenizer) ? o->tokenizer : o->model));
    sheaf__new_tokens_release(&tokens);
    return st;
}

sheaf_status *sheaf__run_tokenizer_open(sheaf__run_tokenizer *out, const sheaf_train_options *o,
                                        const sheaf__opened *opened)
{
    *out = (sheaf__run_tokenizer){ 0 };
    if (sheaf__is_given(o->add_tokens))
        return write_tokenizer(out, o);
    const char *beside =
        sheaf__is_given(o->tokenizer) ? NULL : sheaf__opened_tokenizer(opened, o->adapter);
    return beside == NULL                           ? NULL
           : (out->folder = strdup(beside)) == NULL ? sheaf__no_memory("tokenizer of the run")
                                                    : NULL;
}

sheaf__chat_files sheaf__run_chat_files(const sheaf_train_options *o, const char *model,
                                        const char *folder)
{
    const char *tokenizer = folder != NULL                  ? folder
                            : sheaf__is_given(o->tokenizer) ? o->tokenizer
                                                            : model;
    return (sheaf__chat_files){ o->prompt_template, tokenizer, model };
}

void sheaf__run_tokenizer_release(sheaf__run_tokenizer *t)
{
    if (t->temporary) {
        sheaf_status_free(sheaf__remove_tree(t->folder));
        close(t->lock);
    }
    free(t->folder);
    free(t->tokens);
    *t = (sheaf__run_tokenizer){ 0 };
}
