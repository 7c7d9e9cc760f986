/* open.c - opens a tokenizer.json: its parts and their kinds. */

#include "kinds.h"
#include "pieces.h"
#include "base/base.h"

/* The kinds of steps, by the "type" that tokenizer.json gives. */
static const sheaf__step_kind *const normalizers[] = { &sheaf__nfc, &sheaf__prepend,
                                                       &sheaf__replace, NULL };
static const sheaf__step_kind *const pre_tokenizers[] = { &sheaf__byte_level_splitting,
                                                          &sheaf__digits, &sheaf__metaspace,
                                                          &sheaf__split, NULL };
static const sheaf__step_kind *const decoders[] = {
    &sheaf__byte_fallback_decoder, &sheaf__byte_level_decoder, &sheaf__fuse_decoder,
    &sheaf__replace_decoder,       &sheaf__strip_decoder,      NULL
};
static const sheaf__step_kind *const posts[] = { &sheaf__byte_level_post, &sheaf__template_post,
                                                 &sheaf__roberta_post, &sheaf__bert_post, NULL };
static const sheaf__step_kind *const *const step_kinds[SHEAF__LISTS] = { normalizers,
                                                                         pre_tokenizers, decoders,
                                                                         posts };

static const char memory_for[] = "tokenizer";

void sheaf__tokenizer_close(sheaf__tokenizer *t)
{
    if (t == NULL)
        return;
    sheaf__steps *const lists[] = { &t->normalizer, &t->pre_tokenizer, &t->decoder, &t->post };
    for (int i = 0; i < SHEAF__LISTS; i++) {
        sheaf__steps_close(lists[i]);
        free(lists[i]->step);
    }
    sheaf__bpe_close(t->model);
    sheaf__added_release(&t->added);
    sheaf__vocab_release(&t->vocab);
    sheaf__works_free(t->pool);
    free(t);
}

/* ---- the file ---- */

/* Skips a list or an object; its reader checks the contents. */
static void skip_container(sheaf_json_scan *scan)
{
    for (int64_t depth = 0; scan->at < scan->end;) {
        const char c = *scan->at++;
        if (c == '"') {
            for (; scan->at < scan->end && *scan->at != '"'; scan->at++)
                scan->at += *scan->at == '\\' && scan->at + 1 < scan->end;
            scan->at += scan->at < scan->end;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && --depth == 0) {
            break;
        }
    }
}

/* Keeps the position of a large value. */
static sheaf_status *keep(sheaf_json_scan *out, sheaf_json_scan *scan)
{
    sheaf_status *st = NULL;
    const char first = sheaf__scan_peek(scan);
    *out = *scan;
    if (first == '{' || first == '[')
        skip_container(scan);
    else
        st = sheaf__scan_skip(scan, 2);
    out->end = scan->at;
    return st;
}

/* The members of an object, which is the model or, as `top`, all of the file. */
static sheaf_status *walk(json_t *to, sheaf__tokenizer_file *file, sheaf_json_scan *scan, bool top)
{
    bool more = true;
    sheaf_status *st = NULL;
    if (!sheaf__scan_take(scan, '{'))
        return sheaf__scan_fail(scan, top ? "an object: a tokenizer.json" : "an object");
    for (bool first = true; st == NULL && more; first = false) {
        char *key = NULL;
        json_t *value = NULL;
        st = sheaf__scan_next_key(scan, first, &more, &key);
        if (st != NULL || !more)
            break;
        sheaf_json_scan *large = top                          ? NULL
                                 : strcmp(key, "vocab") == 0  ? &file->vocab
                                 : strcmp(key, "merges") == 0 ? &file->merges
                                                              : NULL;
        scan->nul = top && strcmp(key, "added_tokens") == 0; /* a token may have one */
        if (large != NULL ? large->begin != NULL : json_object_get(to, key) != NULL)
            st = sheaf_found(sheaf__scan_fail(scan, "each key once"), "'%.80s' again", key);
        else if (large != NULL)
            st = keep(large, scan);
        else if (!top || strcmp(key, "model") != 0)
            st = sheaf_in(sheaf__json_parse_value(&value, scan), "'%.80s'", key);
        else if ((value = json_object()) != NULL)
            st = sheaf_in(walk(value, file, scan, false), "model");
        if (st == NULL && large == NULL && json_object_set_nocheck(to, key, value) != 0)
            st = sheaf__no_memory(memory_for);
        json_decref(value);
        free(key);
    }
    return st;
}

