/* deepspeed.c - checkpoints of DeepSpeed: ZeRO stages 0 to 3, AutoTP, pipeline layers, universal.
 *
 *   latest                                         text: the tag, "global_step3"
 *   TAG/mp_rank_XX_model_states.pt                 the module of tensor-parallel rank XX; names,
 *                                                  shapes, sizes
 *   TAG/zero_pp_rank_D_mp_rank_XX_model_states.pt  the same under ZeRO 3, whose module is empty
 *   TAG/[bf16_|fp16_]zero_pp_rank_D_mp_rank_XX_optim_states.pt
 *                                                  data-parallel part D of the float32 masters and
 *                                                  moments, flat
 *   TAG/layer_NN[-model_TT]-model_states.pt        a layer of a pipeline
 *   TAG/zero/NAME/{fp32,exp_avg,exp_avg_sq,step}.pt  universal: a parameter, whole
 *
 * docs/dialect-deepspeed.md has the layout, what is inferred and what is refused. This file finds
 * the files of the folder, and the numbers that they agree on. */
#include "dialects/common/dialects.h"

#include <ctype.h>

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/model.h"
#include "dialects/common/save.h"
#include "dialects/deepspeed/private.h"

enum {
    MAX_ENTRIES = 65536,  /* of one list or dict */
    MAX_STEPS = 10000000, /* entries of a file's first levels */
    MAX_CLAIM = 64,       /* stated ranks are plausible up to this times the number of files */
};

/* ---- names of files ---- */

/* Parses a file name of the tag's folder; false for other files. */
static bool read_name(ds_file *f, const char *name)
{
    *f = (ds_file){ .dp = -1, .layer = -1 };
    const char *at = name;
    if (sheaf__take_word(&at, "layer_")) {
        f->what = DS_LAYER;
        if (!sheaf__take_number(&f->layer, &at))
            return false;
        if (sheaf__take_word(&at, "_expert_")) {
            f->what = DS_EXPERT;
            return true;
        }
        if (sheaf__take_word(&at, "-model_") && isdigit((unsigned char)*at) &&
            (!sheaf__take_number(&f->mp, &at) || !sheaf__take_word(&at, "-model_")))
            return false;
        return strcmp(at, "states.pt") == 0 || strcmp(at, "-model_states.pt") == 0;
    }
    if (strncmp(name, "expert_", 7) == 0 && strstr(name, "_states.pt") != NULL) {
        f->what = DS_EXPERT;
        return true;
    }
    if (!sheaf__take_word(&at, "bf16_"))
        sheaf__take_word(&at, "fp16_");
    if (sheaf__take_word(&at, "zero_pp_rank_") &&
        (!sheaf__take_number(&f->dp, &at) || !sheaf__take_word(&at, "_")))
        return false;
    if (!sheaf__take_word(&at, "mp_rank_") || !sheaf__take_number(&f->mp, &at))
        return false;
    f->what = strcmp(at, "_optim_states.pt") == 0 ? DS_OPTIM : DS_MODEL;
    return strcmp(at, "_optim_states.pt") == 0 ? f->dp >= 0 : strcmp(at, "_model_states.pt") == 0;
}

static int by_place(const void *a, const void *b)
{
    const ds_file *x = a, *y = b;
    const int order[4] = { (int)x->what - (int)y->what, x->layer - y->layer, x->mp - y->mp,
                           x->dp - y->dp };
    for (int i = 0; i < 4; i++)
        if (order[i] != 0)
            return order[i];
    return strcmp(x->path, y->path);
}

/* ---- is it one? ---- */

static bool is_ours(const char *name)
{
    ds_file f;
    return read_name(&f, name) && f.what != DS_EXPERT;
}

/* The tag's folder for a folder with `latest`; false: no `latest`, or not a folder's name in it. */
static bool by_latest(char dir[SHEAF_PATH_SIZE], const char *path)
{
    static const char *const names[] = { "latest", "latest_universal" };
    bool named = false;
    for (int i = 0; i < 2 && !named; i++) {
        char *tag = NULL;
        sheaf_status_free(sheaf__tracker_read(&tag, path, names[i]));
        named = tag != NULL && *tag != '\0' && strchr(tag, '/') == NULL && strcmp(tag, ".") != 0 &&
                strcmp(tag, "..") != 0;
        if (named)
            sheaf__path_in(dir, path, tag);
        free(tag);
    }
    return named;
}

