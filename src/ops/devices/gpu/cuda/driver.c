/* driver.c - see driver.h. */
#include "ops/devices/gpu/cuda/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>

#include "base/base.h"

#define LIBRARY "libcuda.so.1"

/* ---- what the driver says ---- */

const char *sheaf__driver_error(const sheaf__driver *driver, sheaf__gpu_error e,
                                char text[SHEAF__DRIVER_TEXT])
{
    const char *name = NULL, *meaning = NULL;
    if (driver->error_name(e, &name) != 0 || name == NULL)
        name = "an error without a name";
    if (driver->error_text(e, &meaning) != 0 || meaning == NULL)
        meaning = "no text";
    snprintf(text, SHEAF__DRIVER_TEXT, "%s (%d): %s", name, e, meaning);
    return text;
}

sheaf_status *sheaf__driver_failed(const sheaf__driver *driver, sheaf__gpu_error e,
                                   const char *what, ...)
{
    char error[SHEAF__DRIVER_TEXT], where[256];
    va_list list;
    va_start(list, what);
    vsnprintf(where, sizeof where, what, list);
    va_end(list);
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", where);
    return sheaf_found(st, "%s", sheaf__driver_error(driver, e, error));
}

/* ---- loading ---- */

static sheaf_status *no_library(const char *why)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "NVIDIA's driver");
    sheaf_expected(st, LIBRARY);
    sheaf_found(st, "%s", why == NULL ? "no such library" : why);
    return sheaf_try_this(st,
                          "install NVIDIA's driver (Debian: nvidia-driver; in a container: start "
                          "it with the GPUs, docker run --gpus all), or run on `device cpu`");
}

static void print_version(char text[32], int version)
{
    snprintf(text, 32, "CUDA %d.%d", version / 1000, version % 1000 / 10);
}

static sheaf_status *too_old(int version, const char *missing)
{
    char least[32], is[32] = "one of an unknown version";
    print_version(least, SHEAF__DRIVER_LEAST);
    if (version > 0)
        print_version(is, version);
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "NVIDIA's driver");
    sheaf_expected(st, "one for %s or later", least);
    sheaf_found(st, missing == NULL ? "one for %s" : "one for %s, without %s", is, missing);
    return sheaf_try_this(st, "update the driver (nvidia-smi shows its version), or run on "
                              "`device cpu`");
}

sheaf_status *sheaf__driver_fill(sheaf__driver *out, void *library,
                                 void *(*symbol)(void *library, const char *name))
{
    const char *missing = NULL;
    void *at;
    int version = 0;
    *out = (sheaf__driver){ 0 };
#define FIND(field, name, parameters)                                                              \
    at = symbol(library, #name);                                                                   \
    memcpy(&out->field, &at, sizeof at);                                                           \
    if (at == NULL && missing == NULL)                                                             \
        missing = #name;
    SHEAF__DRIVER_LIST(FIND)
#undef FIND
#define FIND(field, name, parameters)                                                              \
    at = symbol(library, #name);                                                                   \
    memcpy(&out->field, &at, sizeof at);
    SHEAF__DRIVER_LATER(FIND)
#undef FIND
    if (missing == NULL)
        return NULL;
    if (out->version != NULL && out->version(&version) != 0)
        version = 0;
    return too_old(version, missing);
}

/* One for all: a library is loaded once in a process, and stays. */
static struct {
    pthread_mutex_t lock;
    bool is_loaded;
    sheaf__driver driver;
} driver_loaded = { .lock = PTHREAD_MUTEX_INITIALIZER };

static sheaf_status *load(void)
{
    if (driver_loaded.is_loaded)
        return NULL;
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return no_library(dlerror());
    sheaf_status *st = sheaf__driver_fill(&driver_loaded.driver, library, dlsym);
    driver_loaded.is_loaded = st == NULL;
    if (st != NULL)
        dlclose(library);
    return st;
}

/* ---- starting ---- */

static sheaf_status *no_gpu(const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "NVIDIA GPUs");
    sheaf_expected(st, "at least one that this process may use");
    sheaf_found(st, "%s", found);
    return sheaf_try_this(st, "see what nvidia-smi shows, and whether CUDA_VISIBLE_DEVICES, the "
                              "container or the job of Slurm (--gres=gpu:1) leaves any out; or run "
                              "on `device cpu`");
}

sheaf_status *sheaf__driver_start(const sheaf__driver *driver)
{
    char error[SHEAF__DRIVER_TEXT];
    int version = 0, n = 0;
    sheaf__gpu_error e = driver->init(0);
    if (e == SHEAF__GPU_NONE)
        return no_gpu(sheaf__driver_error(driver, e, error));
    if (e == SHEAF__GPU_NO_FABRIC)
        return sheaf_try_this(
            sheaf__driver_failed(driver, e, "starting NVIDIA's driver"),
            "start nvidia-fabricmanager, of the driver's version: without it GPUs "
            "on NVSwitch cannot be used; or run on `device cpu`");
    if (e != 0)
        return sheaf_try_this(sheaf__driver_failed(driver, e, "starting NVIDIA's driver"),
                              "see whether nvidia-smi works: after an update of the driver its "
                              "kernel module is loaded by a restart of the machine");
    if ((e = driver->version(&version)) != 0)
        return sheaf__driver_failed(driver, e, "the version of NVIDIA's driver");
    if (version < SHEAF__DRIVER_LEAST)
        return too_old(version, NULL);
    if ((e = driver->count(&n)) != 0)
        return sheaf__driver_failed(driver, e, "counting GPUs");
    return n == 0 ? no_gpu("none") : NULL;
}

bool sheaf__driver_stands_in(void)
{
    const char *gpu = getenv("SHEAF_GPU");
    return sheaf__stand_in_driver != NULL && (gpu == NULL || strcmp(gpu, "real") != 0);
}

sheaf_status *sheaf__driver_get(const sheaf__driver **out)
{
    if (sheaf__driver_stands_in()) {
        *out = sheaf__stand_in_driver();
        return sheaf__driver_start(*out);
    }
    pthread_mutex_lock(&driver_loaded.lock);
    sheaf_status *st = load();
    TRY(st, sheaf__driver_start(&driver_loaded.driver));
    pthread_mutex_unlock(&driver_loaded.lock);
    *out = &driver_loaded.driver;
    return st;
}