/* Truncation and padding belong to single calls: transformers sets both anew before each. */
static sheaf_status *check_keys(json_t *parts)
{
    static const char known[] = "version truncation padding added_tokens normalizer pre_tokenizer "
                                "decoder post_processor model";
    const char *key;
    json_t *value;
    json_object_foreach(parts, key, value)
    {
        if (!sheaf__is_listed(known, key, strlen(key)))
            return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'%.80s'", key),
                                  "a key of a tokenizer.json");
    }
    const json_t *version = json_object_get(parts, "version");
    if (version != NULL &&
        (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'version'"), "\"1.0\"");
    if (json_object_get(parts, "model") == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'model'"), "the model of a tokenizer");
    return NULL;
}

sheaf_status *sheaf__tokenizer_read(sheaf__tokenizer_file *out, const char *text, size_t size)
{
    sheaf_json_scan scan;
    *out = (sheaf__tokenizer_file){ .parts = json_object() };
    sheaf_status *st = out->parts == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, sheaf__scan_init(&scan, text, size, true));
    TRY(st, walk(out->parts, out, &scan, true));
    TRY(st, sheaf__scan_end(&scan));
    TRY(st, check_keys(out->parts));
    return st;
}

/* ---- steps ---- */

/* Appends `value`, or the members of a Sequence. */
static sheaf_status *flatten(json_t *to, json_t *value, const char *list)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    sheaf_status *st = NULL;
    if (value == NULL || json_is_null(value))
        return NULL;
    if (type == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'type'"), "a name");
    if (strcmp(type, "Sequence") != 0)
        return json_array_append(to, value) == 0 ? NULL : sheaf__no_memory(memory_for);
    json_t *inside = json_object_get(value, list);
    if (!json_is_array(inside))
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "Sequence: '%s'", list), "a list");
    for (size_t i = 0; st == NULL && i < json_array_size(inside); i++)
        st = flatten(to, json_array_get(inside, i), list);
    return st;
}

static const char *type_of(const json_t *value)
{
    return json_string_value(json_object_get(value, "type"));
}

/* Errors: SHEAF_E_UNSUPPORTED with the names of those that are known. */
static sheaf_status *find_kind(const sheaf__step_kind **out, const sheaf__step_kind *const *table,
                               const char *type)
{
    sheaf_text names = { 0 };
    for (const sheaf__step_kind *const *k = table; *k != NULL; k++) {
        if (strcmp((*k)->name, type) == 0) {
            *out = *k;
            sheaf__text_release(&names);
            return NULL;
        }
        sheaf__text_add(&names, "%s%s", k == table ? "" : ", ", (*k)->name);
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "type");
    sheaf_expected(st, "one of Sequence, %s", names.failed || names.at == NULL ? "" : names.at);
    sheaf__text_release(&names);
    return sheaf_found(st, "'%.80s'", type);
}

static sheaf_status *open_member(sheaf__steps *steps, int which, const json_t *value,
                                 sheaf__opening *how)
{
    const char *type = type_of(value);
    sheaf_json_reader r = { .object = value };
    const sheaf__step_kind *kind = NULL;
    sheaf_status *st = find_kind(&kind, step_kinds[which], type);
    if (st == NULL && !SHEAF_GROW(&steps->step, &steps->capacity, steps->count + 1))
        st = sheaf__no_memory(memory_for);
    if (st != NULL)
        return st;
    sheaf__step *step = &steps->step[steps->count++];
    *step = (sheaf__step){ kind, kind->size > 0 ? calloc(1, kind->size) : NULL };
    if (kind->size > 0 && step->state == NULL)
        return sheaf__no_memory(memory_for);
    sheaf__only_keys(&r, kind->keys);
    st = kind->open == NULL ? NULL : kind->open(step->state, &r, how);
    return sheaf__first_of(st, r.st);
}

