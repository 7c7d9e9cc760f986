/* config_rope.c - what config.json says of the rotary embedding: rope_scaling (4.x),
 * rope_parameters (5.x), and keys beside them. What each type does with its numbers is in
 * models/rope.c. */
#include "base/base.h"
#include "base/json_write.h"
#include "families/llama/llama.h"
#include "schema/config_keys.h"
#include "schema/config_text.h"

enum { MOST_POSITION = INT32_MAX };

/* One of the objects; numbers are 0 where it does not say them. */
typedef struct rope_spelling {
    int64_t given, type;
    double theta, partial;
    double factor, low, high, attention, beta_fast, beta_slow, mscale, mscale_all_dim;
    int64_t original, whole; /* whole: truncate is not false */
    int64_t pairs[2];        /* of short_factor, long_factor */
    double list[2][SHEAF_MAX_ROPE_PAIRS];
    int64_t section[3]; /* mrope_section */
} rope_spelling;

static const char *const list_names[2] = { "short_factor", "long_factor" };

static void read_rope_type(sheaf_json_reader *r, rope_spelling *rope, const sheaf__llama_form *form)
{
    const bool only_longrope = form->only_longrope;
    const char *name = sheaf__json_string(r, "rope_type"), *old = sheaf__json_string(r, "type");
    const char *key = name != NULL ? "rope_type" : "type";
    if (form->section[0] > 0) { /* the older name of a rotary embedding with sections */
        name = name != NULL && strcmp(name, "mrope") == 0 ? "default" : name;
        old = old != NULL && strcmp(old, "mrope") == 0 ? "default" : old;
    }
    if (name != NULL && old != NULL && strcmp(name, old) != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "type", "the same as 'rope_type', \"%s\"", name);
    if (name == NULL)
        name = old != NULL ? old : "default";
    if (only_longrope && (strcmp(name, "su") == 0 || strcmp(name, "yarn") == 0))
        name = "longrope"; /* older names, as its class takes them */
    for (int i = 0; i < SHEAF_ROPE_TYPES; i++)
        if (strcmp(name, sheaf__rope_names[i]) == 0 &&
            (!only_longrope || i == SHEAF_ROPE_DEFAULT || i == SHEAF_ROPE_LONGROPE)) {
            rope->type = i;
            return;
        }
    if (r->st != NULL)
        return;
    if (only_longrope) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "default or longrope, as its class has them");
        return;
    }
    const char *nearest = sheaf__nearest(name, sheaf__rope_names, SHEAF_ROPE_TYPES);
    sheaf_status *st = sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key,
                                        "default, linear, dynamic, yarn, longrope or llama3");
    if (nearest != NULL)
        sheaf_try_this(st, "the nearest supported name is \"%s\"", nearest);
}

/* The lists of longrope. */
static void read_list(sheaf_json_reader *r, rope_spelling *rope, int which)
{
    const json_t *list = sheaf__json_list(r, list_names[which]);
    const size_t n = json_array_size(list);
    if (n > SHEAF_MAX_ROPE_PAIRS) {
        sheaf_found(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, list_names[which],
                                     "at most %d numbers", SHEAF_MAX_ROPE_PAIRS),
                    "%zu", n);
        return;
    }
    rope->pairs[which] = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);
        rope->list[which][i] = json_number_value(x);
        if (!json_is_number(x) || !(rope->list[which][i] > 0))
            sheaf__json_fail(r, SHEAF_E_FORMAT, list_names[which], "numbers above 0");
    }
}

/* How many pairs turn by each axis. */
static void read_section(sheaf_json_reader *r, rope_spelling *rope)
{
    static const char key[] = "mrope_section";
    const json_t *list = sheaf__json_list(r, key);
    if (list == NULL)
        return;
    for (size_t i = 0; i < 3; i++) {
        const json_t *n = json_array_get(list, i);
        rope->section[i] = json_integer_value(n);
        if (r->st == NULL && (json_array_size(list) != 3 || !json_is_integer(n) ||
                              rope->section[i] < 0 || rope->section[i] > SHEAF_MAX_ROPE_PAIRS))
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "three numbers of pairs of channels");
    }
}

#define KNOWN_KEYS                                                                                  \
    "rope_type type rope_theta factor low_freq_factor high_freq_factor beta_fast beta_slow mscale " \
    "mscale_all_dim truncate attention_factor short_factor long_factor finetuned "                  \
    "original_max_position_embeddings partial_rotary_factor"
static const char known_keys[] = KNOWN_KEYS,
                  with_sections[] = KNOWN_KEYS " mrope_section mrope_interleaved";