static bool is_tag(const char *dir)
{
    return (strstr(dir, "universal") != NULL && sheaf__path_has(dir, "zero", SHEAF_PATH_NONE)) ||
           (sheaf__path_kind(dir) == SHEAF_PATH_DIR && sheaf__holds_file(dir, is_ours));
}

static bool deepspeed_is(const char *path)
{
    ds_file f;
    char dir[SHEAF_PATH_SIZE];
    const sheaf_path_kind kind = sheaf__path_kind(path);
    if (kind == SHEAF_PATH_FILE)
        return read_name(&f, sheaf__last_part(path)) && is_tag(sheaf__path_above(dir, path));
    return kind == SHEAF_PATH_DIR && is_tag(by_latest(dir, path) ? dir : path);
}

/* ---- finding the files ---- */

/* r->tag: of a file its folder, of a folder with `latest` what that names, else the folder
 * itself. */
static sheaf_status *find_tag(ds_reading *r, char dir[SHEAF_PATH_SIZE], const char *path)
{
    r->tag = sheaf__path_kind(path) == SHEAF_PATH_FILE ? sheaf__path_above(dir, path)
             : by_latest(dir, path)                    ? dir
                                                       : path;
    if (sheaf__path_kind(r->tag) == SHEAF_PATH_DIR)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s", r->tag),
                                      "the folder that %s/latest names", path),
                       "no such folder");
}

static sheaf_status *find_files(ds_reading *r)
{
    char **names = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, r->tag);
    if (st == NULL && (r->file = calloc((size_t)n + 1, sizeof *r->file)) == NULL)
        st = sheaf__no_memory(r->tag);
    for (int64_t i = 0; st == NULL && i < n; i++) {
        ds_file f;
        if (read_name(&f, names[i])) {
            st = sheaf__path_join(&f.path, r->tag, names[i]);
            if (st == NULL)
                r->file[r->nfiles++] = f;
        } else if (sheaf__ends_with(names[i], ".pt")) {
            char path[SHEAF_PATH_SIZE];
            st = sheaf__note(r->c, "foreign", sheaf__path_in(path, r->tag, names[i]), "",
                             "files that DeepSpeed writes", "",
                             "a file of another name; it is not read");
        }
    }
    sheaf__names_free(names, n);
    if (st == NULL && r->nfiles > 1)
        qsort(r->file, (size_t)r->nfiles, sizeof *r->file, by_place);
    return st;
}

/* A second file for one place (zero_pp_... beside bf16_zero_pp_...) is not used. */
static sheaf_status *check_twice(ds_reading *r)
{
    sheaf_status *st = NULL;
    int64_t kept = 0;
    for (int64_t i = 0; i < r->nfiles; i++) {
        ds_file *f = &r->file[i], *last = kept > 0 ? &r->file[kept - 1] : NULL;
        if (last != NULL && last->what == f->what && last->mp == f->mp && last->dp == f->dp &&
            last->layer == f->layer) {
            TRY(st, sheaf__defect(r->c, "duplicate", f->path, "", "one file for each part", "",
                                  "%s is the same part", last->path));
            free(f->path);
            continue;
        }
        r->file[kept++] = *f;
    }
    r->nfiles = kept;
    return st;
}

/* The zip file has the name that it was written under: finds parts renamed to another part's
 * name. */
static sheaf_status *check_stem(ds_reading *r, const ds_file *f)
{
    char stem[128], name[160];
    ds_file was;
    sheaf__torch_stem(stem, f->path);
    snprintf(name, sizeof name, "%s.pt", stem);
    r->c->by_names = r->c->by_names || stem[0] == '\0';
    if (stem[0] == '\0' || !read_name(&was, name) ||
        (was.what == f->what && was.mp == f->mp && was.dp == f->dp && was.layer == f->layer))
        return NULL;
    return sheaf__defect(r->c, "conflict", f->path, "", "a file that was saved under this name",
                         "give the parts back the names they were saved under",
                         "it was saved as %s", name);
}

/* Does a list or dict in the first levels hold more entries than any model needs? Bounds what the
 * readers walk. */
static bool crowded(const sheaf_pickle *value, int depth, int64_t *steps)
{
    const int64_t n = sheaf__pickle_count(value);
    if (n > MAX_ENTRIES || (*steps -= n) < 0)
        return true;
    for (int64_t i = 0; i < n && depth > 0; i++)
        if (crowded(sheaf__pickle_is(value, SHEAF_PICKLE_DICT) ? sheaf__pickle_value(value, i)
                                                               : sheaf__pickle_item(value, i),
                    depth - 1, steps))
            return true;
    return false;
}

