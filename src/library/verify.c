/* verify.c - what is wrong with a checkpoint: sheaf/checkpoint.h. */
#include <stdlib.h>

#include "base/status.h"
#include "base/cores.h"
#include "base/inside.h"
#include "library/take.h"
#include "library/verify_all.h"
#include "sheaf/checkpoint.h"

sheaf_status *sheaf_weights_verify(sheaf_verification **out, const char *path,
                                   const sheaf_weights_verify_options *options)
{
    SHEAF__INSIDE;
    sheaf_weights_verify_options o;
    sheaf_verification *v = NULL;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_weights_verify_options");
    *out = NULL;
    if (st == NULL && path == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_weights_verify"), "a path");
    TRY(st, sheaf__take_count("sheaf_weights_verify_options", "threads", o.threads,
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
    sheaf_status *st = sheaf__take_report(facts, "sheaf_verification_facts");
    if (st == NULL)
        sheaf__give_report(facts,
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
                                                        .partial = r->untold,
                                                        .adapter = c->dialect->adapter,
                                                        .title = c->dialect->title,
                                                        .dtypes = r->of },
                           sizeof *facts);
    return st;
}

sheaf_status *sheaf_weights_joint(bool *joint, const char *const *paths, int count,
                                  const sheaf_weights_verify_options *options)
{
    SHEAF__INSIDE;
    sheaf_weights_verify_options o;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_weights_verify_options");
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
