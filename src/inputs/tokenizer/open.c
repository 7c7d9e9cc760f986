/* open.c - a tokenizer.json: which parts it has, and their kinds. */

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
                                                 NULL };
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

/* ---- values, found without being read ---- */

/* The end of a string whose first quote is before `at`. */
static const char *skip_string(const char *at, const char *end)
{
    for (; at < end && *at != '"'; at++)
        at += *at == '\\' && at + 1 < end;
    return at < end ? at + 1 : end;
}

/* The end of a list or an object. Whoever reads it later checks what is inside. */
static const char *skip_container(const char *at, const char *end)
{
    for (int64_t depth = 0; at < end;) {
        const char c = *at++;
        if (c == '"')
            at = skip_string(at, end);
        else if (c == '{' || c == '[')
            depth++;
        else if ((c == '}' || c == ']') && --depth == 0)
            break;
    }
    return at;
}

static void skip_value(sheaf_json_scan *scan)
{
    const char c = sheaf__scan_peek(scan);
    if (scan->at == scan->end)
        return;
    if (c == '{' || c == '[')
        scan->at = skip_container(scan->at, scan->end);
    else if (c == '"')
        scan->at = skip_string(scan->at + 1, scan->end);
    else
        while (scan->at < scan->end && memchr(",]} \t\r\n", *scan->at, 7) == NULL)
            scan->at++;
}

/* The value at the scan as a scan of its own. */
static sheaf_json_scan value_of(sheaf_json_scan *scan)
{
    sheaf_json_scan value = *scan;
    sheaf__scan_peek(&value);
    *scan = value;
    skip_value(scan);
    value.end = scan->at;
    return value;
}

static sheaf_status *parse(json_t **out, const sheaf_json_scan *value)
{
    sheaf_json_scan scan = *value;
    return sheaf__json_parse_rest(out, &scan);
}

/* The parts of a tokenizer.json. */
enum { VERSION, TRUNCATION, PADDING, ADDED, FIRST_LIST, MODEL = FIRST_LIST + SHEAF__LISTS, KEYS };
static const char *const keys[KEYS] = { "version",      "truncation",     "padding",
                                        "added_tokens", "normalizer",     "pre_tokenizer",
                                        "decoder",      "post_processor", "model" };

/* ---- steps ---- */

typedef struct members {
    json_t **item; /* borrowed */
    int64_t count, capacity;
} members;

/* `value`, or the members of a Sequence. */
static sheaf_status *flatten(members *m, json_t *value, const char *list)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    sheaf_status *st = NULL;
    if (json_is_null(value))
        return NULL;
    if (type == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'type'"), "a name");
    if (strcmp(type, "Sequence") != 0) {
        if (!SHEAF_GROW(&m->item, &m->capacity, m->count + 1))
            return sheaf__no_memory(memory_for);
        m->item[m->count++] = value;
        return NULL;
    }
    json_t *inside = json_object_get(value, list);
    if (!json_is_array(inside))
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "Sequence: '%s'", list), "a list");
    for (size_t i = 0; st == NULL && i < json_array_size(inside); i++)
        st = flatten(m, json_array_get(inside, i), list);
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

static sheaf_status *finish_open(sheaf_status *st, sheaf_json_reader *r)
{
    if (st != NULL) {
        sheaf_status_free(r->st);
        return st;
    }
    return r->st;
}

/* Steps and models read their own strings up to a NUL; tokens may have one. */
static sheaf_status *check_nul(const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        const json_t *text = json_is_object(value) ? json_object_get(value, "String") : value;
        if (json_is_string(text) && strlen(json_string_value(text)) != json_string_length(text))
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%.80s'", key),
                                              "a string without NUL"),
                               "\\u0000");
    }
    return NULL;
}

static sheaf_status *open_member(sheaf__steps *steps, int which, const json_t *value,
                                 sheaf__opening *how)
{
    const char *type = type_of(value);
    sheaf_json_reader r = { .object = value };
    const sheaf__step_kind *kind = NULL;
    sheaf_status *st = find_kind(&kind, step_kinds[which], type);
    TRY(st, check_nul(value));
    if (st == NULL && !SHEAF_GROW(&steps->step, &steps->capacity, steps->count + 1))
        st = sheaf__no_memory(memory_for);
    if (st != NULL)
        return st;
    sheaf__step *step = &steps->step[steps->count++];
    *step = (sheaf__step){ kind, NULL };
    return finish_open(kind->open(&step->state, &r, how), &r);
}

