/* own_catalog.c - see probe.h. It is not among the dialects because the manifest belongs to this
 * room. Names: the master of NAME is NAME, of other groups "exp_avg/NAME" is "exp_avg.NAME". */
#include "checkpoint/store/probe.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/store/store.h"
#include "dialects/common/model.h"
#include "dialects/open.h"
#include "formats/safetensors.h"

static bool is_checkpoint(const char *path)
{
    return sheaf__path_has(path, "manifest.json", SHEAF_PATH_FILE);
}

static bool own_is(const char *path)
{
    return sheaf__path_kind(path) == SHEAF_PATH_DIR &&
           (is_checkpoint(path) || sheaf__path_has(path, "checkpoints", SHEAF_PATH_DIR) ||
            sheaf__path_has(path, "replicated.safetensors", SHEAF_PATH_FILE));
}

/* ---- names ---- */

static sheaf_status *logical_name(char **out, sheaf_kind *kind, const char *stored, bool raw)
{
    const char *name = stored;
    const sheaf_state_group group =
        raw ? SHEAF_STATE_GROUPS : sheaf__state_group_of(&name, stored, '/');
    const bool master = group == SHEAF_STATE_MASTER, none = group == SHEAF_STATE_GROUPS;
    sheaf_text text = { 0 };
    *kind = none     ? sheaf__is_moment(stored) ? SHEAF_MOMENT : SHEAF_WEIGHT
            : master ? strstr(name, ".lora_") != NULL ? SHEAF_LORA : SHEAF_WEIGHT
                     : SHEAF_MOMENT;
    if (none || master)
        sheaf__text_add(&text, "%s", name);
    else
        sheaf__text_add(&text, "%s.%s", sheaf__state_groups[group], name);
    return sheaf__text_take(out, &text);
}

/* ---- one folder of slices ---- */

typedef struct reading {
    sheaf_catalog *c;
    const sheaf_checkpoint *checkpoint;
    bool raw;
} reading;

/* The pieces of one tensor that lie in the file of `slice`: one for each part of its cut. */
static sheaf_status *take_entry(reading *r, int file, const sheaf_manifest_tensor *t,
                                const sheaf_safetensors_entry *e, int slice)
{
    char *name = NULL;
    sheaf_kind kind;
    sheaf_logical *to = NULL;
    sheaf_status *st = logical_name(&name, &kind, t->name, r->raw);
    TRY(st, sheaf__catalog_tensor(&to, r->c, name, t->dtype, t->ndim, t->shape));
    free(name);
    if (st != NULL)
        return st;
    to->kind = kind;
    sheaf_piece piece = sheaf__piece_dense(file, t->cut.nparts > 0 ? slice : -1, e->dtype,
                                           e->offset, e->ndim, e->shape);
    if (t->cut.nparts == 0)
        return sheaf__catalog_piece(r->c, to, &piece);
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(t->dtype);
    for (int part = 0; st == NULL && part < t->cut.nparts; part++) {
        sheaf_range range = { 0, 0 };
        st = sheaf_cut_rows(&range, &t->cut, part, slice);
        piece.begin[t->cut.axis] = range.begin;
        piece.size[t->cut.axis] = range.end - range.begin;
        TRY(st, sheaf__catalog_piece(r->c, to, &piece));
        piece.offset += (range.end - range.begin) * piece.stride[t->cut.axis] * bytes;
    }
    return st;
}

static sheaf_status *take_tensors(reading *r, const sheaf_safetensors *file, const char *path,
                                  int slice)
{
    const sheaf_manifest *m = r->checkpoint->manifest;
    int number = 0;
    sheaf_status *st = sheaf__catalog_file(&number, r->c, path, &file->mark);
    for (int64_t i = 0; st == NULL && i < m->count; i++) {
        const sheaf_manifest_tensor *t = &m->tensor[i];
        if (!sheaf__manifest_holds(m, t, slice))
            continue;
        const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, t->name);
        if (sheaf__manifest_agrees(t, e, slice)) /* else sheaf_checkpoint_examine() reports it */
            st = take_entry(r, number, t, e, slice);
    }
    return st;
}