/* One object, rope_scaling (4.x) or rope_parameters (5.x). */
static void read_rope_object(sheaf_json_reader *all, const char *key, rope_spelling *rope,
                             const sheaf__llama_form *form, sheaf_text *unknown)
{
    memset(rope, 0, sizeof *rope);
    const json_t *object = sheaf__json_object(all, key);
    if (object == NULL)
        return;
    char inside[64];
    snprintf(inside, sizeof inside, "%s.", key);
    sheaf_json_reader r = { object, inside, NULL };
    rope->given = true;
    read_rope_type(&r, rope, form);
    rope->theta = sheaf__json_real(&r, "rope_theta", 1e-3, 1e18, 0);
    rope->partial = sheaf__json_real(&r, "partial_rotary_factor", 1e-6, 1, 0);
    rope->factor = sheaf__json_real(&r, "factor", 1e-6, 1e9, 0);
    rope->low = sheaf__json_real(&r, "low_freq_factor", 1e-6, 1e9, 0);
    rope->high = sheaf__json_real(&r, "high_freq_factor", 1e-6, 1e9, 0);
    rope->attention = sheaf__json_real(&r, "attention_factor", 1e-6, 1e9, 0);
    rope->beta_fast = sheaf__json_real(&r, "beta_fast", 0, 1e9, 0);
    rope->beta_slow = sheaf__json_real(&r, "beta_slow", 0, 1e9, 0);
    rope->mscale = sheaf__json_real(&r, "mscale", 0, 1e9, 0);
    rope->mscale_all_dim = sheaf__json_real(&r, "mscale_all_dim", 0, 1e9, 0);
    rope->original = sheaf__json_int(&r, "original_max_position_embeddings", 1, MOST_POSITION, 0);
    rope->whole = sheaf__json_bool(&r, "truncate", true);
    for (int i = 0; i < 2; i++)
        read_list(&r, rope, i);
    if (form->section[0] > 0)
        read_section(&r, rope);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        if (json_is_object(value)) /* 5.x: one rotary embedding per kind of layer */
            sheaf__json_fail(&r, SHEAF_E_UNSUPPORTED, name, "one rotary embedding for all layers");
    }
    sheaf__config_keys(
        &r, &(sheaf__key_lists){ .read = form->section[0] > 0 ? with_sections : known_keys },
        unknown);
    sheaf__config_leave(all, &r);
}

static void missing(sheaf_json_reader *r, const char *key, const char *what, sheaf_rope_type type)
{
    sheaf_found(sheaf__json_fail(r, SHEAF_E_FORMAT, key, "'%s', which rope type \"%s\" needs", what,
                                 sheaf__rope_names[type]),
                "no such key");
}

/* A number for each pair that turns. */
static void check_lists(sheaf_json_reader *r, const sheaf_config *c, const char *key,
                        const rope_spelling *used)
{
    const int64_t pairs = (int64_t)((double)c->head_dim * c->rope.partial) / 2;
    for (int i = 0; i < 2 && r->st == NULL; i++)
        if (used->pairs[i] == 0)
            missing(r, key, list_names[i], SHEAF_ROPE_LONGROPE);
        else if (used->pairs[i] != pairs)
            sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, key,
                                         "%" PRId64 " numbers in %s, one for each pair of channels",
                                         pairs, list_names[i]),
                        "%" PRId64, used->pairs[i]);
}

/* Checks the numbers of the chosen rope type. */
static void check_rope(sheaf_json_reader *r, const sheaf_config *c, const char *key,
                       const rope_spelling *used)
{
    const char *lacks = NULL;
    if (c->rope.type != SHEAF_ROPE_DEFAULT && c->rope.factor == 0)
        lacks = "factor";
    if (c->rope.type == SHEAF_ROPE_LLAMA3) {
        lacks = c->rope.low_freq_factor == 0 ? "low_freq_factor" : lacks;
        lacks = c->rope.high_freq_factor == 0 ? "high_freq_factor" : lacks;
        lacks = c->rope.original_length == 0 ? "original_max_position_embeddings" : lacks;
    }
    if (lacks != NULL) {
        missing(r, key, lacks, c->rope.type);
    } else if (c->rope.type == SHEAF_ROPE_LLAMA3 &&
               c->rope.low_freq_factor >= c->rope.high_freq_factor) {
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "low_freq_factor below high_freq_factor"),
            "%g and %g", c->rope.low_freq_factor, c->rope.high_freq_factor);
    }
    const double rotated = (double)c->head_dim * c->rope.partial;
    if (r->st == NULL && ((int64_t)rotated < 2 || (int64_t)rotated % 2 != 0))
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "head_dim",
                                     "an even number of rotated elements in a head"),
                    "%" PRId64 " of a head of %" PRId64, (int64_t)rotated, c->head_dim);
    if (r->st == NULL && c->rope.type == SHEAF_ROPE_LONGROPE)
        check_lists(r, c, key, used);
    if (r->st == NULL && c->rope.type == SHEAF_ROPE_DYNAMIC && (int64_t)rotated < 4)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "head_dim",
                                     "at least 4 rotated elements in a head for rope type \"%s\"",
                                     sheaf__rope_names[c->rope.type]),
                    "%" PRId64, (int64_t)rotated);
}

