/* tied.c - see plan.h.
 *
 * Each name is a tensor of its own here, with the values that the base stores under another name,
 * until all turn out equal: a change to one name does not change the others, except for trained
 * rows, PEFT's copies of the base, and ensure_weight_tying. */
#include "base/base.h"
#include "checkpoint/merge/plan.h"

#include "dialects/common/model_folder.h"
#include "lora/match.h"
#include "lora/names.h"
#include "schema/family.h"

enum { MOST_NAME = 256 };

static const char flag_key[] = "tie_word_embeddings";

/* ---- ties in the config ---- */

/* *yes, *no: whether the config, or a nested one, has the flag true, or false. */
static void read_flags(bool *yes, bool *no, const json_t *config)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value)
    {
        if (json_is_object(value))
            read_flags(yes, no, value);
        if (strcmp(key, flag_key) != 0)
            continue;
        *yes |= json_is_true(value);
        *no |= json_is_false(value);
    }
}

static const char *class_of(const json_t *config)
{
    return json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
}

/* The ties of sheaf's own families, which transformers may lack. */
static void take_family(sheaf__merge_plan *p, const char *class)
{
    const sheaf__family *family = sheaf__family_named(p->model_type);
    if (family == NULL ||
        (class != NULL && family->architecture != NULL && strcmp(family->architecture, class) != 0))
        return;
    p->own_ties = (sheaf__ties){ family->table, family->head, family->name, false };
    p->ties = &p->own_ties;
}

static int64_t number_of(const json_t *config, const char *key)
{
    const json_t *at_top = json_object_get(config, key);
    return json_integer_value(
        at_top != NULL ? at_top : json_object_get(json_object_get(config, "text_config"), key));
}

static void take_row(sheaf__merge_plan *p, const json_t *config)
{
    const char *class = class_of(config);
    snprintf(p->architecture, sizeof p->architecture, "%s", class != NULL ? class : "");
    p->ties =
        class == NULL ? NULL : sheaf__ties_of(class, json_object_get(config, "auto_map") != NULL);
    p->vocabulary = number_of(config, "vocab_size");
    p->layers = number_of(config, "num_hidden_layers");
    if (p->ties == NULL)
        take_family(p, class);
}

/* ---- the architecture's names in these files ---- */

typedef struct member {
    const char *name;                 /* as transformers has it */
    const char *file;                 /* as the files have or would have it; NULL: no such tensor */
    const sheaf_source_entry *stored; /* NULL: not in the files */
    bool made, tied, twice;
} member;

typedef struct spelling {
    int group;             /* of renames; -1: none */
    char lacks[MOST_NAME]; /* in front of names, and not in the files */
    char first[MOST_NAME]; /* prefix in the files before its first part */
} spelling;

/* Can a stored name stand for this one? */
static bool can_stand_for(const sheaf__merge_tensor *t, const char *name,
                          const sheaf_source_entry *like)
{
    const char *a = strrchr(t->name, '.'), *b = strrchr(name, '.');
    if (t->made || a == NULL || b == NULL || strcmp(a, b) != 0)
        return false;
    if (like != NULL)
        return sheaf__same_shape(t->ndim, t->shape, like->ndim, like->shape);
    while (b > name && b[-1] != '.')
        b--;
    return t->ndim == 2 && sheaf__ends_with_item(t->name, strlen(t->name), b);
}

static bool any_begins(const sheaf__merge_plan *p, const char *begin, size_t length)
{
    for (int64_t i = 0; i < p->count; i++)
        if (strncmp(p->tensor[i].name, begin, length) == 0)
            return true;
    return false;
}

static sheaf_status *by_renames(const sheaf_source_entry **out, int group,
                                const sheaf__merge_plan *p, const char *name,
                                const sheaf_source_entry *like)
{
    sheaf_renames *renames = NULL;
    sheaf_status *st = sheaf__renames_new(&renames, group);
    for (int64_t i = 0; i < p->count && st == NULL && *out == NULL; i++) {
        char *memory = NULL;
        if (!can_stand_for(&p->tensor[i], name, like))
            continue;
        st = sheaf__renames_apply(&memory, renames, p->tensor[i].name);
        if (st == NULL && strcmp(memory, name) == 0)
            *out = p->tensor[i].base;
        free(memory);
    }
    sheaf__renames_free(renames);
    return st;
}