/*   all  out: the steps, a list */
static sheaf_status *open_list(sheaf__tokenizer *t, int which, json_t *all, json_t *value)
{
    enum { MOST = 64 };
    static const char *const lists[] = { "normalizers", "pretokenizers", "decoders", "processors" };
    sheaf__steps *const steps[] = { &t->normalizer, &t->pre_tokenizer, &t->decoder, &t->post };
    bool divided = false;
    sheaf_status *st = all == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, flatten(all, value, lists[which]));
    const size_t n = json_array_size(all);
    if (st == NULL && n > MOST)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "steps"), "at most %d", MOST), "%zu", n);
    for (size_t i = 0; st == NULL && i < n; i++) {
        const json_t *one = json_array_get(all, i);
        sheaf__opening how = { i + 1 == n, t->raw_model, divided, false };
        st = sheaf_in(open_member(steps[which], which, one, &how), "%s", type_of(one));
        t->needs_origin |= how.needs_origin;
        divided = how.divided;
    }
    if (which == SHEAF__DECODER)
        t->has_decoder = value != NULL && !json_is_null(value);
    return st;
}

/* ---- the model ---- */

static sheaf_status *open_model(sheaf__tokenizer *t, const sheaf__tokenizer_file *file)
{
    const json_t *options = json_object_get(file->parts, "model");
    sheaf_json_reader r = { .object = options };
    /* files of the first versions have none */
    const char *type = json_object_get(options, "type") == NULL && file->merges.begin != NULL
                           ? "BPE"
                           : type_of(options);
    if (type == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'type'"), "a name");
    if (strcmp(type, "BPE") != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "type"), "BPE"),
                           "'%.80s'", type);
    sheaf_status *st = sheaf__bpe_open(&t->model, &t->vocab, &r, file);
    st = sheaf__first_of(st, r.st);
    if (st == NULL)
        t->raw_model = !json_is_true(json_object_get(options, "byte_fallback"));
    return sheaf_in(st, "%s", type);
}

/* ---- added tokens ---- */

static bool need_bool(sheaf_json_reader *r, const char *key)
{
    if (!json_is_boolean(json_object_get(r->object, key)))
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "true or false");
    return json_is_true(json_object_get(r->object, key));
}

/* The id is that of the model's token, or the next free one, as in `tokenizers`, which ignores the
 * file's id. */
static sheaf_status *give_id(sheaf__tokenizer *t, sheaf__added_token *token, int64_t declared,
                             int64_t *next)
{
    const int32_t known = sheaf__vocab_find(&t->vocab, token->content, token->size);
    token->id = known >= 0 ? known : (int32_t)(*next)++;
    const char *other = known >= 0 ? NULL : sheaf__vocab_token(&t->vocab, token->id, NULL);
    if (other != NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'id'"), "a free id"),
                           "%" PRId32 " is that of '%.80s'", token->id, other);
    if (token->id == declared || declared == SHEAF__ID_GIVEN)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'id'");
    sheaf_expected(st, "%" PRId32 ", %s", token->id,
                   known >= 0 ? "its id in the model" : "the next one");
    return sheaf_found(st, "%" PRId64, declared);
}

static sheaf_status *read_added(sheaf__added_token *token, int64_t *declared, const json_t *object)
{
    sheaf_json_reader r = { .object = object };
    const json_t *content = json_object_get(object, "content");
    sheaf__only_keys(&r, "id content single_word lstrip rstrip normalized special");
    *declared = sheaf__json_int(&r, "id", 0, SHEAF__ID_GIVEN, SHEAF_JSON_NEEDED);
    token->single_word = need_bool(&r, "single_word");
    token->lstrip = need_bool(&r, "lstrip");
    token->rstrip = need_bool(&r, "rstrip");
    token->normalized = need_bool(&r, "normalized");
    token->special = need_bool(&r, "special");
    token->size = json_string_length(content);
    if (!json_is_string(content) || token->size > SHEAF__ADDED_MAX)
        sheaf__json_fail(&r, SHEAF_E_FORMAT, "content", "a string of at most %d bytes",
                         SHEAF__ADDED_MAX);
    if (r.st != NULL)
        return r.st;
    token->content = token->normal = malloc(token->size + 1);
    if (token->content == NULL)
        return sheaf__no_memory(memory_for);
    memcpy(token->content, json_string_value(content), token->size + 1);
    token->normal_size = token->size;
    return NULL;
}