static void merge_rope(sheaf_json_reader *r, const char *key, double *into, double declared)
{
    if (*into != 0 && declared != 0 && *into != declared) {
        char one[SHEAF__JSON_NUMBER], other[SHEAF__JSON_NUMBER];
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "the same number everywhere in the file"),
            "%s and %s", sheaf__number_json(one, *into), sheaf__number_json(other, declared));
    } else if (*into == 0)
        *into = declared;
}

/* Do two objects say the same, but for what merge_rope() looks at? */
static bool same_spelling(const rope_spelling *a, const rope_spelling *b)
{
    rope_spelling x = *a, y = *b;
    x.theta = y.theta = x.partial = y.partial = 0;
    return memcmp(&x, &y, sizeof x) == 0; /* made of 8-byte numbers: no holes */
}

/* How long sequences were when the model was first trained; a key beside the objects wins in the
 * class that has it, and else must not contradict. */
static int64_t original_length(sheaf_json_reader *r, const sheaf_config *c,
                               const sheaf__llama_form *form, const rope_spelling *used)
{
    static const char key[] = "original_max_position_embeddings";
    const int64_t beside = sheaf__json_int(r, key, 1, MOST_POSITION, form->original);
    if (beside > 0 && form->original == 0 && used->original > 0 && used->original != beside)
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "the same number everywhere in the file"),
            "%" PRId64 " and %" PRId64, beside, used->original);
    return beside > 0 ? beside : used->original > 0 ? used->original : c->max_position;
}

/* Numbers that the type does not use are left out, so that equal models are equal structs. */
static void take_numbers(sheaf_config *c, const rope_spelling *used, int64_t original)
{
    const double stretched = (double)c->max_position / (double)original;
    if (used->type != SHEAF_ROPE_DEFAULT)
        c->rope.factor = used->factor;
    if (used->type == SHEAF_ROPE_LLAMA3) {
        c->rope.low_freq_factor = used->low;
        c->rope.high_freq_factor = used->high;
        c->rope.original_length = used->original;
    }
    if (used->type == SHEAF_ROPE_YARN || used->type == SHEAF_ROPE_LONGROPE) {
        c->rope.factor = used->factor != 0 ? used->factor : stretched;
        c->rope.attention_factor = used->attention;
        c->rope.original_length = original;
    }
    if (used->type == SHEAF_ROPE_YARN) {
        c->rope.beta_fast = used->beta_fast != 0 ? used->beta_fast : 32;
        c->rope.beta_slow = used->beta_slow != 0 ? used->beta_slow : 1;
        c->rope.mscale = used->mscale != 0 && used->mscale_all_dim != 0 ? used->mscale : 0;
        c->rope.mscale_all_dim = c->rope.mscale != 0 ? used->mscale_all_dim : 0;
        c->rope.truncate = used->whole;
    }
    if (used->type == SHEAF_ROPE_LONGROPE) {
        c->rope.pairs = used->pairs[0];
        memcpy(c->rope.short_factor, used->list[0], sizeof c->rope.short_factor);
        memcpy(c->rope.long_factor, used->list[1], sizeof c->rope.long_factor);
    }
}

/* rope_parameters of a family whose layers with a window have a rotary embedding of their own: an
 * object for each kind of layer. */
static void read_kinds(sheaf_json_reader *all, sheaf_config *c, const sheaf__llama_form *form,
                       rope_spelling *full, sheaf_text *unknown)
{
    rope_spelling sliding = { 0 };
    double theta = sheaf__json_real(all, "rope_local_base_freq", 1e-3, 1e18, 0);
    const json_t *object = sheaf__json_object(all, "rope_parameters");
    sheaf_json_reader r = { object, "rope_parameters.", NULL };
    memset(full, 0, sizeof *full);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) if (strcmp(name, "full_attention") != 0 &&
                                                           strcmp(name, "sliding_attention") != 0)
    {
        sheaf_found(sheaf__json_fail(&r, SHEAF_E_LAYOUT, name,
                                     "only 'full_attention' and 'sliding_attention' there"),
                    "another key");
    }
    if (object != NULL && r.st == NULL) {
        read_rope_object(&r, "full_attention", full, form, unknown);
        read_rope_object(&r, "sliding_attention", &sliding, form, unknown);
    }
    if (r.st == NULL && (sliding.type != SHEAF_ROPE_DEFAULT || sliding.partial != 0))
        sheaf__json_fail(&r, SHEAF_E_UNSUPPORTED, "sliding_attention",
                         "the default rotary embedding in layers with a window");
    if (r.st == NULL)
        merge_rope(&r, "sliding_attention", &theta, sliding.theta);
    c->local_theta = theta != 0 ? theta : form->local_theta;
    sheaf__config_leave(all, &r);
}