static sheaf_status *open_one(ds_reading *r, ds_file *f)
{
    int64_t steps = MAX_STEPS;
    sheaf_status *st = sheaf__torch_open(&f->torch, f->path);
    if (st == NULL)
        sheaf__torch_close_file(f->torch);
    if (st == NULL && !crowded(f->torch->doc->root, 4, &steps))
        return check_stem(r, f);
    if (st == NULL) {
        sheaf__torch_close(f->torch);
        f->torch = NULL;
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", f->path), "at most %d tensors",
                            MAX_ENTRIES);
    }
    return sheaf__catalog_defect(r->c, f->path, st);
}

static sheaf_status *open_files(ds_reading *r)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < r->nfiles; i++) {
        ds_file *f = &r->file[i];
        if (f->what == DS_EXPERT) {
            st = sheaf__defect(r->c, "unsupported", f->path, "", "layers without experts", "",
                               "a file of experts (mixture of experts)");
            continue;
        }
        st = open_one(r, f);
    }
    return st;
}

/* ---- agreement of the files ---- */

static bool says(int64_t *value, const ds_file *f, const char *key)
{
    return sheaf__pickle_int(value, sheaf__pickle_get(sheaf__ds_root(f), key));
}

/* The value that most model files give for `key`; files that give another get a finding `code`. -1:
 * none gives any. */
static sheaf_status *agree(int64_t *out, ds_reading *r, const char *key, const char *code,
                           const char *what)
{
    int64_t value, other, votes = 0;
    sheaf_status *st = NULL;
    *out = -1;
    for (int64_t i = 0; i < r->nfiles; i++) {
        int64_t n = 0;
        if (!says(&value, &r->file[i], key) || value < 0)
            continue;
        for (int64_t j = 0; j < r->nfiles; j++)
            n += says(&other, &r->file[j], key) && other == value;
        if (n > votes || (n == votes && value > *out)) {
            *out = value;
            votes = n;
        }
    }
    for (int64_t i = 0; st == NULL && i < r->nfiles; i++) {
        char expected[96];
        if (!says(&value, &r->file[i], key) || value == *out)
            continue;
        snprintf(expected, sizeof expected, "%s %" PRId64 ", as in the other parts", what, *out);
        st = sheaf__defect(r->c, code, r->file[i].path, "", expected,
                           "put the part of the same save here", "%s %" PRId64, what, value);
    }
    return st;
}

/* The step in a default tag of DeepSpeed; -1: none. */
static int64_t step_of_tag(const char *tag)
{
    const char *rest = "";
    const int64_t n = sheaf__step_of_name(&rest, tag, "global_step");
    return *rest != '\0' && strcmp(rest, "_universal") != 0 ? -1 : n;
}

static sheaf_status *check_step(ds_reading *r)
{
    sheaf_status *st = agree(&r->step, r, "global_steps", "stale", "step");
    const int64_t named = step_of_tag(r->tag);
    if (st == NULL && named >= 0 && r->step >= 0 && named != r->step)
        st = sheaf__defect(r->c, "stale", r->tag, "", "files of the step in the folder's name", "",
                           "files of step %" PRId64, r->step);
    if (r->step < 0)
        r->step = named;
    r->c->step = r->step;
    return st;
}

/* Ranks in file names, and ranks stated by the files; the larger number, if plausible, is
 * expected. */