/* The stored tensor with this name in transformers; NULL: none. The first one found shows how the
 * files spell names. */
static sheaf_status *locate(const sheaf_source_entry **out, spelling *s, sheaf__merge_plan *p,
                            const char *name, const sheaf_source_entry *like)
{
    const sheaf__merge_tensor *t = sheaf__merge_find(p, name);
    sheaf_status *st = NULL;
    *out = t != NULL ? t->base : NULL;
    for (int64_t i = 0; i < p->count && *out == NULL; i++) { /* files of the bare model */
        const char *bare = p->tensor[i].name;
        const size_t lacks = strlen(name) > strlen(bare) ? strlen(name) - strlen(bare) : 0;
        if (lacks > 0 && can_stand_for(&p->tensor[i], name, like) &&
            strcmp(name + lacks, bare) == 0 && name[lacks - 1] == '.' &&
            !any_begins(p, name, lacks)) {
            *out = p->tensor[i].base;
            snprintf(s->lacks, sizeof s->lacks, "%.*s", (int)lacks, name);
        }
    }
    for (int g = 0; g < sheaf__renames_groups() && *out == NULL && st == NULL; g++) {
        if (s->group >= 0 && g != s->group)
            continue;
        st = by_renames(out, g, p, name, like);
        if (*out != NULL)
            s->group = g;
    }
    if (*out != NULL && s->group >= 0 && s->first[0] == '\0')
        snprintf(s->first, sizeof s->first, "%.*s", (int)strcspn((*out)->name, "."), (*out)->name);
    return st;
}

/* The name that a missing tensor would have in the files; malloc'd. */
static sheaf_status *spell(char **out, const spelling *s, const char *name)
{
    sheaf_renames *renames = NULL;
    char *memory = NULL;
    sheaf_status *st = NULL;
    *out = NULL;
    if (s->lacks[0] != '\0' && strncmp(name, s->lacks, strlen(s->lacks)) == 0)
        name += strlen(s->lacks);
    if (s->group >= 0) { /* after the table's prefix, if that gives the name */
        st = sheaf__renames_new(&renames, s->group);
        TRY(st, asprintf(out, "%s.%s", s->first, name) < 0 ? sheaf__no_memory(name) : NULL);
        TRY(st, sheaf__renames_apply(&memory, renames, *out));
        sheaf__renames_free(renames);
        if (st == NULL && strcmp(memory, name) == 0) {
            free(memory);
            return NULL;
        }
        free(memory);
        free(*out);
        *out = NULL;
    }
    TRY(st, (*out = strdup(name)) == NULL ? sheaf__no_memory(name) : NULL);
    return st;
}

/* ---- the table and the head ---- */

/* The table once more where it was searched before the spelling was known. */
static sheaf_status *find_members(member m[2], spelling *s, sheaf__merge_plan *p)
{
    const sheaf_source_entry *like = NULL;
    sheaf_status *st = NULL;
    for (int k = 0; k < 3 && st == NULL; k++) {
        member *one = &m[k % 2];
        if (one->stored != NULL || (k == 2 && like == NULL))
            continue;
        st = locate(&one->stored, s, p, one->name, like);
        if (one->stored == NULL)
            continue;
        one->file = one->stored->name;
        like = like == NULL ? one->stored : like;
    }
    return st;
}

static sheaf_status *refuse_two(const member *m, const sheaf_source_entry *leader)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", m->file);
    sheaf_expected(st, "the values of '%s', because tie_word_embeddings is true", leader->name);
    return sheaf_try_this(st, "set tie_word_embeddings to false in config.json if they are two");
}

/* Is it the tensor `leader` under another name? If it is stored, equal values decide, as in
 * transformers 5, unless the config does. */