static sheaf_status *open_list(sheaf__tokenizer *t, int which, const sheaf_json_scan *at)
{
    static const char *const lists[] = { "normalizers", "pretokenizers", "decoders", "processors" };
    sheaf__steps *const steps[] = { &t->normalizer, &t->pre_tokenizer, &t->decoder, &t->post };
    json_t *value = NULL;
    members m = { 0 };
    bool divided = false;
    sheaf_status *st = at->begin == NULL ? NULL : parse(&value, at);
    if (st == NULL && value != NULL)
        st = flatten(&m, value, lists[which]);
    for (int64_t i = 0; st == NULL && i < m.count; i++) {
        sheaf__opening how = { i + 1 == m.count, t->raw_model, divided, false };
        st = sheaf_in(open_member(steps[which], which, m.item[i], &how), "%s", type_of(m.item[i]));
        t->needs_origin |= how.needs_origin;
        divided = how.divided;
    }
    if (which == SHEAF__DECODER)
        t->has_decoder = value != NULL && !json_is_null(value);
    free(m.item);
    json_decref(value);
    return sheaf_in(st, "%s", keys[FIRST_LIST + which]);
}

/* ---- the model ---- */

/* The small keys of the object to `options`; the large ones stay text. */
static sheaf_status *walk_model(json_t *options, sheaf__model_file *file, sheaf_json_scan *scan)
{
    bool more = true;
    sheaf_status *st = NULL;
    if (!sheaf__scan_take(scan, '{'))
        return sheaf__scan_fail(scan, "an object");
    for (bool first = true; st == NULL && more; first = false) {
        char *key = NULL;
        json_t *value = NULL;
        st = sheaf__scan_next_key(scan, first, &more, &key);
        if (st != NULL || !more)
            break;
        const sheaf_json_scan at = value_of(scan);
        sheaf_json_scan *large = strcmp(key, "vocab") == 0    ? &file->vocab
                                 : strcmp(key, "merges") == 0 ? &file->merges
                                                              : NULL;
        if (large != NULL ? large->begin != NULL : json_object_get(options, key) != NULL)
            st = sheaf_found(sheaf__scan_fail(&at, "each key once"), "'%.80s' again", key);
        else if (large != NULL)
            *large = at;
        else
            st = sheaf_in(parse(&value, &at), "'%.80s'", key);
        if (st == NULL && value != NULL && json_object_set_new_nocheck(options, key, value) != 0)
            st = sheaf__no_memory(memory_for);
        free(key);
    }
    return st;
}

static sheaf_status *open_model(sheaf__tokenizer *t, json_t *options, sheaf__model_file *file)
{
    sheaf_json_reader r = { .object = options };
    /* files of the first versions have none */
    const char *type = json_object_get(options, "type") == NULL && file->merges.begin != NULL
                           ? "BPE"
                           : type_of(options);
    sheaf_status *st = NULL;
    file->options = &r;
    if (type == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'type'"), "a name");
    else if (strcmp(type, "BPE") != 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "type"), "BPE"), "'%.80s'",
                         type);
    TRY(st, sheaf_in(check_nul(options), "%s", type));
    TRY(st, sheaf_in(finish_open(sheaf__bpe_open(&t->model, &t->vocab, file), &r), "%s", type));
    if (st == NULL)
        t->raw_model = sheaf__bpe_takes_raw(t->model);
    return sheaf_in(st, "model");
}

/* ---- added tokens ---- */

static bool need_bool(sheaf_json_reader *r, const char *key)
{
    if (!json_is_boolean(json_object_get(r->object, key)))
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "true or false");
    return json_is_true(json_object_get(r->object, key));
}

/* The id is that of the model's token, or the next free one, as in `tokenizers`, which does not
 * look at what the file says. */
static sheaf_status *give_id(sheaf__tokenizer *t, sheaf__added_token *token, int64_t said,
                             int64_t *next)
{
    size_t size;
    token->id = sheaf__vocab_find(&t->vocab, token->content, token->size);
    if (token->id < 0)
        token->id = (int32_t)(*next)++;
    else
        return token->id == said || said == SHEAF__ID_GIVEN
                   ? NULL
                   : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'id'"),
                                                "%" PRId32 ", its id in the model", token->id),
                                 "%" PRId64, said);
    const char *other = sheaf__vocab_token(&t->vocab, token->id, &size);
    if (other != NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'id'"), "a free id"),
                           "%" PRId32 " is that of '%.80s'", token->id, other);
    if (token->id != said && said != SHEAF__ID_GIVEN)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'id'"),
                                          "%" PRId32 ", the next one", token->id),
                           "%" PRId64, said);
    return NULL;
}

