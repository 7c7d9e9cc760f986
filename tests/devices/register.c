/* register.c - the command with two devices more: `checked` and `copied`. With SHEAF_TRANSFERS=FILE
 * in the environment, FILE gets a line for each step of a run, or of a plan that follows one, with
 * the bytes of its transfers; for each rank of a run or a plan with its peak; for each device that
 * is closed with the transfers of its whole life; and for each operation that `cuda` left to the
 * processor. */
#include <stdio.h>
#include <stdlib.h>

#include "ops/devices/gpu/gpu.h"
#include "tests/devices/checked.h"
#include "tests/devices/copied.h"
#include "tests/devices/gpu_faults.h"
#include "train/rank.h"

const sheaf__device_class *const sheaf__more_devices[] = { &checked_device, &copied_device, NULL };

/* Many threads write; each line is one call. */
static void note(const char *line)
{
    const char *name = getenv("SHEAF_TRANSFERS");
    FILE *file = name == NULL ? NULL : fopen(name, "a");
    if (file == NULL)
        return;
    setvbuf(file, NULL, _IOFBF, 512);
    fputs(line, file);
    fclose(file);
}

/* Calls between files of the library go to these (meson.build, --wrap). */
sheaf_status *__real_sheaf__rank_open(sheaf__rank *, const sheaf__grid *, int, const sheaf__job *);
sheaf_status *__wrap_sheaf__rank_open(sheaf__rank *, const sheaf__grid *, int, const sheaf__job *);
void __real_sheaf__stepper_follow(sheaf__stepper *);
void __wrap_sheaf__stepper_follow(sheaf__stepper *);
sheaf_status *__real_sheaf__stepper_run(sheaf__step_result *, sheaf__stepper *, int64_t, double);
sheaf_status *__wrap_sheaf__stepper_run(sheaf__step_result *, sheaf__stepper *, int64_t, double);
void __real_sheaf__device_close(sheaf__device *);
void __wrap_sheaf__device_close(sheaf__device *);

static _Thread_local const sheaf__rank *mine; /* the rank that this thread opened last */
static _Thread_local bool follows;

static int rank_of(const sheaf__rank *rank)
{
    return rank->context.group * rank->context.ranks + rank->context.rank;
}

sheaf_status *__wrap_sheaf__rank_open(sheaf__rank *out, const sheaf__grid *grid, int rank,
                                      const sheaf__job *job)
{
    mine = out;
    follows = grid != NULL;
    return __real_sheaf__rank_open(out, grid, rank, job);
}

void __wrap_sheaf__stepper_follow(sheaf__stepper *stepper)
{
    follows = true;
    __real_sheaf__stepper_follow(stepper);
}

sheaf_status *__wrap_sheaf__stepper_run(sheaf__step_result *out, sheaf__stepper *stepper,
                                        int64_t done, double lr)
{
    const sheaf__device *device = mine->device;
    const uint64_t up = device->uploaded, down = device->downloaded;
    if (follows && gpu_faults_before != NULL)
        gpu_faults_before(done);
    sheaf_status *st = __real_sheaf__stepper_run(out, stepper, done, lr);
    char line[200];
    snprintf(line, sizeof line, "step %lld rank %d up %llu down %llu\n", (long long)done,
             rank_of(mine), (unsigned long long)(device->uploaded - up),
             (unsigned long long)(device->downloaded - down));
    if (follows)
        note(line);
    return st;
}

static void note_left(const sheaf__device *device)
{
#define NAME(name) #name,
    static const char *const names[] = { SHEAF__OPERATION_LIST(NAME) };
#undef NAME
    for (int i = 0; i < SHEAF__OPERATIONS; i++)
        if (sheaf__gpu_declined(device, (sheaf__operation)i) > 0) {
            char line[200];
            snprintf(line, sizeof line, "left %s\n", names[i]);
            note(line);
        }
}

/* A rank that only counts one step for its exchanges says nothing of peaks. */
void __wrap_sheaf__device_close(sheaf__device *device)
{
    char line[200];
    if (mine != NULL && mine->device == device && device != NULL &&
        follows != device->class->counts) {
        size_t sum = 0;
        for (int kind = 0; kind < SHEAF_MEM_KINDS; kind++)
            sum += device->at_peak[kind]; /* the peak itself counts whole huge pages */
        snprintf(line, sizeof line, "rank %d peak %zu\n", rank_of(mine), sum);
        note(line);
    }
    if (device != NULL && !device->class->counts) {
        snprintf(line, sizeof line, "whole up %llu down %llu\n",
                 (unsigned long long)device->uploaded, (unsigned long long)device->downloaded);
        note(line);
    }
    if (device != NULL && device->class == &sheaf__cuda_class && device->reserved != NULL)
        note_left(device);
    if (mine != NULL && mine->device == device)
        mine = NULL; /* its rank ends */
    __real_sheaf__device_close(device);
}
