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
    sheaf_catalog *c; /* what is being made */
    const sheaf_dialect_hints *hints;
    const char *tag; /* folder of the files */
    int64_t nfiles;
    ds_file *file;        /* by what, mp, dp, layer */
    int tp, dp;           /* sizes: as the files say, else as they are counted */
    int64_t step;         /* -1 = not known */
    sheaf_catalog **part; /* tp of them: the tensors of each rank as local pieces; NULL = that rank
                             is missing */
    bool layered; /* parts are put together from layers of a pipeline: names are not those of the
                     files */
    sheaf_schema *schema; /* of a config that was given; NULL = none */
} ds_reading;

/* sheaf__ds_state_name - of the masters (kind 0) or a moment (1, 2) of a parameter; malloc'd, NULL
 * for lack of memory. */
char *sheaf__ds_state_name(int kind, const char *name);
/* sheaf__ds_listed - does a list of texts (buffer_names) hold this one? */
bool sheaf__ds_listed(const sheaf_pickle *names, const char *name);
/* sheaf__ds_parts - fills r->part: masters and moments by the flat groups, or the module where
 * there are none. */
sheaf_status *sheaf__ds_parts(ds_reading *r);
/* sheaf__ds_frozen - the parameter of a model's file, entry i of its frozen_param_shapes, into
 * `part`. */
sheaf_status *sheaf__ds_frozen(ds_reading *r, sheaf_catalog *part, const ds_file *model,
                               const sheaf_pickle *shapes, int64_t i);
sheaf_status *sheaf__ds_layers(ds_reading *r);
sheaf_status *sheaf__ds_zero(ds_reading *r, sheaf_catalog *part, const ds_file *model, int mp);
/* sheaf__ds_plain - the optimizer of stage 0: of 16-bit models its masters, in the place of the
 * module's tensors in `part`, and of all its moments. sheaf__ds_report_masters - notes that masters
 * are the weights. */
sheaf_status *sheaf__ds_plain(ds_reading *r, sheaf_catalog *part, const ds_file *f);
sheaf_status *sheaf__ds_report_masters(ds_reading *r);
/* sheaf__ds_sample - do the first elements of a piece of the masters round to those of the tensor
 * that `stored` is, of the module? -1: not comparable. */
int sheaf__ds_sample(const sheaf_catalog *part, const sheaf_piece *master, int ndim,
                     const sheaf_piece *stored);
/* sheaf__ds_join - what all parts hold, as logical tensors of r->c. */
sheaf_status *sheaf__ds_join(ds_reading *r);
sheaf_status *sheaf__ds_universal(ds_reading *r);
/* sheaf__ds_file_of - NULL when there is none. */
ds_file *sheaf__ds_file_of(const ds_reading *r, ds_what what, int mp, int dp);

/* sheaf__ds_root - the value in a file; NULL where there is no file, or it could not be read. */
const sheaf_pickle *sheaf__ds_root(const ds_file *f);
/* sheaf__ds_tensor - entry i of a dict of tensors of a file that was read: NULL where it is none.
 */
const sheaf_pickle_tensor *sheaf__ds_tensor(const char **name, const ds_file *f,
                                            const sheaf_pickle *dict, int64_t i);
/* sheaf__ds_twin - the name of an entry before `i` with the same elements of the same storage: a
 * tied name; NULL: there is none. */
const char *sheaf__ds_twin(const ds_file *f, const sheaf_pickle *module, int64_t i,
                           const sheaf_pickle_tensor *t);
/* sheaf__ds_range - elements [begin, end) of a tensor, which lie together from first->offset on. */
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
/* sheaf__ds_group - the shapes of group g: param_shapes is a list of groups, or one. NULL: there
 * are no more. */
const sheaf_pickle *sheaf__ds_group(const sheaf_pickle *groups, int64_t g);

static inline bool sheaf__ds_add(int64_t *to, int64_t n)
{
    return !__builtin_add_overflow(*to, n, to);
}

/* ---- rules: how the tensors of the parts lie in the whole one (rule.c) ---- */

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

typedef struct ds_rules ds_rules; /* what was stated, compiled; what was inferred, counted */

sheaf_status *sheaf__ds_rules_new(ds_rules **out, ds_reading *r);
void sheaf__ds_rules_free(ds_rules *rules);
/* sheaf__ds_rule_make - for the tensor of this name. *refused: a finding says why it cannot be
 * joined. */
sheaf_status *sheaf__ds_rule_make(ds_rule *out, bool *refused, ds_rules *rules, const char *name);
void sheaf__ds_rule_release(ds_rule *rule);
/* sheaf__ds_rules_report - a finding for what was inferred. */
sheaf_status *sheaf__ds_rules_report(ds_rules *rules);

/* ---- between rule.c, which follows what files state, and infer.c ---- */

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
    const sheaf_pickle *info; /* of the first rank that has one; NULL = nothing is stated */
    const char *path;         /* its file */
    patterns list[LISTS];
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
/* `nsubs` tensors end to end along `axis`, each divided on its own: width[sub * ranks + rank];
 * NULL: one, of which each rank has as much as it holds. `cut`: rows from there on are padding; -1
 * = none. */
sheaf_status *sheaf__ds_make_subs(ds_making *m, int axis, int64_t nsubs, const int64_t *width,
                                  int64_t cut);
/* One tensor, ranks one after the other. */
static inline sheaf_status *sheaf__ds_make_cut(ds_making *m, int axis, int64_t cut)
{
    return sheaf__ds_make_subs(m, axis, 1, NULL, cut);
}
/* By what the files state. */
sheaf_status *sheaf__ds_make_stated(ds_making *m);
/* Have patterns taken longer than any that a program wrote? */
bool sheaf__ds_exhausted(const ds_rules *rules);
