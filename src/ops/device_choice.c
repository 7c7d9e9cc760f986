/* device_choice.c - which device a run names, and which of several each rank gets. */
#include <ctype.h>

#include "base/base.h"
#include "ops/device.h"

/* Those that a run can name. */
static const sheaf__device_class *const classes[] = { &sheaf__cpu, &sheaf__cuda_class, NULL };

static sheaf_status *unknown(const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "device");
    sheaf_expected(st, "cpu, cuda (all NVIDIA GPUs here), or cuda:0,2 (those)");
    sheaf_found(st, "%s", name);
    return sheaf_try_this(st, "leave it out: processors compute, with `threads N` on each machine; "
                              "`tp T` ranks share the model on any device");
}

static const sheaf__device_class *class_of(const char *name, size_t length)
{
    const sheaf__device_class *const *const tables[] = { classes, sheaf__more_devices };
    for (int t = 0; t < 2; t++)
        for (int i = 0; tables[t] != NULL && tables[t][i] != NULL; i++)
            if (strlen(tables[t][i]->name) == length &&
                strncmp(tables[t][i]->name, name, length) == 0)
                return tables[t][i];
    return NULL;
}

/* "0,2": numbers, none twice. */
static bool read_units(sheaf__device_choice *out, const char *list)
{
    for (const char *at = list; out->units < SHEAF__UNITS; at++) {
        char *end;
        const long unit = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : -1;
        if (unit < 0 || unit > 9999)
            return false;
        for (int i = 0; i < out->units; i++)
            if (out->unit[i] == unit)
                return false;
        out->unit[out->units++] = (int)unit;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        at = end;
    }
    return false;
}

sheaf_status *sheaf__device_choose(sheaf__device_choice *out, const char *name)
{
    *out = (sheaf__device_choice){ .class = &sheaf__cpu };
    if (name == NULL)
        return NULL;
    const size_t length = strcspn(name, ":");
    out->class = class_of(name, length);
    if (out->class == NULL ||
        (name[length] == ':' && (out->class->count == NULL || !read_units(out, name + length + 1))))
        return unknown(name);
    return NULL;
}

sheaf_status *sheaf__device_find(const sheaf__device_class **out, const char *name)
{
    sheaf__device_choice choice;
    sheaf_status *st = sheaf__device_choose(&choice, name);
    *out = choice.class;
    return st;
}

static sheaf_status *no_such(const sheaf__device_choice *choice, int unit, int there)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "device");
    if (there == 1)
        sheaf_expected(st, "%s:0, the only one that this process sees", choice->class->name);
    else
        sheaf_expected(st, "numbers from 0 to %d, those that this process sees", there - 1);
    sheaf_found(st, "%s:%d", choice->class->name, unit);
    return sheaf_try_this(st, "sheaf info --machine lists them; CUDA_VISIBLE_DEVICES leaves others "
                              "out, and numbers those that are left from 0");
}

/* The numbers of those that are named. */
static sheaf_status *resolve(sheaf__device_choice *choice)
{
    int there = 1;
    sheaf_status *st = choice->class->count == NULL ? NULL : choice->class->count(&there);
    for (int i = 0; i < choice->units && st == NULL; i++)
        if (choice->unit[i] >= there)
            st = no_such(choice, choice->unit[i], there);
    if (choice->units == 0) {
        choice->units = there < SHEAF__UNITS ? there : SHEAF__UNITS;
        for (int i = 0; i < choice->units; i++)
            choice->unit[i] = i;
    }
    return st;
}

sheaf_status *sheaf__device_present(const char *name)
{
    sheaf__device_choice choice;
    sheaf_status *st = sheaf__device_choose(&choice, name);
    return TRY(st, resolve(&choice));
}

bool sheaf__device_native(sheaf_sums *out, const char *name)
{
    sheaf__device_choice choice;
    sheaf_status *st = sheaf__device_choose(&choice, name);
    *out = SHEAF_SUMS_MMA16;
    const bool has = st == NULL && choice.class->native != NULL;
    if (has)
        TRY(st, resolve(&choice));
    if (has)
        TRY(st, choice.class->native(out, choice.unit[0]));
    if (st != NULL)
        *out = SHEAF_SUMS_MMA16;
    sheaf_status_free(st); /* opening the device reports it */
    return has;
}

sheaf_status *sheaf__device_for(sheaf__device **out, const char *name, int rank, int ranks,
                                int threads, const char *isa)
{
    sheaf__device_choice choice;
    sheaf_status *st = sheaf__device_choose(&choice, name);
    TRY(st, resolve(&choice));
    if (st != NULL)
        return st;
    const sheaf__reserved of = { .unit = choice.unit[rank % choice.units],
                                 .mate = ranks == 1 ? &of.unit : choice.unit,
                                 .mates = ranks < choice.units ? ranks : choice.units };
    st = sheaf__device_open_of(out, choice.class, &of, threads, isa, 0);
    /* resident from the start: what is planned is what is used */
    for (int i = 0; i < threads && st == NULL && !choice.class->counts; i++)
        memset((*out)->scratch[i], 0, SHEAF__THREAD_SCRATCH);
    return st;
}

sheaf_status *sheaf__device_left(size_t *bytes, int *unit, const char *name, int rank)
{
    sheaf__device_choice choice;
    *bytes = SIZE_MAX;
    *unit = 0;
    sheaf_status *st = sheaf__device_choose(&choice, name);
    if (st != NULL || choice.class->left == NULL || (st = resolve(&choice)) != NULL)
        return st;
    *unit = choice.unit[rank % choice.units];
    return choice.class->left(bytes, *unit);
}

sheaf_status *sheaf__device_order(sheaf__device *device, sheaf_sums sums, sheaf_dtype dtype)
{
    sheaf_sums own = sums;
    sheaf_status *st = NULL;
    device->sums = sums;
    if (!device->class->counts && sheaf__by_mma(sums, dtype) && device->class->native != NULL)
        st = device->class->native(&own, device->reserved->unit);
    if (st != NULL || own == sums)
        return st;
    st = sheaf_fail(SHEAF_E_UNSUPPORTED, "sums in the order %s on %s:%d", sheaf__sums_text(sums),
                    device->class->name, device->reserved->unit);
    sheaf_expected(st, "%s, which its tensor cores compute, or pairs", sheaf__sums_text(own));
    sheaf_found(st, "the order of tensor cores of %s",
                sums == SHEAF_SUMS_MMA8 ? "compute capability 8.0 to 8.9 (Ampere, Ada)"
                                        : "compute capability 9.0 and later (Hopper, Blackwell)");
    return sheaf_try_this(st,
                          "a run keeps its order: go on with it on such a GPU, or on `device "
                          "cpu`, which computes every order; a new run here takes `sums %s`, and "
                          "GPUs of several classes take `sums pairs`",
                          sheaf__sums_text(own));
}
