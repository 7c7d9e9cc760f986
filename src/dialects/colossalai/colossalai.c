/* colossalai.c - recognising and reading; see colossalai.h. */
#include "dialects/colossalai/colossalai.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "dialects/common/model.h"
#include "dialects/common/whole.h"
#include "dialects/common/save.h"

/* ---- names of files ---- */

static bool numbered(const char *name, const char *begin, const char *end)
{
    const size_t n = strlen(begin);
    if (strncmp(name, begin, n) != 0)
        return false;
    const size_t digits = strspn(name + n, "0123456789");
    return digits > 0 && strcmp(name + n + digits, end) == 0;
}

bool sheaf__colossalai_is_rank(const char *name)
{
    return numbered(name, "tp_rank_", ".safetensors") || numbered(name, "tp_rank_", ".bin") ||
           numbered(name, "tp_rank_", ".pt");
}

bool sheaf__colossalai_is_model(const char *name)
{
    return numbered(name, "model-", ".safetensors") || numbered(name, "pytorch_model-", ".bin") ||
           strncmp(name, "model-stage-", 12) == 0 || strncmp(name, "pytorch_model-stage-", 20) == 0;
}

bool sheaf__colossalai_is_optimizer(const char *name)
{
    return strcmp(name, "pytorch_optim.bin.index.json") == 0 ||
           strcmp(name, "pytorch_optim_group.bin") == 0 ||
           numbered(name, "pytorch_optim-", ".bin") ||
           strncmp(name, "pytorch_optim-stage-", 20) == 0;
}

static bool is_ours(const char *name)
{
    return sheaf__colossalai_is_rank(name) || sheaf__colossalai_is_model(name) ||
           sheaf__colossalai_is_optimizer(name) || strcmp(name, "tmp_index_files") == 0;
}

static bool colossalai_is(const char *path)
{
    if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return sheaf__colossalai_is_rank(sheaf__last_part(path));
    return sheaf__holds_file(path, is_ours) || (sheaf__has_file(path, "running_states.json") &&
                                                sheaf__path_has(path, "modeling", SHEAF_PATH_NONE));
}

/* ---- reading ---- */

static sheaf_status *note_leftovers(sheaf_catalog *c, const char *dir, const sheaf__names *names)
{
    char *path = NULL;
    if (!sheaf__names_has(names, "tmp_index_files"))
        return NULL;
    const bool merged = sheaf__names_has(names, "model.safetensors.index.json") ||
                        sheaf__names_has(names, "pytorch_model.bin.index.json");
    sheaf_status *st = sheaf__path_join(&path, dir, "tmp_index_files");
    TRY(st, sheaf__catalog_note(
                c, SHEAF_WARNING, "stale", path, "", "no such folder once a save is complete",
                merged ? "left by a save that was killed; the index is there all the same"
                       : "left by a save that was killed before it wrote its index",
                merged ? "delete it" : "sheaf convert {} {+indexed} --to hf{config}"));
    free(path);
    return st;
}

/* The weights and the optimizer in one folder. */
static sheaf_status *read_dir(bool *damaged, sheaf_catalog *c, const char *dir,
                              const sheaf_dialect_hints *hints, bool config)
{
    sheaf__whole whole = { .catalog = c, .rank = -1 };
    sheaf__names names = { 0 };
    bool weights = false, optimizer = false;
    sheaf_status *st = sheaf__list_dir(&names.at, &names.count, dir);
    for (int64_t i = 0; i < names.count; i++) {
        const bool moments = sheaf__colossalai_is_optimizer(names.at[i]);
        optimizer = optimizer || moments;
        weights = weights || (!moments && !sheaf__colossalai_is_rank(names.at[i]) &&
                              (sheaf__colossalai_is_model(names.at[i]) ||
                               strncmp(names.at[i], "model.", 6) == 0 ||
                               strncmp(names.at[i], "pytorch_model", 13) == 0));
    }
    if (st == NULL && config && c->config == NULL)
        st = sheaf__catalog_find_config(c, hints, dir, "config.json");
    if (st == NULL && (weights || !optimizer))
        st = sheaf__whole_folder(damaged, &whole, dir, &names);
    TRY(st, note_leftovers(c, dir, &names));
    TRY(st, optimizer ? sheaf__colossalai_optimizer(c, dir, &names) : NULL);
    sheaf__names_free(names.at, names.count);
    return st;
}

