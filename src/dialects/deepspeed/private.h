/* private.h - between the files of the DeepSpeed reader. */
#pragma once

#include "base/regex.h"
#include "catalog/boxes.h"
#include "dialects/common/dialects.h"
#include "dialects/common/partition.h"
#include "schema/schema.h"

typedef enum ds_what { DS_MODEL, DS_OPTIM, DS_LAYER, DS_EXPERT } ds_what;

typedef struct ds_file {
    ds_what what;
    int mp;             /* XX, or TT of a layer */
    int dp;             /* D; -1 = mp_rank_XX_model_states.pt */
    int layer;          /* NN; -1 */
    char *path;         /* owned */
    sheaf_torch *torch; /* NULL: not opened, or damaged */
} ds_file;

typedef struct ds_reading {
    sheaf_catalog *c; /* the result */
    const sheaf_dialect_hints *hints;
    const char *tag; /* folder of the files */
    int64_t nfiles;
    ds_file *file;        /* by what, mp, dp, layer */
    int tp, dp;           /* sizes stated by the files, else by counting them */
    int64_t step;         /* -1 = not known */
    sheaf_catalog **part; /* tp of them: the tensors of each rank as local pieces; NULL = that rank
                             is missing */
    bool layered; /* parts are assembled from the layers of a pipeline: names are not those of the
                     files */
    sheaf_schema *schema; /* of the config; NULL = none */
} ds_reading;

/* sheaf__ds_state_name - name of the master (kind 0) or a moment (1, 2) of a parameter; malloc'd,
 * NULL: no memory. */
char *sheaf__ds_state_name(int kind, const char *name);
/* sheaf__ds_listed - does a list of strings (buffer_names) contain this one? */
bool sheaf__ds_listed(const sheaf_pickle *names, const char *name);
/* sheaf__ds_parts - fills r->part: masters and moments from the flat groups, or the module's
 * weights without these. */
sheaf_status *sheaf__ds_parts(ds_reading *r);
/* sheaf__ds_frozen - adds entry i of the frozen_param_shapes of a model's file to `part`. */
sheaf_status *sheaf__ds_frozen(ds_reading *r, sheaf_catalog *part, const ds_file *model,
                               const sheaf_pickle *shapes, int64_t i);
sheaf_status *sheaf__ds_layers(ds_reading *r);
sheaf_status *sheaf__ds_zero(ds_reading *r, sheaf_catalog *part, const ds_file *model, int mp);
/* sheaf__ds_plain - reads the optimizer of stage 0: its moments, and for 16-bit models its masters,
 * which replace the module's tensors in `part`. sheaf__ds_report_masters - notes that masters are
 * used as the weights. */
sheaf_status *sheaf__ds_plain(ds_reading *r, sheaf_catalog *part, const ds_file *f);
sheaf_status *sheaf__ds_report_masters(ds_reading *r);
/* sheaf__ds_sample - do the first elements of a piece of a master round to those of the module's
 * tensor `stored`? -1: not comparable. */
int sheaf__ds_sample(const sheaf_catalog *part, const sheaf_piece *master, int ndim,
                     const sheaf_piece *stored);
/* sheaf__ds_join - joins the tensors of all parts as logical tensors of r->c. */
sheaf_status *sheaf__ds_join(ds_reading *r);
sheaf_status *sheaf__ds_universal(ds_reading *r);
/* sheaf__ds_file_of - NULL when there is none. */
ds_file *sheaf__ds_file_of(const ds_reading *r, ds_what what, int mp, int dp);

/* sheaf__ds_root - the root value of a file; NULL if it is missing or could not be read. */
const sheaf_pickle *sheaf__ds_root(const ds_file *f);
/* sheaf__ds_tensor - entry i of a dict of a file; NULL if it is no tensor. */
const sheaf_pickle_tensor *sheaf__ds_tensor(const char **name, const ds_file *f,
                                            const sheaf_pickle *dict, int64_t i);
/* sheaf__ds_twin - the name of an earlier entry with the same elements of the same storage, which
 * is tied; NULL: none. */
const char *sheaf__ds_twin(const ds_file *f, const sheaf_pickle *module, int64_t i,
                           const sheaf_pickle_tensor *t);
/* sheaf__ds_range - adds elements [begin, end) of a tensor, contiguous from first->offset on. */
sheaf_status *sheaf__ds_range(sheaf_catalog *c, sheaf_logical *t, const sheaf_piece *first,
                              int64_t begin, int64_t end);

/* An entry of param_shapes or frozen_param_shapes. */
typedef struct ds_param {
    const char *name;
    int ndim;
    int64_t shape[SHEAF_PICKLE_MAX_DIMS], elements;
} ds_param;
sheaf_status *sheaf__ds_param(ds_param *out, const ds_file *f, const sheaf_pickle *shapes,
                              int64_t i);
