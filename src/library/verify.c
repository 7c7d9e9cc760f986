/* verify.c - verifies a checkpoint: sheaf/checkpoint.h. */
#include "base/base.h"
#include "base/thread.h"
#include "base/numeric_env.h"
#include "library/structs.h"
#include "library/verify_all.h"
#include "sheaf/checkpoint.h"
#include "base/file.h"
#include "checkpoint/merge/merge.h"
#include "checkpoint/tools/verify.h"
#include "dialects/open.h"
#include "infer/codec.h"
#include "models/open.h"
#include "library/generation_config.h"

sheaf_status *sheaf_weights_verify(sheaf_verification **out, const char *path,
                                   const sheaf_weights_verify_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_weights_verify_options o;
    sheaf_verification *v = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_weights_verify_options");
    *out = NULL;
    if (st == NULL && path == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_weights_verify"), "a path");
    TRY(st, sheaf__check_count("sheaf_weights_verify_options", "threads", o.threads,
                               SHEAF__MOST_THREADS));
    if (st == NULL && (v = calloc(1, sizeof *v)) == NULL)
        st = sheaf__no_memory(path);
    o.threads = sheaf__cores(o.threads);
    TRY(st, sheaf__verify_all(&v->report, path, &o));
    if (st == NULL)
        *out = v;
    else
        sheaf_verification_free(v);
    return st;
}

sheaf_status *sheaf_verification_info(sheaf_verification_facts *facts, const sheaf_verification *v)
{
    const sheaf_verify_report *r = &v->report;
    const sheaf_catalog *c = r->catalog;
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_verification_facts");
    if (st == NULL)
        sheaf__struct_fill(facts,
                           &(sheaf_verification_facts){ .path = c->root,
                                                        .dialect = c->dialect->name,
                                                        .model = c->model,
                                                        .config = c->config_path,
                                                        .tp = c->tp,
                                                        .pp = c->pp,
                                                        .dp = c->dp,
                                                        .step = c->step,
                                                        .vocab = c->vocab,
                                                        .padded_vocab = c->padded_vocab,
                                                        .tensors = r->tensors,
                                                        .elements = r->elements,
                                                        .bytes = r->bytes,
                                                        .lora = r->factors,
                                                        .moments = r->moments,
                                                        .read = r->read,
                                                        .sound = sheaf_verify_sound(r),
                                                        .full = r->full,
                                                        .partial = r->ranks_unknown,
                                                        .adapter = c->dialect->adapter,
                                                        .title = c->dialect->title,
                                                        .dtypes = r->of,
                                                        .quantization = r->forms },
                           sizeof *facts);
    return st;
}

sheaf_status *sheaf_weights_joint(bool *joint, const char *const *paths, int count,
                                  const sheaf_weights_verify_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_weights_verify_options o;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_weights_verify_options");
    *joint = false;
    return st == NULL ? sheaf_verify_joint(joint, paths, count, &o) : st;
}

bool sheaf_verification_sound(const sheaf_verification *v)
{
    return sheaf_verify_sound(&v->report);
}

int64_t sheaf_verification_count(const sheaf_verification *v)
{
    return v->report.catalog->nfindings;
}

const sheaf_finding *sheaf_verification_finding(const sheaf_verification *v, int64_t index)
{
    const sheaf_catalog *c = v->report.catalog;
    return index < 0 || index >= c->nfindings ? NULL : &c->finding[index];
}

void sheaf_verification_free(sheaf_verification *v)
{
    if (v != NULL)
        sheaf_verify_release(&v->report);
    free(v);
}

/* ---- files beside the weights: verify_all.h ---- */

/* The file of the folder in a status, in `path`; NULL: none. */
static const char *find_file(char path[SHEAF_PATH_SIZE], const char *folder,
                             const sheaf_status *about)
{
    static const char *const names[] = { "tokenizer.json",         "tokenizer.model",
                                         "tokenizer_config.json",  "special_tokens_map.json",
                                         "added_tokens.json",      "chat_template.jinja",
                                         "generation_config.json", "config.json" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(sheaf_status_where(about), sheaf__path_in(path, folder, names[i])) != NULL)
            return path;
    return NULL;
}

/* Turns the error of a file beside the weights into a finding; takes over `bad`. A file without
 * permission is not damaged. */
static sheaf_status *tell(sheaf_catalog *c, const char *folder, sheaf_status *bad)
{
    char path[SHEAF_PATH_SIZE];
    if (bad == NULL || sheaf_status_code(bad) == SHEAF_E_MEMORY)
        return bad;
    const char *file = find_file(path, folder, bad);
    sheaf_status *st = NULL;
    if (sheaf_status_code(bad) == SHEAF_E_IO && file != NULL)
        st = sheaf__dialect_denied(file, NULL);
    if (st != NULL)
        sheaf_status_free(bad);
    else {
        if (*sheaf_status_try(bad) == '\0')
            sheaf_try_this(bad, "correct it, or copy it again from where the model came from");
        st = sheaf__catalog_defect(c, file != NULL ? file : folder, bad);
    }
    return st;
}

/* ---- the tokenizer ---- */

static sheaf_status *open_wording(const sheaf_config *config, const char *folder, bool strict)
{
    sheaf__codec w;
    sheaf_status *st = sheaf__codec_open(
        &w, config, &(sheaf__codec_options){ .folder = folder, .strict = strict });
    sheaf__codec_close(&w);
    return st;
}

/* Is it a tokenizer that sheaf does not read, or of another model, and not one that is damaged? */
static bool is_other_kind(const char *folder, const sheaf_status *bad)
{
    char path[SHEAF_PATH_SIZE];
    return sheaf_status_code(bad) == SHEAF_E_UNSUPPORTED ||
           /* a vocab.json alone; more tokens than the model has rows */
           (find_file(path, folder, bad) == NULL &&
            (sheaf_status_code(bad) == SHEAF_E_IO || sheaf_status_code(bad) == SHEAF_E_LAYOUT));
}

static sheaf_status *note_kind(sheaf_catalog *c, const char *folder, const sheaf_status *bad)
{
    const char *expected = sheaf_status_expected(bad), *found = sheaf_status_found(bad);
    return sheaf__note(c, "unsupported", folder, "", "a tokenizer that sheaf reads",
                       "give another with `tokenizer PATH`, or token ids", "%s%s%s%s%s",
                       sheaf_status_where(bad), *expected != '\0' ? ": expected " : "", expected,
                       *found != '\0' ? ": " : "", found);
}

static sheaf_status *check_tokenizer(sheaf_catalog *c, const sheaf_config *config,
                                     const char *folder)
{
    sheaf_status *bad = open_wording(config, folder, true), *st = NULL;
    if (bad == NULL || sheaf_status_code(bad) == SHEAF_E_MEMORY)
        return bad;
    bool other = is_other_kind(folder, bad);
    if (other) {
        sheaf_status *without = open_wording(config, folder, false);
        other = without == NULL;
        if (without != NULL && sheaf_status_code(without) == SHEAF_E_MEMORY)
            st = without;
        else
            sheaf_status_free(without);
    }
    if (st == NULL && !other)
        return tell(c, folder, bad);
    TRY(st, note_kind(c, folder, bad));
    sheaf_status_free(bad);
    return st;
}

/* ---- an adapter and its base ---- */

/* Checks of merge with the base; without a base, those of an adapter alone. */
static sheaf_status *check_adapter(sheaf_catalog *c, const sheaf_weights_verify_options *how)
{
    sheaf_lora_options options;
    bool held = false;
    if (sheaf__catalog_defects(c) > 0 || c->config_path == NULL)
        return NULL;
    sheaf_status *st = sheaf_lora_options_read(&options, c->config_path, NULL);
    if (st != NULL) /* it was read before */
        return st;
    const char *base = how->base != NULL ? how->base : options.base_name;
    sheaf_status *wrong = NULL;
    if (base != NULL && !how->quick && sheaf__path_kind(base) == SHEAF_PATH_DIR)
        wrong = sheaf_merge_fits(&held, base, c->root);
    const bool reported = wrong != NULL && sheaf_status_code(wrong) != SHEAF_E_UNSUPPORTED;
    if (!reported && (!held || wrong != NULL)) /* none, or one that merge does not support */
        st = sheaf__verify_alone(c, &options);
    if (wrong != NULL && sheaf_status_code(wrong) == SHEAF_E_LAYOUT)
        st = sheaf__catalog_defect(c, c->root, sheaf_in(wrong, "with the base %s", base));
    else if (wrong != NULL && sheaf_status_code(wrong) == SHEAF_E_MEMORY)
        st = wrong;
    else if (wrong == NULL && held && how->base != NULL)
        st = sheaf__catalog_defect(c, c->root,
                                   sheaf__adapters_base(base, NULL, SHEAF_QUANTIZE_NONE,
                                                        (const char *const[]){ c->root }, 1,
                                                        how->events));
    else
        sheaf_status_free(wrong); /* reported already */
    sheaf_lora_options_release(&options);
    return st;
}

/* ---- the whole ---- */

/* Only models whose config sheaf knows. */
static sheaf_status *check_beside(sheaf_catalog *c, const char *folder)
{
    sheaf__generation_config generation;
    sheaf_config config;
    sheaf_status *st = sheaf__open_config(&config, c);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    if (st != NULL) { /* the reader reports it where it matters */
        sheaf_status_free(st);
        return NULL;
    }
    st = check_tokenizer(c, &config, folder);
    TRY(st, tell(c, folder, sheaf__generation_config_read(&generation, folder, NULL)));
    sheaf_config_release(&config);
    return st;
}

sheaf_status *sheaf__verify_all(sheaf_verify_report *report, const char *path,
                                const sheaf_weights_verify_options *options)
{
    sheaf_status *st = sheaf_verify(report, path, options);
    const sheaf_catalog *c = report->catalog;
    if (st != NULL || c->dialect->manifest || /* with the base's tokenizer */
        sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return st;
    if (c->dialect->adapter)
        return check_adapter(report->catalog, options);
    return check_beside(report->catalog, path);
}