static sheaf_status *decide(member *m, const spelling *s, sheaf__merge_plan *p,
                            const sheaf_source_entry *leader)
{
    const bool silent = !p->said_no && !p->said_yes;
    const bool sure_no = p->said_no && !p->said_yes, sure_yes = p->said_yes && !p->said_no;
    sheaf_status *st = NULL;
    if (m->stored == leader || sure_no || (silent && m->stored != NULL && !p->ties->unsaid))
        return NULL;
    if (m->stored == NULL) {
        char *name = NULL;
        st = spell(&name, s, m->name);
        if (st != NULL)
            return st;
        m->file = p->made_name = name;
        m->made = m->tied = true;
        return NULL;
    }
    if (leader->dtype == m->stored->dtype)
        st = sheaf__same_numbers(&m->tied, p->base, leader->name, p->base, m->stored->name);
    TRY(st, !m->tied && sure_yes ? refuse_two(m, leader) : NULL);
    m->twice = m->tied && sure_yes;
    return st;
}

static void add_made(sheaf__merge_plan *p, const member *m, const sheaf_source_entry *leader)
{
    sheaf__merge_tensor *t = &p->tensor[p->count++];
    *t = sheaf__merge_make_tensor(m->file, leader);
    t->made = true;
}

/* The bias of the head "X.weight"; NULL: none. */
static sheaf__merge_tensor *bias_of(sheaf__merge_plan *p, const char *weight)
{
    char name[512];
    const size_t length = strlen(weight);
    if (!sheaf__ends_with(weight, ".weight") || length >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s.bias", (int)(length - strlen(".weight")), weight);
    return sheaf__merge_find(p, name);
}

static sheaf_status *add_tie(sheaf__merge_plan *p)
{
    spelling s = { .group = -1 };
    member m[2] = { { .name = p->ties->table }, { .name = p->ties->head } };
    sheaf_status *st = find_members(m, &s, p);
    const sheaf_source_entry *leader = m[0].stored != NULL ? m[0].stored : m[1].stored;
    for (int i = 0; i < 2 && leader != NULL && st == NULL; i++)
        st = decide(&m[i], &s, p, leader);
    for (int i = 0; i < 2 && st == NULL; i++)
        if (m[i].made)
            add_made(p, &m[i], leader);
    qsort(p->tensor, (size_t)p->count, sizeof *p->tensor, sheaf__by_name);
    for (int i = 0; i < 2 && st == NULL; i++) {
        sheaf__merge_tensor *t = m[i].file != NULL ? sheaf__merge_find(p, m[i].file) : NULL;
        if (t == NULL)
            continue;
        t->table = true;
        t->twice = m[i].twice;
        if ((t = bias_of(p, m[i].file)) != NULL)
            t->table = true;
    }
    if (st == NULL && (m[0].tied || m[1].tied))
        p->tie = (sheaf__merge_tie){ m[0].file, m[1].file };
    return st;
}

sheaf_status *sheaf__merge_find_ties(sheaf__merge_plan *p, const json_t *config)
{
    if (config == NULL)
        return NULL;
    read_flags(&p->said_yes, &p->said_no, config);
    take_row(p, config);
    const json_t *at_top = json_object_get(config, flag_key);
    p->tied_inside = p->said_yes && p->ties != NULL &&
                     (at_top != NULL ? json_is_false(at_top) : !p->ties->unsaid);
    const bool any = p->ties != NULL && *p->ties->table != '\0';
    for (int64_t i = 0; i < p->count && !any; i++)
        p->tensor[i].table = sheaf__lora_is_table(p->tensor[i].name, p->tensor[i].ndim);
    sheaf_status *st = any ? add_tie(p) : NULL;
    p->tied = p->tie.first != NULL;
    return st;
}

bool sheaf__merge_is_other(const sheaf__merge_plan *p, const sheaf__merge_tensor *t)
{
    return p->tie.first != NULL && strcmp(p->tie.other, t->name) == 0;
}

/* ---- after an adapter was matched ---- */

static sheaf_status *copy_step(sheaf__merge_tensor *to, const sheaf__merge_step *from)
{
    if (!SHEAF_GROW(&to->step, NULL, to->nsteps + 1))
        return sheaf__no_memory(to->name);
    sheaf__merge_step *s = &to->step[to->nsteps++];
    *s = *from;
    if (from->pick == NULL)
        return NULL;
    s->pick = calloc((size_t)from->npicks + 1, sizeof *s->pick);
    if (s->pick == NULL)
        return sheaf__no_memory(to->name);
    memcpy(s->pick, from->pick, (size_t)from->npicks * sizeof *s->pick);
    return NULL;
}

/* Did the adapter train it under this name? */
static bool is_named(const sheaf__merge_tensor *t, int number)
{
    bool yes = t->whole != NULL && t->whole_number == number && t->saved;
    for (int i = 0; i < t->nsteps; i++)
        yes |= t->step[i].number == number;
    return yes;
}

static bool is_copy(const sheaf__merge_tensor *t, int number)
{
    return t->whole != NULL && t->whole_number == number && !t->saved;
}

static void take_whole(sheaf__merge_tensor *to, const sheaf__merge_tensor *from)
{
    to->whole_from = from->whole_from;
    to->whole = from->whole;
    to->whole_number = from->whole_number;
    to->saved = from->saved;
    to->shape[0] = to->rows = from->rows;
}

/* In PEFT trained rows apply to all tied names, with ensure_weight_tying all changes do; otherwise
 * a change to one name leaves the others. */
static sheaf_status *settle(const sheaf__merge_tensor *first, sheaf__merge_tensor *other, bool keep,
                            int number)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < other->nsteps && keep; i++)
        if (other->step[i].number == number)
            other->step[i].rounded =
                true; /* as for the table, so that equal factors give equal bits */
    if (is_named(other, number))
        return NULL;
    for (int i = 0; i < first->nsteps && st == NULL; i++)
        if (first->step[i].number == number &&
            (keep || first->step[i].kind == SHEAF__MERGE_PICKS)) {
            st = copy_step(other, &first->step[i]);
            other->shape[0] = other->rows = first->rows; /* there may be more now */
        }
    const bool whole = first->whole != NULL && first->whole_number == number;
    if (st == NULL && whole && keep && first->saved && other->nsteps == 0)
        take_whole(other, first);
    return st;
}

