/* text_key.c - see text_sources.h: the name of a cache of rows. */
#include "base/base.h"
#include "data/text_sources.h"

#include "base/file.h"
#include "data/data_rows.h"
#include "inputs/tokenizer/tokenizer_config.h"

enum { ROWS = 6 }; /* a new number where the same texts give other rows than before */

static void add_text(sheaf_hasher *to, const char *text)
{
    const char *known = text == NULL ? "" : text;
    sheaf__hasher_add(to, known, strlen(known) + 1);
}

static void add_hash(sheaf_hasher *to, sheaf_hash hash)
{
    unsigned char bytes[16];
    sheaf__hash_bytes(bytes, hash);
    sheaf__hasher_add(to, bytes, sizeof bytes);
}

/* The model_type in config.json can make another tokenizer of the same files: Qwen2's composes
 * accents. Other keys of that file do not change rows, and change more often. */
static sheaf_status *add_class(sheaf_hasher *to, const char *folder)
{
    sheaf__tokenizer_config beside;
    sheaf_status *st = sheaf__tokenizer_config_read(&beside, folder);
    add_text(to, beside.declared);
    add_text(to, beside.model_type);
    sheaf__tokenizer_config_release(&beside);
    return st;
}

/* The bytes of a file, behind its name (NULL: without it). */
static sheaf_status *add_file(sheaf_hasher *to, const char *name, const char *path,
                              const sheaf_data_options *o)
{
    sheaf_hash hash;
    sheaf_status *st = sheaf__path_hash(&hash, path, o->stop);
    if (st == NULL && name != NULL)
        add_text(to, name);
    if (st == NULL)
        add_hash(to, hash);
    return st;
}

/* All files of a tokenizer that exist. */
static sheaf_status *add_tokenizer(sheaf_hasher *to, const sheaf_data_options *o)
{
    static const char *const names[] = {
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "vocab.json",
        "merges.txt",
        SHEAF__MORE_TEMPLATES "/tool_use.jinja",
    };
    const char *from = sheaf__is_given(o->tokenizer) ? o->tokenizer : o->folder;
    char above[SHEAF_PATH_SIZE], path[SHEAF_PATH_SIZE];
    if (o->config->byte_vocab || !sheaf__is_given(from))
        return NULL;
    const bool file = sheaf__path_kind(from) != SHEAF_PATH_DIR;
    const char *slash = strrchr(from, '/'), *folder = file ? sheaf__path_above(above, from) : from;
    add_text(to, !file ? "" : slash == NULL ? from : slash + 1);
    sheaf_status *st = add_class(to, folder);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (sheaf__path_has(folder, names[i], SHEAF_PATH_FILE))
            TRY(st, add_file(to, names[i], sheaf__path_in(path, folder, names[i]), o));
    return file && sheaf__path_kind(from) == SHEAF_PATH_FILE ? TRY(st, add_file(to, "", from, o))
                                                             : st;
}

static void add_options(sheaf_hasher *to, const sheaf_data_options *o)
{
    const sheaf_config *c = o->config;
    const int64_t numbers[] = { ROWS,
                                sheaf__data_limit(o),
                                o->on_long == SHEAF_LONG_CUT    ? 1
                                : o->on_long == SHEAF_LONG_SKIP ? 2
                                                                : 0,
                                o->loss_on == SHEAF_LOSS_LAST     ? 1
                                : o->loss_on == SHEAF_LOSS_ALL    ? 2
                                : o->loss_on == SHEAF_LOSS_BEHIND ? 3
                                                                  : 0,
                                o->specials,
                                c->byte_vocab,
                                c->vocab,
                                c->bos,
                                c->neos > 0 ? c->eos[0] : -1 };
    sheaf__hasher_add(to, numbers, sizeof numbers);
    add_text(to, o->prompt_template);
    if (o->on_bad == SHEAF_BAD_SKIP)
        add_text(to, "without bad ones");
    if (sheaf__is_given(o->fields)) {
        add_text(to, "fields");
        add_text(to, o->fields);
    }
    if (o->pairs)
        add_text(to, "pairs");
    if (o->of_run) /* rows that were held to the tokenizer's program */
        add_text(to, "of a run");
    if (sheaf__is_given(o->date)) /* caches from before there were dates stay valid */
        add_text(to, o->date);
}

sheaf_status *sheaf__text_key(char out[33], const sheaf__text_sources *sources,
                              const sheaf_data_options *options)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st = hasher == NULL ? sheaf__no_memory("cache of the data") : NULL;
    if (st == NULL)
        add_options(hasher, options);
    TRY(st, add_tokenizer(hasher, options));
    for (int64_t i = 0; i < sources->paths && st == NULL; i++)
        st = add_file(hasher, NULL, sources->path[i], options);
    if (st == NULL)
        sheaf__hash_text(out, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return st;
}
