/* world.h - a checkpoint to be changed: its files in memory, and a folder of scratch where they
 * lie. */
#pragma once

#include "tests/fuzz/folders/change.h"

typedef struct world_file {
    char name[300]; /* below the folder */
    fuzz_bytes was; /* as recorded */
    fuzz_format format;
} world_file;

typedef struct world {
    char name[300];  /* as seeds call it */
    char path[1000]; /* what is given to sheaf: the folder, or the file in it */
    char dir[600];
    int count;
    world_file *file;
    char made[64][1400]; /* beside the recorded ones, by changes */
    int nmade;
    /* as it is unchanged */
    bool sound, has_tensors, known;
    uint64_t tensors;  /* a digest of all */
    uint64_t *finding; /* digests, sorted */
    int64_t nfindings;
    struct world *next;
} world;

/* One change: a kind, a file, four numbers (all modulo what there is). */
enum {
    CHANGE_CONTENT,
    CHANGE_BYTES,
    CHANGE_REMOVE,
    CHANGE_SWAP,
    CHANGE_COPY,
    CHANGE_EMPTY,
    CHANGE_RENAME,
    CHANGE_TWICE,
    CHANGE_FOLDER,
    CHANGE_PIPE,
    CHANGE_CUT,
    CHANGE_KINDS
};
typedef struct change {
    uint32_t kind, file, n[4];
} change;
enum { MOST_CHANGES = 4 };
typedef struct seed {
    char world[300];
    int count;
    change change[MOST_CHANGES];
} seed;

/* world_load - all that the recordings in `golden` have, and what is made of them; laid out below
 * `scratch`. */
world *world_load(const char *golden, const char *scratch);
void world_free(world *worlds);
/* world_change - false: nothing was there to change. *consistent as in change.h. */
bool world_change(world *w, const change *c, bool *consistent);
/* world_restore - as recorded again. */
void world_restore(world *w);