static sheaf_status *take_slice(reading *r, int slice)
{
    const sheaf_manifest *m = r->checkpoint->manifest;
    char name[32], path[SHEAF_PATH_SIZE];
    sheaf_safetensors *file = NULL;
    sheaf__path_in(path, r->checkpoint->dir, sheaf__manifest_file(name, m->slices, slice));
    sheaf_status_free(
        sheaf__safetensors_open(&file, path)); /* sheaf_checkpoint_examine() reports it */
    if (file == NULL)
        return NULL;
    sheaf_status *st = take_tensors(r, file, path, slice);
    sheaf__safetensors_close(file);
    return st;
}

/* A converted model has its config in the progress. */
static sheaf_status *take_progress(reading *r)
{
    const char *text = r->checkpoint->manifest->progress;
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, text, strlen(text));
    if (st != NULL)
        return sheaf__catalog_defect(r->c, r->checkpoint->dir, st);
    const char *config = json_string_value(json_object_get(root, "config"));
    r->c->step = r->checkpoint->manifest->step;
    if (json_is_true(json_object_get(root, "step_unknown")))
        r->c->step = -1;
    if (config != NULL && (r->c->config = strdup(config)) == NULL)
        st = sheaf__no_memory(r->checkpoint->dir);
    json_decref(root);
    return st;
}

/* ---- damage ---- */

static bool is_reported(const sheaf_catalog *c, const char *path, const char *tensor,
                        const char *expected)
{
    for (int64_t i = 0; i < c->nfindings; i++)
        if (strcmp(c->finding[i].path, path) == 0 && strcmp(c->finding[i].tensor, tensor) == 0 &&
            strcmp(c->finding[i].expected, expected) == 0)
            return true;
    return false;
}

void sheaf__own_found(void *context, const char *file, const char *tensor, const char *expected,
                      const char *is)
{
    sheaf__own_damages *d = context;
    char path[SHEAF_PATH_SIZE], name[600];
    const char *rest;
    if (d->st != NULL)
        return;
    const bool absent = sheaf__path_kind(sheaf__path_in(path, d->dir, file)) == SHEAF_PATH_NONE;
    const bool foreign = !absent && strncmp(expected, "only the files", 14) == 0;
    const bool master = sheaf__state_group_of(&rest, tensor, '/') == SHEAF_STATE_MASTER;
    snprintf(name, sizeof name, "%s", master ? rest : tensor);
    if (absent && *expected == '\0')
        expected = "this file, which belongs to every save";
    if (!is_reported(d->catalog, path, name, expected))
        d->st = sheaf__defect(d->catalog,
                              absent    ? "missing"
                              : foreign ? "foreign"
                                        : "damaged",
                              path, name, expected,
                              foreign ? "move it away"
                                      : "use another copy or another checkpoint of this run",
                              "%s", is);
}

/* With it full verification finds the folder even if no tensor can be placed. */
static sheaf_status *note_manifest(sheaf_catalog *c, const char *dir)
{
    int number;
    char path[SHEAF_PATH_SIZE];
    return sheaf__catalog_file(&number, c, sheaf__path_in(path, dir, "manifest.json"), NULL);
}

static sheaf_status *read_folder(sheaf_catalog *c, const char *dir, bool raw)
{
    sheaf_checkpoint *checkpoint = NULL;
    if (c->held == NULL)
        c->held = sheaf__step_open(dir);
    sheaf__own_damages found = { c, dir, NULL };
    sheaf_damages damages = { .found = sheaf__own_found, .context = &found };
    sheaf_status *st = sheaf__only_memory(sheaf__checkpoint_open_manifest(&checkpoint, dir));
    TRY(st, sheaf_checkpoint_examine(&damages, dir, true)); /* reports the fault */
    st = sheaf__first_of(st, found.st);
    reading r = { c, checkpoint, raw };
    TRY(st, checkpoint != NULL ? note_manifest(c, dir) : NULL);
    for (int s = 0; st == NULL && checkpoint != NULL && s <= checkpoint->manifest->slices; s++)
        st = take_slice(&r, s);
    TRY(st, checkpoint != NULL ? take_progress(&r) : NULL);
    sheaf_checkpoint_close(checkpoint);
    return st;
}

