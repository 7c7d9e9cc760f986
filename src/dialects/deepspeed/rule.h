/* rule.h - between rule.c, which follows what files state, and infer.c. */
#pragma once

#include "base/regex.h"
#include "dialects/common/partition.h"
#include "dialects/deepspeed/private.h"

typedef struct pattern {
    pcre2_code *code;
    const char *text;
    const sheaf_pickle *value;
} pattern;
typedef struct patterns {
    pattern *at;
    int64_t count;
} patterns;

struct ds_rules {
    ds_reading *r;
    const sheaf_pickle *info; /* of the first rank that has one; NULL = nothing is stated */
    const char *path;         /* its file */
    patterns affine, replicated, average, row, halves, subs, unsupported, vocabulary;
    pcre2_match_data *data;
    pcre2_match_context *context;
    sheaf_schema *cuts; /* of the Llama family, for files that state nothing */
    int64_t calls, costly;
    bool starved;                                       /* a match was denied memory */
    int64_t original_vocab;                             /* -1 */
    int64_t rows, columns, copies, by_shape, by_config; /* inferred: how many tensors */
};

/* The tensor whose rule is being made. */
typedef struct ds_making {
    ds_rules *rules;
    const char *name;
    ds_rule *rule;
    const sheaf_logical **of; /* of each rank; NULL: the rank or the tensor is missing */
    bool refused;             /* a finding says why it cannot be joined */
} ds_making;

/* The first that is there; NULL: none is. */
const sheaf_logical *sheaf__ds_some(const ds_making *m);
/* The size along `axis` in a rank; one that is missing is as wide as the first that is there. */
int64_t sheaf__ds_size(const ds_making *m, int rank, int axis);
/* Are all that are there of one shape, but for `axis` (-1: in all)? */
bool sheaf__ds_same_but(const ds_making *m, int axis);
/* Fills m->of. */
void sheaf__ds_collect(ds_making *m);
/* A finding that says why the tensor cannot be joined. `found` NULL: the shapes. */
sheaf_status *sheaf__ds_refuse(ds_making *m, const char *code, const char *expected,
                               const char *found);
/* A copy in each rank. */
sheaf_status *sheaf__ds_make_copies(ds_making *m);
/* Ranks one after the other along an axis. `cut`: rows from there on are padding; -1 = none. */
sheaf_status *sheaf__ds_make_cut(ds_making *m, int axis, int64_t cut);
/* `nsubs` tensors end to end along `axis`, each divided on its own: width[sub * ranks + rank]. */
sheaf_status *sheaf__ds_make_subs(ds_making *m, int axis, int64_t nsubs, const int64_t *width);
/* By what the files state. */
sheaf_status *sheaf__ds_make_stated(ds_making *m);
/* Have patterns taken longer than any that a program wrote? */
bool sheaf__ds_exhausted(const ds_rules *rules);
