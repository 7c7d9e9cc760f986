/* gpus.c - the GPUs of this machine: sheaf/machine.h. */
#include "base/base.h"
#include "base/json_write.h"
#include "base/numeric_env.h"
#include "ops/devices/gpu/cuda/cubins.h"
#include "ops/devices/gpu/describe.h"
#include "ops/devices/gpu/cuda/driver.h"
#include "sheaf/machine.h"

static const char *const link_name[] = { "through the host's memory", "PCI Express", "NVLink" };

static sheaf_status *put_gpu(sheaf_json_writer *j, int number, int count)
{
    sheaf__gpu_facts f;
    char capability[32];
    sheaf_status *st = sheaf__gpu_look(&f, number);
    if (st != NULL)
        return st;
    snprintf(capability, sizeof capability, "%d.%d", f.major, f.minor);
    sheaf__json_put(j,
                    "{ number:i name:s address:s capability:s sums:s multiprocessors:i memory:d "
                    "available:d usable:b problem:s links:{",
                    number, f.name, f.address, capability, f.sums, f.processors, f.memory, f.left,
                    f.problem[0] == '\0', f.problem[0] == '\0' ? NULL : f.problem);
    for (int to = 0; to < count; to++) {
        char key[16];
        snprintf(key, sizeof key, "%d", to);
        if (to != number)
            sheaf__json_put_text(j, key, link_name[sheaf__gpu_link_of(number, to)]);
    }
    sheaf__json_put(j, "} }");
    return NULL;
}

/* The module of their machine code, or why there is none. */
static void put_kernels(sheaf_json_writer *j)
{
    const sheaf__cubin *table = NULL;
    char *path = NULL, kinds[SHEAF__CUBIN_KINDS] = "";
    sheaf_status *st = NULL;
    if (sheaf__driver_stands_in())
        sheaf__json_put(j, "kernels:{ module:s kinds:s }", "none: these GPUs are emulated", "");
    else if ((st = sheaf__cubins_open(&table, &path)) == NULL) {
        sheaf__cubin_kinds(table, kinds);
        sheaf__json_put(j, "kernels:{ module:s kinds:s }", path, kinds);
    } else
        sheaf__json_put(j, "kernels:{ missing:s try:s }", sheaf_status_expected(st),
                        sheaf_status_try(st));
    sheaf_status_free(st);
    free(path);
}

sheaf_status *sheaf_machine_gpus(char **json)
{
    SHEAF__NUMERIC_ENV;
    int count = 0;
    char driver[32] = "";
    sheaf_json_writer j = { .compact = false };
    sheaf_status *st = sheaf__gpus_count(&count, driver);
    if (st != NULL) { /* no failure of this function */
        char why[512];
        snprintf(why, sizeof why, "%s: %s", sheaf_status_where(st), sheaf_status_found(st));
        sheaf__json_put(&j, "{ missing:s gpus:[", why);
        sheaf_status_free(st);
        st = NULL;
    } else {
        sheaf__json_put(&j, "{ driver:s gpus:[", driver);
    }
    for (int i = 0; i < count && st == NULL; i++)
        st = put_gpu(&j, i, count);
    sheaf__json_close(&j, ']');
    put_kernels(&j);
    sheaf__json_put(&j, "}");
    TRY(st, sheaf__text_take(json, &j.text));
    sheaf__text_release(&j.text);
    return st;
}