/* Every pair must turn by an axis. */
static void take_sections(sheaf_json_reader *r, sheaf_config *c, const sheaf__llama_form *form,
                          const rope_spelling *used)
{
    const bool declared = used->section[0] + used->section[1] + used->section[2] > 0;
    const int64_t *section = declared ? used->section : form->section, pairs = c->head_dim / 2;
    if (r->st != NULL || form->section[0] == 0)
        return;
    if (section[0] < 1 || section[0] + section[1] + section[2] != pairs)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "mrope_section",
                                     "three numbers, of which the first is not 0, that sum to "
                                     "%" PRId64 ", the pairs of channels of a head",
                                     pairs),
                    "%" PRId64 ", %" PRId64 ", %" PRId64, section[0], section[1], section[2]);
    else if (c->rope.type == SHEAF_ROPE_DYNAMIC || c->rope.type == SHEAF_ROPE_LONGROPE)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "rope_type",
                         "default, linear, yarn or llama3, as positions have three axes");
    memcpy(c->rope.section, section, sizeof c->rope.section);
    c->rope.interleaved = form->interleaved;
}

/* Phi-3's class and GLM's turn a part of each head. The others read the key and turn all of it by
 * the default rope type, or end with an error by another, so that no model of theirs has a part. */
static void check_partial(sheaf_json_reader *r, const sheaf_config *c,
                          const sheaf__llama_form *form)
{
    if (r->st != NULL || form->partial || c->rope.partial == 1)
        return;
    sheaf_status *st =
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "partial_rotary_factor",
                         "1, or no such key, for model_type %s", sheaf_family_name(c->family));
    char number[SHEAF__JSON_NUMBER];
    sheaf_found(st, "%s", sheaf__number_json(number, c->rope.partial));
    sheaf_try_this(st, "no such key: with the default rope type transformers does not look at it");
}

/* If each kind of layer has an object of its own, transformers looks for truncate beside the
 * objects, where it cannot be, and for original_max_position_embeddings inside alone. */
static void check_nested(sheaf_json_reader *r, const char *key, const sheaf__llama_form *form,
                         const rope_spelling *used)
{
    static const char original[] = "original_max_position_embeddings";
    if (r->st != NULL || form->local_theta == 0 ||
        (used->type != SHEAF_ROPE_YARN && used->type != SHEAF_ROPE_LONGROPE))
        return;
    if (used->type == SHEAF_ROPE_YARN && !used->whole)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key,
                                     "truncate true, or no such key: its class takes no other"),
                    "false");
    else if (used->original == 0 && sheaf__json_int(r, original, 1, MOST_POSITION, 0) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, original,
                         "the key in '%s', as its class does not look at this one", key);
}

/* A file may spell it both ways; then both must say the same. */
void sheaf__llama_rope(sheaf_json_reader *r, sheaf_config *c, const sheaf__llama_form *form,
                       sheaf_text *unknown)
{
    rope_spelling old, new;
    double theta = sheaf__json_real(r, "rope_theta", 1e-3, 1e18, 0);
    double partial = sheaf__json_real(r, "partial_rotary_factor", 1e-6, 1, 0);
    read_rope_object(r, "rope_scaling", &old, form, unknown);
    if (form->local_theta > 0)
        read_kinds(r, c, form, &new, unknown);
    else
        read_rope_object(r, "rope_parameters", &new, form, unknown);
    if (r->st != NULL)
        return;
    if (old.given && new.given && !same_spelling(&old, &new)) {
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "rope_scaling",
                         "the same as 'rope_parameters', or no such key");
        return;
    }
    const rope_spelling *used = new.given ? &new : &old;
    merge_rope(r, "rope_theta", &theta, old.theta);
    merge_rope(r, "rope_theta", &theta, new.theta);
    merge_rope(r, "partial_rotary_factor", &partial, old.partial);
    merge_rope(r, "partial_rotary_factor", &partial, new.partial);
    c->rope.type = (sheaf_rope_type)used->type;
    c->rope.theta = theta != 0 ? theta : form->theta != 0 ? form->theta : 10000.0;
    c->rope.partial = partial != 0 ? partial : form->part != 0 ? form->part : 1.0;
    check_partial(r, c, form);
    check_nested(r, new.given ? "rope_parameters" : "rope_scaling", form, used);
    take_numbers(c, used, original_length(r, c, form, used));
    take_sections(r, c, form, used);
    check_rope(r, c, new.given ? "rope_parameters" : "rope_scaling", used);
}
