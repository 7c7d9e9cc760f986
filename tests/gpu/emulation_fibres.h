/* emulation_fibres.h - what the files of the emulation share: what one thread of the processor
 * needs to run the threads of a block; kept, as fresh pages cost more than most kernels. */
#pragma once

#include "tests/gpu/emulation.h"

#define SHEAF__EMU_STACK                                                                           \
    ((size_t)17 << 12) /* a page that is not there, and what it guards; no power                   \
                          of two, which would share few sets of the caches */
#define SHEAF__EMU_FIBRES SHEAF__EMU_THREADS
#define SHEAF__EMU_WARPS (SHEAF__EMU_FIBRES / 32)
#define SHEAF__EMU_COPIES 128 /* under way in a thread */

typedef enum sheaf__emu_wait {
    SHEAF__EMU_NOT, /* is 0 */
    SHEAF__EMU_AT_BARRIER,
    SHEAF__EMU_AT_MEETING
} sheaf__emu_wait;

typedef struct sheaf__emu_fibre {
    void *sp; /* NULL: has not begun */
    uint8_t wait;
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
    int arrived;
    uint32_t waiting[SHEAF__EMU_WARPS];
} sheaf__emu_barrier;

typedef struct sheaf__emu_room {
    char *stacks, *shared;      /* of all threads; of the block */
    int guarded;                /* stacks that have their page */
    char fault_stack[32 << 10]; /* a fibre's may have no room */
    sheaf__emu_fibre fibre[SHEAF__EMU_FIBRES];
    sheaf__emu_copy copy[SHEAF__EMU_FIBRES][SHEAF__EMU_COPIES];
    sheaf__emu_warp warp[SHEAF__EMU_WARPS];
    sheaf__emu_barrier barrier;
    int own, warps; /* the fibre that runs; of the block */
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