static sheaf_status *read_added(sheaf__added_token *token, int64_t *said, const json_t *object)
{
    static const char *const keys[] = { "id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL };
    sheaf_json_reader r = { .object = object };
    const json_t *content = json_object_get(object, "content");
    sheaf__only_keys(&r, keys);
    *said = sheaf__json_int(&r, "id", 0, SHEAF__ID_GIVEN, SHEAF_JSON_NEEDED);
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
    int64_t said;
    if (!SHEAF_GROW(&a->token, &a->capacity, a->count + 1))
        return sheaf__no_memory(memory_for);
    sheaf__added_token *token = &a->token[a->count];
    *token = (sheaf__added_token){ 0 };
    sheaf_status *st = read_added(token, &said, object);
    const int32_t there =
        st == NULL ? sheaf__vocab_find(&a->names, token->content, token->size) : -1;
    if (there >= 0)
        st =
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'content'"), "each token once"),
                        "'%.80s' again: ids %" PRId32 " and %" PRId64, token->content, there, said);
    if (st == NULL && token->size > 0) {
        st = give_id(t, token, said, next);
        TRY(st, sheaf__added_put(a));
        if (st == NULL)
            return NULL;
    }
    free(token->content); /* an empty one is none, as in `tokenizers` */
    return st;
}

static sheaf_status *open_added(sheaf__tokenizer *t, const sheaf_json_scan *at)
{
    json_t *list = NULL;
    int64_t next = t->vocab.count;
    sheaf_status *st = at->begin == NULL ? NULL : parse(&list, at);
    if (st == NULL && list != NULL && !json_is_array(list))
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "value"), "a list");
    for (size_t i = 0; st == NULL && i < json_array_size(list); i++)
        st = sheaf_in(add_token(t, json_array_get(list, i), &next), "token %zu", i + 1);
    json_decref(list);
    return sheaf_in(st, "added_tokens");
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
        if (st != NULL || (size == token->size && memcmp(normal, token->content, size) == 0)) {
            if (st == NULL)
                free(normal);
            continue;
        }
        token->normal = normal;
        token->normal_size = size;
        if (size == 0) /* `tokenizers` finds it everywhere, and divides texts at each character */
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%.80s'", token->content),
                               "a token of which the normalizer leaves something, or "
                               "\"normalized\": false"),
                "nothing");
    }
    return st != NULL ? sheaf_in(st, "added_tokens") : sheaf__added_index(a);
}

/* ---- the whole ---- */

/* What a tokenizer.json has: its parts, each where it is written, but the model, whose keys are. */
typedef struct parts {
    sheaf_json_scan at[KEYS];
    json_t *model;
    sheaf__model_file file;
} parts;

static sheaf_status *walk_file(parts *p, sheaf_json_scan *scan)
{
    bool more = true;
    sheaf_status *st = NULL;
    if (!sheaf__scan_take(scan, '{'))
        return sheaf__scan_fail(scan, "an object: a tokenizer.json");
    for (bool first = true; st == NULL && more; first = false) {
        char *key = NULL;
        int which = 0;
        st = sheaf__scan_next_key(scan, first, &more, &key);
        if (st != NULL || !more)
            break;
        while (which < KEYS && strcmp(keys[which], key) != 0)
            which++;
        if (which == KEYS)
            st = sheaf_found(sheaf__scan_fail(scan, "a key of a tokenizer.json"), "'%.80s'", key);
        else if (p->at[which].begin != NULL)
            st = sheaf_found(sheaf__scan_fail(scan, "each key once"), "'%.80s' again", key);
        else if (which == MODEL) {
            p->at[which] = *scan;
            st = sheaf_in(walk_model(p->model, &p->file, scan), "model");
        } else
            p->at[which] = value_of(scan);
        free(key);
    }
    return st != NULL ? st : sheaf__scan_end(scan);
}