sheaf_status *sheaf__checkpoint_source(sheaf_source **out, sheaf_checkpoint *checkpoint)
{
    sheaf_catalog *catalog = NULL;
    sheaf_status *st = sheaf__catalog_new(&catalog, &sheaf__dialect_own, checkpoint->dir);
    TRY(st, read_folder(catalog, checkpoint->dir, true));
    TRY(st, sheaf__catalog_check(catalog));
    if (st == NULL)
        return sheaf__catalog_source(out, catalog, true);
    sheaf__catalog_free(catalog);
    return st;
}

/* ---- the folder of a run ---- */

/* Unfinished saves: what was there before a moment at which no run was writing, and still is. */
static sheaf_status *note_unfinished(sheaf_catalog *c, const char *path, const char *dir)
{
    char **names = NULL, inner[SHEAF_PATH_SIZE];
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, dir);
    const bool writing = sheaf__checkpoints_busy(path);
    for (int64_t i = 0; st == NULL && !writing && i < n; i++)
        if (sheaf__step_is_partial(names[i]) && sheaf__path_has(dir, names[i], SHEAF_PATH_DIR))
            st = sheaf__warning(c, "stale", sheaf__path_in(inner, dir, names[i]), "",
                                "complete checkpoints", "the next sheaf train --resume removes it",
                                "a save that was never finished");
    sheaf__names_free(names, n);
    return st;
}

/* The newest of OUT/checkpoints, and notes on unfinished saves there. */
static sheaf_status *read_run(sheaf_catalog *c, const char *path)
{
    char dir[SHEAF_PATH_SIZE], *newest = NULL;
    sheaf__path_in(dir, path, "checkpoints");
    sheaf_status *st = note_unfinished(c, path, dir);
    TRY(st, sheaf__step_newest(&newest, &c->held, path));
    if (st == NULL && newest == NULL)
        st = sheaf__defect(c, "missing", dir, "", "a checkpoint", "", "none was saved yet");
    else if (st == NULL)
        st = read_folder(c, newest, false);
    free(newest);
    return st;
}

static sheaf_status *own_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    sheaf_status *st = is_checkpoint(path) || !sheaf__path_has(path, "checkpoints", SHEAF_PATH_DIR)
                           ? read_folder(c, path, false)
                           : read_run(c, path);
    TRY(st, hints->config != NULL ? sheaf__catalog_take_config(c, hints->config) : NULL);
    bool model = false;
    for (int64_t i = 0; i < c->count; i++)
        model = model || c->tensor[i].kind == SHEAF_WEIGHT;
    return st == NULL && model && c->config != NULL
               ? sheaf__catalog_check_model(c, sheaf__catalog_defects(c) > 0)
               : st;
}

const sheaf_dialect sheaf__dialect_own = {
    .name = "sheaf",
    .title = "sheaf",
    .is = own_is,
    .read = own_read,
    .writes = SHEAF_WRITES_MODEL | SHEAF_WRITES_MOMENTS | SHEAF_WRITES_SLICES,
    .whole = true,
    .manifest = true,
};

/* ---- any dialect ---- */

sheaf_status *sheaf__any_read(sheaf_catalog **out, const char *path,
                              const sheaf_dialect_hints *hints)
{
    sheaf_dialect_hints with = hints != NULL ? *hints : (sheaf_dialect_hints){ 0 };
    with.own = &sheaf__dialect_own;
    return sheaf__open(out, path, &with);
}