/* sheaf__ds_group - the shapes of group g: param_shapes is a list of groups, or a single group.
 * NULL: no more. */
const sheaf_pickle *sheaf__ds_group(const sheaf_pickle *groups, int64_t g);

static inline bool sheaf__ds_add(int64_t *to, int64_t n)
{
    return !__builtin_add_overflow(*to, n, to);
}

/* ---- rules: the places of the parts' tensors in the whole tensor (rule.c) ---- */

typedef struct ds_move {
    int64_t from[SHEAF_CATALOG_MAX_DIMS], size[SHEAF_CATALOG_MAX_DIMS], to[SHEAF_CATALOG_MAX_DIMS];
} ds_move;
typedef struct ds_rank_moves {
    ds_move *at;
    int64_t count, capacity;
} ds_rank_moves;

typedef struct ds_rule {
    int ndim;
    int64_t shape[SHEAF_CATALOG_MAX_DIMS]; /* of the whole tensor */
    bool replicated;
    int nranks;
    ds_rank_moves *rank;
} ds_rule;

typedef struct ds_rules ds_rules; /* compiled patterns of the files, and counts of inferences */

sheaf_status *sheaf__ds_rules_new(ds_rules **out, ds_reading *r);
void sheaf__ds_rules_free(ds_rules *rules);
/* sheaf__ds_rule_make - makes the rule of the tensor with this name. *refused: it cannot be joined,
 * which is a finding. */
sheaf_status *sheaf__ds_rule_make(ds_rule *out, bool *refused, ds_rules *rules, const char *name);
void sheaf__ds_rule_release(ds_rule *rule);
/* sheaf__ds_rules_report - a finding for inferred rules. */
sheaf_status *sheaf__ds_rules_report(ds_rules *rules);

/* ---- between rule.c, which follows the files' statements, and infer.c ---- */

typedef struct pattern {
    pcre2_code *code;
    const char *text;
    const sheaf_pickle *value;
} pattern;
typedef struct patterns {
    pattern *at;
    int64_t count, capacity;
} patterns;

/* The lists of universal_checkpoint_info. */
enum { UNSUPPORTED, REPLICATED, AVERAGE, HALVES, ROW, VOCABULARY, AFFINE, SUBS, LISTS };

struct ds_rules {
    ds_reading *r;
    const sheaf_pickle
        *info;        /* universal_checkpoint_info of the first rank that has it; NULL = none */
    const char *path; /* its file */
    patterns list[LISTS];
    pcre2_match_data *data;
    pcre2_match_context *context;
    sheaf_schema *cuts; /* of the Llama family, for files without statements */
    int64_t calls, costly;
    bool starved;                                       /* a match failed for lack of memory */
    int64_t original_vocab;                             /* -1 */
    int64_t rows, columns, copies, by_shape, by_config; /* counts of tensors with inferred rules */
};

/* The tensor whose rule is being made. */
typedef struct ds_making {
    ds_rules *rules;
    const char *name;
    ds_rule *rule;
    const sheaf_logical **of; /* [ranks]; NULL: the rank or the tensor is missing */
    bool refused;             /* cannot be joined, which is a finding */
} ds_making;

/* The first rank's tensor that exists; NULL: none. */
const sheaf_logical *sheaf__ds_some(const ds_making *m);
/* The size along `axis` in a rank; a missing rank is assumed to be like the first that exists. */
int64_t sheaf__ds_size(const ds_making *m, int rank, int axis);
/* Are all existing tensors of one shape, apart from `axis` (-1: none)? */
bool sheaf__ds_same_but(const ds_making *m, int axis);
/* Fills m->of. */
void sheaf__ds_collect(ds_making *m);
/* Reports why the tensor cannot be joined. `found` NULL: the shapes. */
sheaf_status *sheaf__ds_refuse(ds_making *m, const char *code, const char *expected,
                               const char *found);
/* The rule: a copy in each rank. */
sheaf_status *sheaf__ds_make_copies(ds_making *m);
/* The rule: `nsubs` tensors end to end along `axis`, each divided on its own: width[sub * ranks +
 * rank]; NULL: one, divided by the ranks' sizes. `cut`: rows from there on are padding; -1 =
 * none. */
sheaf_status *sheaf__ds_make_subs(ds_making *m, int axis, int64_t nsubs, const int64_t *width,
                                  int64_t cut);
/* The rule: one tensor, the ranks in order. */
static inline sheaf_status *sheaf__ds_make_cut(ds_making *m, int axis, int64_t cut)
{
    return sheaf__ds_make_subs(m, axis, 1, NULL, cut);
}
/* The rule that the files state. */
sheaf_status *sheaf__ds_make_stated(ds_making *m);
/* Have patterns exceeded the limits on matches? */
bool sheaf__ds_exhausted(const ds_rules *rules);