/* Truncation and padding belong to single calls: transformers sets both anew before each. */
static sheaf_status *check_rest(const sheaf_json_scan part[KEYS])
{
    json_t *version = NULL;
    sheaf_status *st = NULL;
    if (part[VERSION].begin != NULL)
        st = parse(&version, &part[VERSION]);
    const char *text = json_string_value(version);
    if (st == NULL && version != NULL && (text == NULL || strcmp(text, "1.0") != 0))
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'version'"), "\"1.0\"");
    json_decref(version);
    for (int i = TRUNCATION; st == NULL && i <= PADDING; i++) {
        json_t *value = NULL;
        if (part[i].begin != NULL)
            st = parse(&value, &part[i]);
        json_decref(value);
    }
    return st;
}

/* What is to be there instead of what the file says. */
static sheaf_status *put_instead(parts *p, const sheaf__instead *instead)
{
    const char *const texts[KEYS] = { [ADDED] = instead->added_tokens,
                                      [FIRST_LIST + SHEAF__NORMALIZER] = instead->normalizer,
                                      [FIRST_LIST + SHEAF__PRE_TOKENIZER] = instead->pre_tokenizer,
                                      [FIRST_LIST + SHEAF__DECODER] = instead->decoder };
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < KEYS; i++)
        if (texts[i] != NULL)
            st = sheaf__scan_init(&p->at[i], texts[i], strlen(texts[i]), true);
    if (st != NULL || instead->model == NULL)
        return st;
    json_decref(p->model);
    p->model = NULL;
    return sheaf__json_parse(&p->model, instead->model, strlen(instead->model));
}

static sheaf_status *open_parts(sheaf__tokenizer *t, parts *p, sheaf_json_scan *scan,
                                const sheaf__instead *instead)
{
    sheaf_status *st = walk_file(p, scan);
    TRY(st, check_rest(p->at));
    if (st == NULL && p->at[MODEL].begin == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "'model'"), "the model of a tokenizer");
    if (st == NULL && instead != NULL)
        st = put_instead(p, instead);
    TRY(st, open_model(t, p->model, &p->file));
    TRY(st, open_added(t, &p->at[ADDED]));
    TRY(st, open_list(t, SHEAF__NORMALIZER, &p->at[FIRST_LIST + SHEAF__NORMALIZER]));
    TRY(st, index_added(t));
    for (int i = SHEAF__PRE_TOKENIZER; st == NULL && i <= SHEAF__POST; i++)
        st = open_list(t, i, &p->at[FIRST_LIST + i]);
    if (st == NULL)
        sheaf__blanks_find(t);
    return st;
}

sheaf_status *sheaf__tokenizer_parse(sheaf__tokenizer **out, const char *text, size_t size,
                                     const sheaf__instead *instead)
{
    parts p = { .model = json_object() };
    sheaf_json_scan scan;
    sheaf__tokenizer *t = calloc(1, sizeof *t);
    sheaf_status *st = NULL;
    if (p.model == NULL || t == NULL || (t->pool = sheaf__works_new()) == NULL)
        st = sheaf__no_memory(memory_for);
    TRY(st, sheaf__scan_init(&scan, text, size, true));
    if (st == NULL) {
        scan.nul = true; /* a token may be one */
        t->bos = t->eos = -1;
        st = open_parts(t, &p, &scan, instead);
    }
    json_decref(p.model);
    if (st != NULL)
        sheaf__tokenizer_close(t);
    else
        *out = t;
    return st;
}

sheaf_status *sheaf__tokenizer_look(json_t **out, const char *text, size_t size)
{
    parts p = { .model = json_object() };
    sheaf_json_scan scan;
    json_t *all = json_object();
    sheaf_status *st = all == NULL || p.model == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, sheaf__scan_init(&scan, text, size, true));
    scan.nul = true;
    TRY(st, walk_file(&p, &scan));
    for (int i = ADDED; st == NULL && i <= FIRST_LIST + SHEAF__DECODER; i++) {
        json_t *value = NULL;
        if (p.at[i].begin != NULL)
            st = sheaf_in(parse(&value, &p.at[i]), "%s", keys[i]);
        if (value != NULL && json_object_set_new_nocheck(all, keys[i], value) != 0)
            st = sheaf__no_memory(memory_for);
    }
    if (st == NULL && json_object_set_nocheck(all, "model", p.model) != 0)
        st = sheaf__no_memory(memory_for);
    json_decref(p.model);
    if (st != NULL)
        json_decref(all);
    else
        *out = all;
    return st;
}
