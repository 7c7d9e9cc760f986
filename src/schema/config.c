/* config.c - see schema/config.h: the family of a config, and the keys that all of them share.
 * What each key means is in docs/formats.md. */
#include "base/base.h"
#include "schema/config_keys.h"

#include "base/file.h"
#include "base/numeric_env.h"
#include "schema/family.h"

const char *sheaf_config_position_key(const sheaf_config *config)
{
    return sheaf__family_for(config)->position_key;
}

const char *sheaf_family_name(sheaf_family family)
{
    return sheaf__family_at((int)family)->name;
}

const char *sheaf__template_key(const sheaf_config *config)
{
    const char *own = sheaf__family_for(config)->template_key;
    return own != NULL ? own : "text_processor_version";
}

sheaf_component sheaf__family_component(const sheaf__family *family, const char *name)
{
    for (const sheaf__component_rule *rule = family->components; rule->part != NULL; rule++)
        if (strstr(name, rule->part) != NULL)
            return rule->is;
    return SHEAF_PLAN_TEXT;
}

/* ---- keys that all families share ---- */

static int64_t read_id(sheaf_json_reader *r, const char *key, const json_t *value, int64_t min,
                       int64_t vocab)
{
    char shown[96];
    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) < vocab)
        return json_integer_value(value);
    sheaf_found(sheaf__json_fail(r, json_is_integer(value) ? SHEAF_E_LAYOUT : SHEAF_E_FORMAT, key,
                                 "a token id below vocab_size, %" PRId64, vocab),
                "%s", sheaf__json_show(shown, value));
    return -1;
}

/* One id; absent, null and -1 mean none. */
int64_t sheaf__config_read_id(sheaf_json_reader *r, const char *key, int64_t vocab)
{
    const json_t *value = json_object_get(r->object, key);
    return value == NULL || json_is_null(value) ? -1 : read_id(r, key, value, -1, vocab);
}

void sheaf__config_read_eos(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *eos = json_object_get(r->object, "eos_token_id");
    if (!json_is_array(eos)) {
        c->eos[0] = sheaf__config_read_id(r, "eos_token_id", c->vocab);
        c->neos = c->eos[0] >= 0;
        if (c->neos == 0)
            c->eos[0] = 0;
        return;
    }
    if (json_array_size(eos) > SHEAF_MAX_EOS) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "eos_token_id", "at most %d ids", SHEAF_MAX_EOS);
        return;
    }
    for (size_t i = 0; i < json_array_size(eos); i++)
        c->eos[c->neos++] = read_id(r, "eos_token_id", json_array_get(eos, i), 0, c->vocab);
}

void sheaf__config_read_tokenizer(sheaf_json_reader *r, sheaf_config *c)
{
    const char *tokenizer = sheaf__json_string(r, "sheaf_tokenizer");
    if (tokenizer != NULL && strcmp(tokenizer, "bytes") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "sheaf_tokenizer", "\"bytes\"");
    c->byte_vocab = tokenizer != NULL;
    if (c->byte_vocab && c->vocab < 256)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "vocab_size",
                         "at least 256, as sheaf_tokenizer is \"bytes\"");
}

/* dtype (5.x) or torch_dtype (4.x). */
void sheaf__config_read_dtype(sheaf_json_reader *r, sheaf_config *c)
{
    static const char *const key[] = { "dtype", "torch_dtype" };
    static const struct {
        const char *name;
        sheaf_dtype dtype;
    } known[] = {
        { "float32", SHEAF_F32 },
        { "bfloat16", SHEAF_BF16 },
        { "float16", SHEAF_F16 },
    };
    bool known_dtype = false;
    c->dtype = SHEAF_F32;
    for (int k = 0; k < 2; k++) {
        const char *name = sheaf__json_string(r, key[k]);
        size_t i = 0;
        if (name == NULL)
            continue;
        while (i < 3 && strcmp(known[i].name, name) != 0)
            i++;
        if (i == 3)
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key[k], "float32, bfloat16 or float16");
        else if (known_dtype && known[i].dtype != c->dtype)
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key[k], "the same as 'dtype'");
        else
            c->dtype = known[i].dtype;
        known_dtype = true;
    }
    c->dtype_named = known_dtype;
}

/* ---- the whole ---- */

static sheaf_status *keep_text(sheaf_config *c, const char *text, size_t size, sheaf_text *unknown)
{
    c->json = malloc(size + 1);
    if (c->json == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory for a config of %zu bytes", size);
    memcpy(c->json, text, size);
    c->json[size] = '\0';
    return unknown->size == 0 && !unknown->failed ? NULL
                                                  : sheaf__text_take(&c->unknown_keys, unknown);
}

const sheaf__family *sheaf__family_reading(const json_t *object)
{
    const sheaf__family *family;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->claims != NULL && family->claims(object))
            return family;
    return sheaf__family_at(SHEAF_LLAMA); /* its reader reports unknown keys */
}

static bool is_empty(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* Of a text model's class for sequence classification. Without a list of its labels it has two. */
static void read_scores(sheaf_json_reader *r, sheaf_config *c)
{
    const char *class =
        json_string_value(json_array_get(json_object_get(r->object, "architectures"), 0));
    const json_t *labels = json_object_get(r->object, "id2label"),
                 *count = json_object_get(r->object, "num_labels");
    if (r->st != NULL || class == NULL || !sheaf__ends_with(class, SHEAF__SCORES_CLASS))
        return;
    const int64_t n = !is_empty(labels)  ? (int64_t)json_object_size(labels)
                      : !is_empty(count) ? json_integer_value(count)
                                         : 2;
    if (n != 1)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "id2label",
                                     "one label, a reward, of a %s", class),
                    "%" PRId64 " labels", n);
    else if (!sheaf__may_score(c))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "architectures", "the class of a text model");
    sheaf__config_score(c);
}

bool sheaf__is_class(const sheaf__family *family, const char *name)
{
    const char *class = family->architecture,
               *end = class == NULL ? NULL : strstr(class, "ForCausalLM");
    return class != NULL && (strcmp(class, name) == 0 ||
                             (end != NULL && strncmp(class, name, (size_t)(end - class)) == 0 &&
                              strcmp(name + (end - class), SHEAF__SCORES_CLASS) == 0));
}

void sheaf__config_score(sheaf_config *c)
{
    c->scores = true;
    c->tied = false;
    c->logit_cap = 0;
}

sheaf_status *sheaf_config_parse(sheaf_config *out, const char *text, size_t size)
{
    SHEAF__NUMERIC_ENV;
    sheaf_config c = { 0 };
    sheaf_text unknown = { 0 };
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, text, size);
    if (st != NULL)
        return st;
    sheaf_json_reader r = { root, NULL, NULL };
    sheaf__family_reading(root)->read(&r, &c, &unknown);
    read_scores(&r, &c);
    st = r.st;
    TRY(st, keep_text(&c, text, size, &unknown));
    sheaf__text_release(&unknown);
    json_decref(root);
    if (st == NULL)
        *out = c;
    else
        sheaf_config_release(&c);
    return st;
}

sheaf_status *sheaf_config_read(sheaf_config *out, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, SHEAF_JSON_MAX_BYTES);
    TRY(st, sheaf_in(sheaf_config_parse(out, text, size), "%s", path));
    free(text);
    return st;
}

void sheaf_config_release(sheaf_config *config)
{
    free(config->json);
    free(config->unknown_keys);
    *config = (sheaf_config){ 0 };
}