/* PEFT's copy of the base under one name stands for the other too, where the adapter lacks it. */
static void take_copies(sheaf__merge_tensor *first, sheaf__merge_tensor *other, int number)
{
    const sheaf__merge_tensor *copy = is_copy(first, number) ? first : other;
    if (!is_copy(copy, number))
        return;
    if (first->whole == NULL)
        take_whole(first, copy);
    if (other->whole == NULL)
        take_whole(other, copy);
}

sheaf_status *sheaf__merge_settle_ties(sheaf__merge_plan *p, const sheaf__merge_adapter *adapter,
                                       int number)
{
    if (p->tie.first == NULL)
        return NULL;
    sheaf__merge_tensor *first = sheaf__merge_find(p, p->tie.first),
                        *other = sheaf__merge_find(p, p->tie.other);
    take_copies(first, other, number);
    return settle(first, other, adapter->options.keep_tie, number);
}

/* ---- after all were matched ---- */

static sheaf_status *refuse_unknown(const sheaf__merge_plan *p, const sheaf__merge_tensor *t)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", t->name);
    sheaf_expected(st, "an architecture whose tied tensors are known, because the adapter changes "
                       "one that may be tied");
    if (p->architecture[0] != '\0')
        sheaf_found(st, "%s", p->architecture);
    else
        sheaf_found(st, "no architectures in config.json");
    return sheaf_try_this(
        st, "merge it with PEFT; or, where nothing is tied in this model, set tie_word_embeddings "
            "to false in the base's config.json");
}