static sheaf_status *read_step(sheaf_catalog *c, const char *path)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_load(&root, path);
    if (st != NULL)
        return sheaf__catalog_defect(c, path, st);
    const json_t *step = json_object_get(root, "step");
    if (c->step < 0 && json_is_integer(step) && json_integer_value(step) >= 0)
        c->step = json_integer_value(step);
    json_decref(root);
    return NULL;
}

/* modeling/, optimizer/, running_states.json */
static sheaf_status *read_training(bool *damaged, sheaf_catalog *c, const char *path,
                                   const sheaf_dialect_hints *hints)
{
    static const char *const parts[] = { "modeling", "optimizer", "running_states.json" };
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < 3; i++) {
        char *inner = NULL;
        st = sheaf__path_join(&inner, path, parts[i]);
        if (st == NULL && sheaf__path_kind(inner) == SHEAF_PATH_DIR)
            st = read_dir(damaged, c, inner, hints, i == 0);
        else if (st == NULL && i == 2 && sheaf__path_kind(inner) == SHEAF_PATH_FILE)
            st = read_step(c, inner);
        free(inner);
    }
    return st;
}

static sheaf_status *read_ranks(sheaf_catalog *c, const char *path,
                                const sheaf_dialect_hints *hints)
{
    int64_t n = 0;
    while (hints->also != NULL && hints->also[n] != NULL)
        n++;
    const char **all = calloc((size_t)n + 2, sizeof *all);
    char *dir = NULL;
    sheaf_status *st = all == NULL ? sheaf__no_memory(path) : NULL;
    if (st == NULL) {
        all[0] = path;
        for (int64_t i = 0; i < n; i++)
            all[i + 1] = hints->also[i];
        if (sheaf__path_kind(path) != SHEAF_PATH_DIR)
            st = sheaf__path_parent(&dir, path);
    }
    TRY(st, sheaf__catalog_find_config(c, hints, dir != NULL ? dir : path, "config.json"));
    TRY(st, sheaf__rank_parts_join(c, all));
    free(dir);
    free(all);
    return st;
}

/* Further folders: an optimizer's, or other ranks' parts. */
static sheaf_status *read_also(bool *damaged, sheaf_catalog *c, const sheaf_dialect_hints *hints)
{
    int64_t n = 0, parts = 0;
    while (hints->also[n] != NULL)
        n++;
    const char **part = calloc((size_t)n + 1, sizeof *part);
    sheaf_status *st = part == NULL ? sheaf__no_memory(c->root) : NULL;
    for (int64_t i = 0; st == NULL && i < n; i++) {
        if (sheaf__path_kind(hints->also[i]) == SHEAF_PATH_DIR &&
            sheaf__holds_file(hints->also[i], sheaf__colossalai_is_optimizer))
            st = read_dir(damaged, c, hints->also[i], hints, false);
        else
            part[parts++] = hints->also[i];
    }
    TRY(st, parts > 0 ? sheaf__rank_parts_join(c, part) : NULL);
    free(part);
    return st;
}

static sheaf_status *colossalai_read(sheaf_catalog *c, const char *path,
                                     const sheaf_dialect_hints *hints)
{
    bool damaged = false;
    sheaf_status *st;
    if (sheaf__holds_file(path, sheaf__colossalai_is_rank)) {
        st = read_ranks(c, path, hints);
        return st != NULL ? st : sheaf__catalog_check_model(c, false);
    }
    st = sheaf__path_has(path, "modeling", SHEAF_PATH_DIR)
             ? read_training(&damaged, c, path, hints)
             : read_dir(&damaged, c, path, hints, true);
    TRY(st, hints->also != NULL ? read_also(&damaged, c, hints) : NULL);
    bool weights = false;
    for (int64_t i = 0; i < c->count; i++)
        weights = weights || c->tensor[i].kind == SHEAF_WEIGHT;
    return st != NULL || (!weights && !damaged) ? st : sheaf__catalog_check_model(c, damaged);
}

const sheaf_dialect sheaf__dialect_colossalai = {
    .name = "colossalai",
    .title = "ColossalAI",
    .is = colossalai_is,
    .read = colossalai_read,
    .folders = true,
    .hf_config = true,
};
