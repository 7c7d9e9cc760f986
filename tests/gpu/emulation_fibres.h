/* emulation_fibres.h - what the files of the emulation share: what one thread of the processor
 * needs to run the threads of a block, or of the blocks of a cluster
 * (ops/devices/gpu/cuda/hopper.h); kept, as fresh pages cost more than most kernels. */
#pragma once

#include "tests/gpu/emulation.h"

#define SHEAF__EMU_STACK                                                                           \
    ((size_t)17 << 12)       /* a page that is not there, and what it guards; no power             \
                                of two, which would share few sets of the caches */
#define SHEAF__EMU_CLUSTER 4 /* blocks, at most */
#define SHEAF__EMU_FIBRES 2048
#define SHEAF__EMU_WARPS (SHEAF__EMU_FIBRES / 32)
#define SHEAF__EMU_COPIES 128 /* under way in a thread */
#define SHEAF__EMU_BOXES 64   /* under way in all */
#define SHEAF__EMU_WIDE 32    /* wgmma under way in a warp */

typedef enum sheaf__emu_wait {
    SHEAF__EMU_NOT, /* is 0 */
    SHEAF__EMU_AT_BARRIER,
    SHEAF__EMU_AT_MEETING,
    SHEAF__EMU_AT_MBARRIER
} sheaf__emu_wait;

typedef struct sheaf__emu_fibre {
    void *sp; /* NULL: has not begun */
    uint8_t wait, barrier;
    bool ended;
    int16_t copies; /* under way */
    int group;      /* that the next ones belong to */
} sheaf__emu_fibre;

typedef struct sheaf__emu_copy {
    void *to;
    const void *from; /* NULL: zeros */
    int group;
} sheaf__emu_copy;

typedef struct sheaf__emu_barrier {
    int arrived, wanted;
    uint32_t waiting[SHEAF__EMU_WARPS];
} sheaf__emu_barrier;

/* copy_box() and wide_...() that are not done yet. */
typedef struct sheaf__emu_box {
    const void *map;
    char *to;
    uint64_t *barrier;
    int column, row, rank;
    uint16_t blocks;
} sheaf__emu_box;

typedef struct sheaf__emu_wide {
    int n, group;
    bool f16, keep;
    uint64_t a, b;
    float *d[32];
} sheaf__emu_wide;

typedef struct sheaf__emu_room {
    char *stacks, *shared;      /* of all threads; of the blocks */
    int guarded;                /* stacks that have their page */
    char fault_stack[32 << 10]; /* a fibre's may have no room */
    sheaf__emu_fibre fibre[SHEAF__EMU_FIBRES];
    sheaf__emu_copy copy[SHEAF__EMU_FIBRES][SHEAF__EMU_COPIES];
    struct {
        const uint64_t *at;
        int phase;
    } awaited[SHEAF__EMU_FIBRES];
    sheaf__emu_warp warp[SHEAF__EMU_WARPS];
    sheaf__emu_wide wide[SHEAF__EMU_WARPS][SHEAF__EMU_WIDE];
    struct {
        int under_way, group, issued;
    } wides[SHEAF__EMU_WARPS];
    /* that of each block, and of the cluster */
    sheaf__emu_barrier barrier[SHEAF__EMU_CLUSTER + 1];
    sheaf__emu_box box[SHEAF__EMU_BOXES];
    int boxes;
    char *block[SHEAF__EMU_CLUSTER]; /* the shared memory of each */
    int own;                         /* the fibre that runs: of all of the cluster */
    int stride, blocks, warps;       /* fibres of a block, blocks of a cluster, warps of it */
    uint32_t first;                  /* block.x of the cluster's first */
    void *outside;
    const sheaf__emu_launch *launch;
    char *text;
    _Alignas(64) char arguments[SHEAF__EMU_ARGUMENTS];
} sheaf__emu_room;

extern _Thread_local sheaf__emu_room *sheaf__emu_self;

/* sheaf__emu_begin - all threads, from the first on; returns when they have ended, or failed. */
void sheaf__emu_begin(void);
/* sheaf__emu_leave - others run until this thread is ready again. */
void sheaf__emu_leave(sheaf__emu_wait wait);
void sheaf__emu_be_ready(int fibre);
/* sheaf__emu_sync - at a barrier of the room, to which `wanted` threads come. */
void sheaf__emu_sync(int barrier, int wanted);

/* sheaf__emu_wide_meet - wgmma of a warp whose lanes have all come. */
void sheaf__emu_wide_meet(int warp, sheaf__emu_act act, sheaf__emu_meeting *m);
/* sheaf__emu_land_box - the copy_box() that is under way for longest comes; false: there is none.
 */
bool sheaf__emu_land_box(void);
/* sheaf__emu_wide_left - what may not be under way where a cluster ends; NULL: nothing is. */
const char *sheaf__emu_wide_left(void);
