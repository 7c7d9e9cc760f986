/* parts.h - the files of a SAT checkpoint, found and opened; shared by the files of the dialect.
 *
 *   SAVE/latest                                   the step in decimal, or "release"; no newline
 *   SAVE/model_config.json                        written by rank 0 alone
 *   SAVE/STEP/mp_rank_00_model_states.pt ...      one for each model-parallel rank
 *
 * Each rank appends its own clock, "-MM-DD-HH-MM", to the name of SAVE, so that the parts of one
 * save may lie in folders that differ in the stamp alone, and only the folder of rank 0 has the
 * config. */
#pragma once

#include "base/base.h"
#include "dialects/common/dialects.h"
#include "formats/torch.h"
#include "schema/family.h"

#define SHEAF_SAT_MOST_RANKS 1024 /* the largest in a file's name */
#define SHEAF_SAT_MOST_PARTS 4096 /* files looked at in one reading */
#define SHEAF_SAT_NEAR_MINUTES 2  /* most difference between the clocks of a start's ranks */
#define SHEAF_SAT_STEP_SIZE 24    /* of the name of a step: at most 18 digits */

typedef struct sheaf__sat_stamp {
    bool has;
    int month, day, hour, minute;
    size_t stem; /* length of the name before it */
} sheaf__sat_stamp;

typedef struct sheaf__sat_folder {
    char save[SHEAF_PATH_SIZE];    /* SAVE */
    char dir[SHEAF_PATH_SIZE];     /* SAVE/STEP, or SAVE where the parts lie in it directly */
    char config[SHEAF_PATH_SIZE];  /* path of model_config.json; "" = none */
    char name[256];                /* last part of SAVE's full path */
    char tag[SHEAF_SAT_STEP_SIZE]; /* STEP as it is spelled, "" = none */
    sheaf__sat_stamp stamp;
    int64_t step;        /* -1 = "release" or none */
    int64_t vocab, ways; /* by the config; 0 = unknown */
    int number;          /* of its save, where there are several */
} sheaf__sat_folder;

typedef struct sheaf__sat_part {
    int folder, rank;
    char *path;
    sheaf_torch *file; /* without a descriptor until it is chosen. NULL: unreadable, a finding once
                          it is chosen */
    sheaf_status *why; /* then: the reason */
    const sheaf_pickle *module; /* the dict of names and tensors */
    int64_t step, ways;         /* "iteration", "mp_world_size" in the file; -1 and 0: unknown */
    uint64_t names;             /* digest of names, dtypes and shapes */
    uint64_t copies;            /* digest of the replicated tensors */
    bool chosen;
} sheaf__sat_part;

typedef struct sheaf__sat_set {
    int nfolders, nparts;
    int64_t folders_capacity, parts_capacity;
    sheaf__sat_folder *folder;
    sheaf__sat_part *part;
    int anchor;  /* the folder given by the user; -1: their parent, or several */
    bool named;  /* the folders were given one by one: ignore stamps */
    int ways;    /* model-parallel size; 0 = unknown */
    bool joined; /* parts of several folders were chosen */
} sheaf__sat_set;

void sheaf__sat_set_release(sheaf__sat_set *set);

/* sheaf__sat_find - folders and parts for `path` and those in `also` (NULL: none), siblings with
 * near stamps only where parts are missing; then chooses. Errors of the checkpoint become findings.
 * Errors: SHEAF_E_IO, SHEAF_E_MEMORY; SHEAF_E_UNSUPPORTED where there is no SAT checkpoint. */
sheaf_status *sheaf__sat_find(sheaf__sat_set *set, sheaf_catalog *catalog, const char *path,
                              const char *const *also);

/* sheaf__sat_is - the dialect's is(). */
bool sheaf__sat_is(const char *path);

/* sheaf__sat_rank_of - the N of "mp_rank_NN_model_states.pt", or -1. */
int sheaf__sat_rank_of(const char *name);
/* sheaf__sat_step_of - the step in a folder's name or `latest`: 0 or more, -1 for "release", -2 for
 * neither. */
int64_t sheaf__sat_step_of(const char *text);
/* sheaf__sat_stamp_of - of a folder's name. */
sheaf__sat_stamp sheaf__sat_stamp_of(const char *name);
/* sheaf__sat_minutes - minutes between two stamps of unknown years, the shorter way round the
 * year. */