static sheaf_status *check_sizes(ds_reading *r)
{
    static const char every[] = "every part of the save";
    int64_t tp, dp, pp = -1;
    int most_mp = -1, most_dp = -1;
    bool zero3 = false, layers = false;
    sheaf_status *st = agree(&tp, r, "mp_world_size", "conflict", "model-parallel size");
    TRY(st, agree(&dp, r, "dp_world_size", "conflict", "data-parallel size"));
    for (int64_t i = 0; i < r->nfiles; i++) {
        const ds_file *f = &r->file[i];
        most_mp = f->what != DS_EXPERT && f->mp > most_mp ? f->mp : most_mp;
        most_dp = f->what != DS_LAYER && f->dp > most_dp ? f->dp : most_dp;
        zero3 |= f->what == DS_MODEL && f->dp >= 0;
        layers |= f->what == DS_LAYER;
        sheaf__pickle_int(&pp,
                          sheaf__pickle_path(sheaf__ds_root(f), "checkpoint_parallel_dimensions",
                                             "pp_degree", NULL));
    }
    if (st != NULL)
        return st;
    r->tp = tp > 0 && tp <= MAX_CLAIM * (int64_t)(most_mp + 1) ? (int)tp : most_mp + 1;
    r->dp = dp > 0 && dp <= MAX_CLAIM * (int64_t)(most_dp < 0 ? 1 : most_dp + 1) ? (int)dp
            : most_dp >= 0                                                       ? most_dp + 1
                                                                                 : 0;
    if (tp > r->tp || dp > r->dp)
        st = sheaf__defect(
            r->c, "conflict", r->tag, "", "sizes that the number of files makes believable", "",
            "%" PRId64 " model-parallel and %" PRId64 " data-parallel parts are stated", tp, dp);
    if (st == NULL && most_mp >= r->tp && !layers) {
        st = sheaf__defect(r->c, "conflict", r->tag, "", "as many parts as the files say", "",
                           "mp_rank_%02d in a save of %d model-parallel parts", most_mp, r->tp);
        r->tp = most_mp + 1;
    }
    if (st == NULL && most_dp >= r->dp) {
        st = sheaf__defect(r->c, "conflict", r->tag, "", "as many parts as the files say", "",
                           "zero_pp_rank_%d in a save of %d data-parallel parts", most_dp, r->dp);
        r->dp = most_dp + 1;
    }
    r->c->tp = r->tp;
    r->c->dp = r->dp;
    r->c->pp = pp > 0 && pp < SHEAF__MOST_RANKS ? (int)pp : 1;
    if (layers)
        return st; /* mp_rank then counts stages too */
    for (int mp = 0; mp < r->tp; mp++)
        for (int d = zero3 ? 0 : -1; st == NULL && d < (zero3 ? r->dp : 0); d++) {
            char share[32] = "";
            if (zero3)
                snprintf(share, sizeof share, "zero_pp_rank_%d_", d);
            if (sheaf__ds_file_of(r, DS_MODEL, mp, d) == NULL)
                st = sheaf__missing_file(r->c, "", every, "%s/%smp_rank_%02d_model_states.pt",
                                         r->tag, share, mp);
        }
    return st;
}

/* ---- the model's config ---- */

/* Beside the tag or in its folder. */
static sheaf_status *find_config(ds_reading *r)
{
    char above[SHEAF_PATH_SIZE], top[SHEAF_PATH_SIZE];
    sheaf__path_in(above, r->tag, "..");
    const char *const dirs[] = { r->tag, above, sheaf__path_in(top, above, ".."), NULL };
    return sheaf__catalog_read_model(&r->schema, r->c, r->hints, dirs);
}

/* ---- all of it ---- */

static void release(ds_reading *r)
{
    for (int64_t i = 0; i < r->nfiles; i++) {
        free(r->file[i].path);
        sheaf__torch_close(r->file[i].torch);
    }
    for (int i = 0; r->part != NULL && i < r->tp; i++)
        sheaf__catalog_free(r->part[i]);
    free(r->part);
    free(r->file);
    sheaf_schema_free(r->schema);
}

static sheaf_status *read_all(ds_reading *r)
{
    sheaf_status *st = open_files(r);
    TRY(st, check_step(r));
    TRY(st, find_config(r));
    if (st == NULL && sheaf__path_has(r->tag, "zero", SHEAF_PATH_DIR))
        st = sheaf__ds_universal(r);
    else if (st == NULL && r->nfiles == 0)
        st = sheaf__defect(r->c, "missing", r->tag, "", "mp_rank_XX_model_states.pt and the like",
                           "", "no such file in this folder");
    else {
        TRY(st, check_sizes(r));
        TRY(st, sheaf__ds_parts(r));
        TRY(st, sheaf__ds_join(r));
    }
    return st;
}

static sheaf_status *deepspeed_read(sheaf_catalog *c, const char *path,
                                    const sheaf_dialect_hints *hints)
{
    ds_reading r = { .c = c, .hints = hints, .step = -1 };
    char dir[SHEAF_PATH_SIZE];
    sheaf_status *st = find_tag(&r, dir, path);
    TRY(st, find_files(&r));
    TRY(st, check_twice(&r));
    TRY(st, read_all(&r));
    TRY(st, sheaf__catalog_recognise(c));
    release(&r);
    return st;
}

const sheaf_dialect sheaf__dialect_deepspeed = {
    .name = "deepspeed",
    .title = "DeepSpeed (ZeRO, AutoTP, universal)",
    .is = deepspeed_is,
    .read = deepspeed_read,
    .training = true,
};
