/* post.c - the post-processors that put ids before a text and behind it, for one text. (Templates
 * for pairs are read and ignored.) */

#include "kinds.h"
#include "base/base.h"

typedef struct around {
    int32_t *id; /* those before the text first */
    int64_t count, capacity, before;
} around;

static void close_around(void *state)
{
    free(((around *)state)->id);
}

static void run(const void *state, sheaf__ids_out *ids, bool add_special)
{
    const around *a = state;
    for (int64_t i = 0; add_special && i < a->before; i++)
        sheaf__ids_insert(ids, i, a->id[i]);
    for (int64_t i = a->before; add_special && i < a->count; i++)
        sheaf__ids_insert(ids, ids->count, a->id[i]);
}

static sheaf_status *add_id(around *a, sheaf_json_reader *r, const char *key, const json_t *id)
{
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) > SHEAF__ID_MAX) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, key, "ids from 0 to %d", SHEAF__ID_MAX);
        return NULL;
    }
    if (!SHEAF_GROW(&a->id, &a->capacity, a->count + 1))
        return sheaf__no_memory("a post-processor");
    a->id[a->count++] = (int32_t)json_integer_value(id);
    return NULL;
}

/* ---- TemplateProcessing ---- */

static sheaf_status *add_special(around *a, sheaf_json_reader *r, const char *name)
{
    const json_t *special = json_object_get(sheaf__json_object(r, "special_tokens"), name);
    const json_t *ids = json_object_get(special, "ids");
    sheaf_status *st = NULL;
    if (!json_is_array(ids)) {
        sheaf__json_fail(r, SHEAF_E_FORMAT, "special_tokens", "'%s', which the template names",
                         name);
        return NULL;
    }
    for (size_t i = 0; st == NULL && i < json_array_size(ids); i++)
        st = add_id(a, r, "special_tokens", json_array_get(ids, i));
    return st;
}

/* {"SpecialToken": {"id": "<s>", "type_id": 0}} or {"Sequence": {"id": "A", ...}} */
static sheaf_status *add_piece(around *a, sheaf_json_reader *r, const json_t *piece, bool *text)
{
    const json_t *special = json_object_get(piece, "SpecialToken"),
                 *sequence = json_object_get(piece, "Sequence");
    const char *id = json_string_value(json_object_get(special != NULL ? special : sequence, "id"));
    if (id != NULL && special != NULL)
        return add_special(a, r, id);
    if (id == NULL || strcmp(id, "A") != 0 || *text)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "single",
                         "special tokens, and the sequence A once");
    *text = true;
    a->before = a->count;
    return NULL;
}

/* In `tokenizers` each part that a TemplateProcessing adds is a text of its own, so that the next
 * post-processor sees a pair or more. */
static sheaf_status *open_template(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    around *a = state;
    bool text = false;
    if (how->divided)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "type",
                         "nothing but ByteLevel behind a TemplateProcessing that adds tokens");
    const json_t *single = sheaf__json_list(r, "single");
    how->divided = json_array_size(single) > 1;
    sheaf_status *st = NULL;
    for (size_t i = 0; st == NULL && i < json_array_size(single); i++)
        st = add_piece(a, r, json_array_get(single, i), &text);
    if (st == NULL && !text)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "single", "a list with the sequence A");
    return st;
}

const sheaf__step_kind sheaf__template_post = { .name = "TemplateProcessing",
                                                .keys = "single pair special_tokens",
                                                .size = sizeof(around),
                                                .open = open_template,
                                                .post = run,
                                                .close = close_around };

/* ---- RobertaProcessing, BertProcessing: one id before the text, one behind it ---- */

/* "cls": ["<s>", 0] */
static sheaf_status *open_pair(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "cls", "sep" };
    around *a = state;
    sheaf_status *st = NULL;
    if (how->divided)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "type",
                         "nothing but ByteLevel behind a TemplateProcessing that adds tokens");
    for (int i = 0; st == NULL && i < 2; i++)
        st = add_id(a, r, keys[i], json_array_get(sheaf__json_list(r, keys[i]), 1));
    a->before = 1;
    return st;
}

const sheaf__step_kind sheaf__roberta_post = { .name = "RobertaProcessing",
                                               .keys = "sep cls trim_offsets add_prefix_space",
                                               .size = sizeof(around),
                                               .open = open_pair,
                                               .post = run,
                                               .close = close_around };
const sheaf__step_kind sheaf__bert_post = { .name = "BertProcessing",
                                            .keys = "sep cls",
                                            .size = sizeof(around),
                                            .open = open_pair,
                                            .post = run,
                                            .close = close_around };

sheaf_status *sheaf__tokenizer_around(sheaf__tokenizer *t, int32_t before, int32_t behind)
{
    around *a = calloc(1, sizeof *a);
    if (a == NULL || !SHEAF_GROW(&a->id, &a->capacity, 2)) {
        free(a);
        return sheaf__no_memory("a post-processor");
    }
    if (before >= 0)
        a->id[a->count++] = before;
    a->before = a->count;
    if (behind >= 0)
        a->id[a->count++] = behind;
    return sheaf__steps_put(&t->post, &sheaf__template_post, a);
}
