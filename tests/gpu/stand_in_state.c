/* stand_in_state.c - see stand_in_state.h, and stand_in.h. */
#include "tests/gpu/stand_in_state.h"

#include <stdatomic.h>

#include "base/base.h"
#include "tests/gpu/stand_in.h"

#define all sheaf__stand_in
struct sheaf__stand_in all = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- what it pretends to be ---- */

static void read_environment(void)
{
    const char *text = getenv("SHEAF_EMULATED_GPU");
    all.gpus = 0;
    all.version = 13000;
    all.apart = -1;
    all.loses = false;
    for (const char *at = text == NULL || *text == '\0' ? "9.0,9.0" : text;
         *at != '\0' && all.gpus < SHEAF__STAND_IN_GPUS; all.gpus++) {
        int major = 9, minor = 0, length = 0;
        double gib = 80;
        if (sscanf(at, "%d.%d%n", &major, &minor, &length) != 2)
            break;
        at += length;
        if (sscanf(at, ":%lf%n", &gib, &length) == 1)
            at += length;
        sheaf__stand_in_gpu *g = &all.gpu[all.gpus];
        g->major = major;
        g->minor = minor;
        g->memory = (size_t)(gib * 512) * SHEAF__STAND_IN_GRANULARITY;
        g->taken = 0;
        at += *at == ',';
    }
    all.is_ready = true;
}

void sheaf__stand_in_reset(void)
{
    pthread_mutex_lock(&all.lock);
    read_environment();
    all.fails = NULL;
    all.why[0] = '\0';
    all.group = 0;
    all.keeps_denormals = false;
    pthread_mutex_unlock(&all.lock);
}

void sheaf__stand_in_fail(const char *function, int after, sheaf__gpu_error error, bool stays)
{
    pthread_mutex_lock(&all.lock);
    all.fails = function == NULL ? "" : function;
    all.after = after;
    all.error = error;
    all.stays = stays;
    pthread_mutex_unlock(&all.lock);
}

void sheaf__stand_in_use(int number, size_t bytes)
{
    all.gpu[number].taken += bytes;
}

void sheaf__stand_in_version(int version)
{
    all.version = version;
}

void sheaf__stand_in_arithmetic(int group, bool flushes)
{
    all.group = group;
    all.keeps_denormals = !flushes;
}

void sheaf__stand_in_peers(int apart, bool loses)
{
    all.apart = apart;
    all.loses = loses;
}

int sheaf__stand_in_left(void)
{
    return atomic_load(&all.made);
}

sheaf__gpu_error sheaf__stand_in_fault(const char *function)
{
    sheaf__gpu_error e = 0;
    pthread_mutex_lock(&all.lock);
    if (!all.is_ready)
        read_environment();
    if (all.fails != NULL && (*all.fails == '\0' || strcmp(all.fails, function) == 0) &&
        all.after-- <= 0) {
        e = all.error;
        all.after = 0;
        if (!all.stays)
            all.fails = NULL;
    }
    pthread_mutex_unlock(&all.lock);
    return e;
}

void sheaf__stand_in_stop(const char *why)
{
    pthread_mutex_lock(&all.lock);
    if (*all.why == '\0')
        snprintf(all.why, sizeof all.why, "%s", why);
    pthread_mutex_unlock(&all.lock);
    sheaf__stand_in_fail(NULL, 0, SHEAF__GPU_ILLEGAL_ADDRESS, true);
}
