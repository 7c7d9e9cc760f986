/* rule.h - between rule.c, which follows what files state, and infer.c. */
#ifndef SHEAF_DIALECTS_DEEPSPEED_RULE_H
#define SHEAF_DIALECTS_DEEPSPEED_RULE_H

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

/* A rank's tensor; NULL: the rank or the tensor is missing. */
typedef struct ds_local {
    const sheaf_logical *of;
} ds_local;

static inline bool sheaf__ds_add(int64_t *to, int64_t n)
{
    return !__builtin_add_overflow(*to, n, to);
}

/* The first that is there; at least one is. */
const ds_local *sheaf__ds_some(const ds_local *l, int n);
/* Are all that are there of one shape, but for `axis` (-1: in all)? */
bool sheaf__ds_same_but(const ds_local *l, int n, int axis);
/* "[130, 48], [129, 48]" into `text`. */
const char *sheaf__ds_tell_shapes(char text[256], const ds_local *l, int n);
void sheaf__ds_collect(ds_local *l, const ds_rules *rules, const char *name);
/* A finding that says why the tensor cannot be joined. */
sheaf_status *sheaf__ds_refuse(bool *refused, ds_rules *rules, const char *code, const char *name,
                               const char *expected, const char *found);
/* A copy in each rank. */
sheaf_status *sheaf__ds_make_copies(ds_rule *rule, bool *refused, ds_rules *rules, const char *name,
                                    const ds_local *l);
/* Ranks one after the other along an axis. A missing rank is as wide as the first that is there.
 * `cut`: rows from there on are padding; -1 = none. */
sheaf_status *sheaf__ds_make_cut(ds_rule *rule, bool *refused, ds_rules *rules, const char *name,
                                 const ds_local *l, int axis, int64_t cut);
/* `nsubs` tensors end to end along `axis`, each divided on its own: width[sub * ranks + rank]. */
sheaf_status *sheaf__ds_make_subs(ds_rule *rule, bool *refused, ds_rules *rules, const char *name,
                                  const ds_local *l, int axis, int64_t nsubs, const int64_t *width);
/* By what the files state. */
sheaf_status *sheaf__ds_make_stated(ds_rule *rule, bool *refused, ds_rules *rules, const char *name,
                                    const ds_local *l);
/* Have patterns taken longer than any that a program wrote? */
bool sheaf__ds_exhausted(const ds_rules *rules);

#endif