/* An embedding table or a head, judged by name and size. */
static bool may_be_tied(const sheaf__merge_plan *p, const sheaf__merge_tensor *t)
{
    for (int i = 0; i < t->nsteps; i++)
        if (t->step[i].kind == SHEAF__MERGE_PICKS || t->step[i].rounded)
            return true;
    return t->table || (t->ndim > 0 && p->vocabulary > 0 && t->base->shape[0] == p->vocabulary);
}

static sheaf_status *check_known_ties(const sheaf__merge_plan *p)
{
    if (p->config == NULL || p->ties != NULL || (p->said_no && !p->said_yes))
        return NULL;
    for (int64_t i = 0; i < p->count; i++)
        if (sheaf__merge_touched(&p->tensor[i]) && may_be_tied(p, &p->tensor[i]))
            return refuse_unknown(p, &p->tensor[i]);
    return NULL;
}

static sheaf_status *refuse_size(const sheaf__merge_plan *p, const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", name);
    sheaf_expected(st, "as many rows in base and adapter, or one new number of rows for all that "
                       "has one for each token");
    sheaf_found(st, "%" PRId64 " rows in the adapter", p->resized);
    return sheaf_try_this(
        st, "the base this adapter was made for, its vocabulary resized as it was before training");
}

/* A resized table is a resized vocabulary, which all tensors with a row per token must share. */
static sheaf_status *check_resized(sheaf__merge_plan *p)
{
    int64_t was = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < p->count; i++) {
        const sheaf__merge_tensor *t = &p->tensor[i];
        if (t->ndim == 0 || t->rows == t->base->shape[0])
            continue;
        p->resized = t->rows;
        was = t->base->shape[0];
        if (!t->table)
            return refuse_size(p, t->name);
    }
    for (int64_t i = 0; i < p->count && p->resized > 0 && st == NULL; i++) {
        const sheaf__merge_tensor *t = &p->tensor[i];
        if (t->table && t->base->shape[0] == was && t->rows != p->resized)
            st = refuse_size(p, t->name);
    }
    const sheaf__merge_tensor *added = sheaf__merge_find(p, "final_logits_bias"); /* BART's */
    return st == NULL && p->resized > 0 && added != NULL ? refuse_size(p, added->name) : st;
}

sheaf_status *sheaf__merge_check_tables(sheaf__merge_plan *p)
{
    sheaf_status *st = check_known_ties(p);
    return st == NULL ? check_resized(p) : st;
}

void sheaf__merge_drop_names(sheaf__merge_plan *p)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < p->count; i++) {
        if (p->tensor[i].made || p->tensor[i].twice)
            sheaf__merge_release_tensor(&p->tensor[i]);
        else
            p->tensor[kept++] = p->tensor[i];
    }
    p->count = kept;
    p->tie.first = NULL;
}

/* Sets a key of the text of a config, at the top or in the object `inside`. */
static sheaf_status *edit(char **json, const char *inside, const char *key, const char *value)
{
    char *edited = NULL;
    sheaf_status *st = inside != NULL ? sheaf_hf_config_edit(&edited, *json, inside, key, value)
                                      : sheaf_hf_config_set(&edited, *json, key, value);
    if (st == NULL) {
        free(*json);
        *json = edited;
    }
    return st;
}

sheaf_status *sheaf__merge_untie(char **json)
{
    sheaf_status *st = edit(json, "text_config", flag_key, "false");
    return TRY(st, edit(json, NULL, flag_key, "false"));
}

sheaf_status *sheaf__merge_set_vocabulary(char **json, const sheaf__merge_plan *p)
{
    static const char key[] = "vocab_size";
    json_t *config = NULL;
    char size[32];
    snprintf(size, sizeof size, "%" PRId64, p->resized);
    sheaf_status *st = sheaf__json_parse(&config, *json, strlen(*json));
    const bool in_text = json_object_get(json_object_get(config, "text_config"), key) != NULL;
    const bool at_top = !in_text || json_object_get(config, key) != NULL;
    TRY(st, in_text ? edit(json, "text_config", key, size) : NULL);
    TRY(st, at_top ? edit(json, NULL, key, size) : NULL);
    json_decref(config);
    return st;
}