static sheaf_status *add_token(sheaf__tokenizer *t, const json_t *object, int64_t *next)
{
    sheaf__added *a = &t->added;
    int64_t declared;
    if (!SHEAF_GROW(&a->token, &a->capacity, a->count + 1))
        return sheaf__no_memory(memory_for);
    sheaf__added_token *token = &a->token[a->count];
    *token = (sheaf__added_token){ 0 };
    sheaf_status *st = read_added(token, &declared, object);
    const int32_t there =
        st == NULL ? sheaf__vocab_find(&a->names, token->content, token->size) : -1;
    if (there >= 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'content'"), "each token once"),
                         "'%.80s' again: ids %" PRId32 " and %" PRId64, token->content, there,
                         declared);
    if (st == NULL && token->size > 0) {
        st = give_id(t, token, declared, next);
        TRY(st, sheaf__added_put(a));
        if (st == NULL)
            return NULL;
    }
    free(token->content); /* an empty one is none, as in `tokenizers` */
    return st;
}

static sheaf_status *open_added(sheaf__tokenizer *t, const json_t *list)
{
    int64_t next = t->vocab.count;
    sheaf_status *st = NULL;
    if (list != NULL && !json_is_array(list))
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "value"), "a list");
    for (size_t i = 0; st == NULL && i < json_array_size(list); i++)
        st = sheaf_in(add_token(t, json_array_get(list, i), &next), "token %zu", i + 1);
    return st;
}

static sheaf_status *index_added(sheaf__tokenizer *t)
{
    sheaf__added *a = &t->added;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < a->count; i++) {
        sheaf__added_token *token = &a->token[i];
        char *normal;
        size_t size;
        if (!token->normalized || t->normalizer.count == 0)
            continue;
        st = sheaf__normalize(&normal, &size, t, token->content, token->size);
        if (st != NULL)
            break;
        token->normal = normal;
        token->normal_size = size;
        if (size == token->size && memcmp(normal, token->content, size) == 0) {
            free(normal);
            token->normal = token->content;
        }
        if (size == 0) /* `tokenizers` finds it everywhere, and divides texts at each character */
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%.80s'", token->content),
                               "a token that is not empty after the normalizer, or "
                               "\"normalized\": false"),
                "nothing");
    }
    return st != NULL ? st : sheaf__added_index(a);
}

/* ---- the tokenizer ---- */

static sheaf_status *open_parts(sheaf__tokenizer *t, const sheaf__tokenizer_file *file)
{
    static const char *const keys[] = { "normalizer", "pre_tokenizer", "decoder",
                                        "post_processor" };
    json_t *steps[SHEAF__LISTS];
    sheaf_status *st = sheaf_in(open_model(t, file), "model");
    TRY(st, sheaf_in(open_added(t, json_object_get(file->parts, "added_tokens")), "added_tokens"));
    for (int i = 0; i < SHEAF__LISTS; i++) {
        steps[i] = json_array();
        TRY(st, sheaf_in(open_list(t, i, steps[i], json_object_get(file->parts, keys[i])), "%s",
                         keys[i]));
        if (i == SHEAF__NORMALIZER)
            TRY(st, sheaf_in(index_added(t), "added_tokens"));
    }
    if (st == NULL)
        sheaf__blanks_find(t, steps[SHEAF__NORMALIZER], steps[SHEAF__PRE_TOKENIZER]);
    for (int i = 0; i < SHEAF__LISTS; i++)
        json_decref(steps[i]);
    return st;
}

sheaf_status *sheaf__tokenizer_build(sheaf__tokenizer **out, const sheaf__tokenizer_file *file)
{
    sheaf__tokenizer *t = calloc(1, sizeof *t);
    if (t == NULL)
        return sheaf__no_memory(memory_for);
    t->bos = t->eos = t->pad = -1;
    t->pool = sheaf__works_new();
    sheaf_status *st = t->pool == NULL ? sheaf__no_memory(memory_for) : open_parts(t, file);
    if (st != NULL)
        sheaf__tokenizer_close(t);
    else
        *out = t;
    return st;
}

/* ---- properties ---- */

int64_t sheaf__tokenizer_size(const sheaf__tokenizer *t)
{
    if (t->pieces > 0)
        return t->pieces;
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

int32_t sheaf__tokenizer_pad(const sheaf__tokenizer *t)
{
    return t->pad;
}