int64_t sheaf__sat_minutes(const sheaf__sat_stamp *a, const sheaf__sat_stamp *b);

/* sheaf__sat_full_path - absolute, with links resolved; `path` itself on failure. */
const char *sheaf__sat_full_path(char full[SHEAF_PATH_SIZE], const char *path);
/* sheaf__sat_parent - the parent folder of SAVE, also if SAVE was given as "." or a link. */
const char *sheaf__sat_parent(char parent[SHEAF_PATH_SIZE], const sheaf__sat_folder *folder);

/* sheaf__sat_elsewhere - looks near the anchor for parts of this rank, in other steps and in
 * folders with other stamps: *save is the first folder with one of the same step (malloc'd; NULL:
 * none); adds "; a part 3 of step 10 lies in ..." to `text` for each. */
sheaf_status *sheaf__sat_elsewhere(sheaf_text *text, char **save, const sheaf__sat_set *set,
                                   int rank);

/* ---- one part (part.c) ---- */

/* sheaf__sat_by_deepspeed - was this file written by another program that uses DeepSpeed? SAT's
 * files have "iteration" and names that only its models have. False if it cannot be read. Errors:
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_by_deepspeed(bool *yes, const char *path);

/* sheaf__sat_part_open - fills part->file and the members derived from it, or part->why. Errors:
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_part_open(sheaf__sat_part *part);
void sheaf__sat_part_release(sheaf__sat_part *part);
/* sheaf__sat_ways_by_shape - model-parallel size by the width of a norm and the rows of q, k and v,
 * or by the rows of the head and the vocabulary (0: unknown); 0 = unknown. */
int sheaf__sat_ways_by_shape(const sheaf__sat_part *part, int64_t vocab);
/* sheaf__sat_digest - a digest of a tensor's dtype, layout and bytes, equal for equal tensors. Uses
 * the file's checksums if there are any, else reads. Errors: SHEAF_E_IO. */
sheaf_status *sheaf__sat_digest(uint64_t *out, const sheaf_torch *file,
                                const sheaf_pickle_tensor *tensor);

/* The meaning of a name in a file. */
typedef enum sheaf__sat_kind { SHEAF_SAT_PLAIN, SHEAF_SAT_A, SHEAF_SAT_B } sheaf__sat_kind;
typedef struct sheaf__sat_name {
    sheaf__sat_kind kind;
    bool adapted;        /* it was X.original.weight */
    int part;            /* of A and B: p of matrix_A.p */
    bool known;          /* one of CogVLM's or CogAgent's */
    sheaf_sat_rule rule; /* of the linear layer's weight, for A and B */
    char logical[512];   /* X.weight; of A and B X.matrix_A.p */
    char linear[512];    /* X, "" for plain names that were not adapted */
} sheaf__sat_name;

/* sheaf__sat_name_of - false for a name that is too long. */
bool sheaf__sat_name_of(sheaf__sat_name *out, const char *name);

/* ---- which parts belong together (join.c) ---- */

/* sheaf__sat_drop_same - keeps one of several equal files of a rank and step in different folders.
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_drop_same(sheaf__sat_set *set, sheaf_catalog *catalog);
/* sheaf__sat_choose - marks the parts of one checkpoint, sets ways and joined. */
sheaf_status *sheaf__sat_choose(sheaf__sat_set *set, sheaf_catalog *catalog);
/* sheaf__sat_complete - does the anchor alone have all its parts and its config, without
 * ambiguity? */
bool sheaf__sat_complete(const sheaf__sat_set *set);

/* ---- checks of the result (check.c, order.c) ---- */

/* sheaf__sat_check - checks class, config, schema, steps and LoRA; sets model, config and vocab of
 * the catalog. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_check(sheaf_catalog *catalog, const sheaf__sat_set *set,
                               const char *config_path, const sheaf_dialect_hints *hints);

/* sheaf__sat_check_order - a finding if parts (by rank) were renamed since they were saved; sets
 * catalog->by_names if the files do not store their names. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__sat_check_order(sheaf_catalog *catalog, sheaf__sat_part *const *part,
                                     int nparts);
