/* gpus.c - the GPUs of this machine: sheaf/machine.h. */
#include <jansson.h>

#include "base/base.h"
#include "base/numeric_env.h"
#include "ops/devices/gpu/cuda/cubins.h"
#include "ops/devices/gpu/describe.h"
#include "ops/devices/gpu/cuda/driver.h"
#include "sheaf/machine.h"

static const char *const link_name[] = { "through the host's memory", "PCI Express", "NVLink" };

static json_t *links_of(int number, int count)
{
    json_t *links = json_object();
    for (int to = 0; to < count; to++) {
        char key[16];
        snprintf(key, sizeof key, "%d", to);
        if (to != number)
            json_object_set_new(links, key, json_string(link_name[sheaf__gpu_link_of(number, to)]));
    }
    return links;
}

static sheaf_status *add_gpu(json_t *list, int number, int count)
{
    sheaf__gpu_facts f;
    char capability[32];
    sheaf_status *st = sheaf__gpu_look(&f, number);
    if (st != NULL)
        return st;
    snprintf(capability, sizeof capability, "%d.%d", f.major, f.minor);
    json_t *gpu =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:b, s:s?, s:o}", "number", number,
                  "name", f.name, "address", f.address, "capability", capability, "sums", f.sums,
                  "multiprocessors", f.processors, "memory", (json_int_t)f.memory, "available",
                  (json_int_t)f.left, "usable", f.problem[0] == '\0', "problem",
                  f.problem[0] == '\0' ? NULL : f.problem, "links", links_of(number, count));
    return json_array_append_new(list, gpu) == 0 ? NULL : sheaf__no_memory("info");
}

/* The module of their machine code, or why there is none. */
static json_t *kernels(void)
{
    const sheaf__cubin *table = NULL;
    char *path = NULL, kinds[SHEAF__CUBIN_KINDS] = "";
    if (sheaf__driver_stands_in())
        return json_pack("{s:s, s:s}", "module", "none: these GPUs are emulated", "kinds", "");
    sheaf_status *st = sheaf__cubins_open(&table, &path);
    if (st == NULL)
        sheaf__cubin_kinds(table, kinds);
    json_t *out = st == NULL ? json_pack("{s:s, s:s}", "module", path, "kinds", kinds)
                             : json_pack("{s:s, s:s}", "missing", sheaf_status_expected(st), "try",
                                         sheaf_status_try(st));
    sheaf_status_free(st);
    free(path);
    return out;
}

sheaf_status *sheaf_machine_gpus(char **json)
{
    SHEAF__NUMERIC_ENV;
    int count = 0;
    char driver[32] = "";
    json_t *all = json_object(), *list = json_array();
    sheaf_status *st = sheaf__gpus_count(&count, driver);
    if (st != NULL) { /* which is no failure of who asks */
        char why[512];
        snprintf(why, sizeof why, "%s: %s", sheaf_status_where(st), sheaf_status_found(st));
        json_object_set_new(all, "missing", json_string(why));
        sheaf_status_free(st);
        st = NULL;
    } else {
        json_object_set_new(all, "driver", json_string(driver));
    }
    for (int i = 0; i < count && st == NULL; i++)
        st = add_gpu(list, i, count);
    json_object_set_new(all, "gpus", list);
    json_object_set_new(all, "kernels", kernels());
    char *text = st == NULL ? json_dumps(all, 0) : NULL;
    if (st == NULL && text == NULL)
        st = sheaf__no_memory("GPUs");
    if (st == NULL)
        *json = text;
    json_decref(all);
    return st;
}
