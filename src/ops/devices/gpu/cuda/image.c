/* image.c - the machine code of sheaf's kernels: which of it a GPU can run, and loading that. */
#include <dlfcn.h>
#include <zstd.h>

#include "base/base.h"
#include "base/module.h"
#include "ops/devices/gpu/cuda/cubins.h"
#include "ops/devices/gpu/gpu.h"

/* ---- the module ---- */

static const char build_it[] =
    "build sheaf where NVIDIA's compiler nvcc is (Debian: nvidia-cuda-toolkit), which ./run build "
    "finds on PATH, in /usr/local/cuda, or as NVCC; or run on `device cpu`";

static sheaf_status *no_module(void)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "kernels for NVIDIA GPUs");
    sheaf_expected(st, "sheaf-cuda.so");
    sheaf__module_searched(st);
    return sheaf_try_this(st, "%s; SHEAF_PLUGINS names the folder of a module that lies elsewhere",
                          build_it);
}

/* It stays loaded: dlopen() gives the same each time. */
sheaf_status *sheaf__cubins_open(const sheaf__cubin **out, char **path)
{
    *path = sheaf__module_find("cuda");
    if (*path == NULL)
        return no_module();
    void *module = dlopen(*path, RTLD_NOW | RTLD_LOCAL);
    const char *build = module == NULL ? NULL : dlsym(module, SHEAF__CUBINS_BUILD);
    *out = module == NULL ? NULL : dlsym(module, SHEAF__CUBINS_SYMBOL);
    if (build != NULL && *out != NULL && strcmp(build, SHEAF_VERSION) == 0)
        return NULL;
    const char *why = build == NULL ? dlerror() : NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", *path);
    sheaf_expected(st, "kernels of sheaf %s", SHEAF_VERSION);
    if (build == NULL)
        sheaf_found(st, "%s", why == NULL ? "no table" : why);
    else
        sheaf_found(st, "those of sheaf %s", build);
    free(*path);
    *path = NULL;
    return sheaf_try_this(st, "%s", build_it);
}

/* ---- which of it ---- */

/* The fitness of a kind, largest for the best; -1: it does not run there. */
static int fitness(const char *kind, int major, int minor)
{
    int number = 0, end = 0;
    if (sscanf(kind, "sm_%d%n", &number, &end) != 1 || number / 10 != major ||
        number % 10 > minor || (kind[end] != '\0' && number % 10 != minor))
        return -1;
    return number % 10 * 2 + (kind[end] != '\0');
}

const char *sheaf__cubin_kind(const sheaf__cubin *table, int major, int minor)
{
    const char *best = NULL;
    for (; table->kind != NULL; table++)
        if (fitness(table->kind, major, minor) >= 0 &&
            (best == NULL || fitness(table->kind, major, minor) > fitness(best, major, minor)))
            best = table->kind;
    return best;
}

void sheaf__cubin_kinds(const sheaf__cubin *table, char text[SHEAF__CUBIN_KINDS])
{
    *text = '\0';
    for (const sheaf__cubin *c = table; c->kind != NULL; c++)
        if (strstr(text, c->kind) == NULL &&
            strlen(text) + strlen(c->kind) + 3 < SHEAF__CUBIN_KINDS)
            strcat(strcat(text, *text == '\0' ? "" : ", "), c->kind);
}

sheaf_status *sheaf__cubins_refuse(const sheaf__cubin *table, const sheaf__gpu *gpu)
{
    static const sheaf__cubin choices[] = { /* of meson_options.txt */
                                            { "sm_80" },  { "sm_86" },  { "sm_89" }, { "sm_90a" },
                                            { "sm_100" }, { "sm_120" }, { NULL }
    };
    char kinds[SHEAF__CUBIN_KINDS];
    const char *kind = sheaf__cubin_kind(choices, gpu->major, gpu->minor);
    sheaf__cubin_kinds(table, kinds);
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSUPPORTED, "kernels for GPU %d (%s)", gpu->number, gpu->name);
    sheaf_expected(st, "machine code for compute capability %d.%d", gpu->major, gpu->minor);
    sheaf_found(st, "%s", *kinds == '\0' ? "none" : kinds);
    if (kind == NULL)
        return sheaf_try_this(st, "another GPU (`device cuda:N`), or `device cpu`: sheaf has no "
                                  "kernels for this one");
    return sheaf_try_this(st,
                          "build sheaf for this GPU (GPU_KINDS=%s ./run build) by an nvcc that "
                          "knows it; another GPU (`device cuda:N`); or `device cpu`",
                          kind);
}

/* ---- loading ---- */

static sheaf_status *load(sheaf__gpu *gpu, const void *image, const char *what)
{
    char text[96];
    snprintf(text, sizeof text, "loading sheaf's kernels (%s)", what);
    if (gpu->modules == SHEAF__GPU_MODULES)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "more than %d files of kernels", gpu->modules);
    sheaf_status *st =
        sheaf__gpu_failed(gpu, gpu->driver->module_load(&gpu->module[gpu->modules], image), text);
    gpu->modules += st == NULL;
    return st;
}

sheaf_status *sheaf__cubin_unpack(char **out, const sheaf__cubin *cubin)
{
    char *image = malloc(cubin->bytes);
    *out = NULL;
    if (image == NULL)
        return sheaf__no_memory("kernels of a GPU");
    if (ZSTD_decompress(image, cubin->bytes, cubin->data, cubin->packed) != cubin->bytes) {
        free(image);
        return sheaf_fail(SHEAF_E_FORMAT, "sheaf-cuda.so: %s of %s is damaged", cubin->file,
                          cubin->kind);
    }
    *out = image;
    return NULL;
}

static sheaf_status *load_packed(sheaf__gpu *gpu, const sheaf__cubin *cubin)
{
    char *image;
    sheaf_status *st = sheaf__cubin_unpack(&image, cubin);
    TRY(st, load(gpu, image, cubin->file));
    free(image);
    return st;
}

sheaf_status *sheaf__gpu_load(sheaf__gpu *gpu)
{
    const sheaf__cubin *table = NULL;
    char *path = NULL;
    if (sheaf__driver_stands_in())
        return load(gpu, sheaf__stand_in_image(gpu->major, gpu->minor), "the emulation's");
    sheaf_status *st = sheaf__cubins_open(&table, &path);
    free(path);
    const char *kind = st == NULL ? sheaf__cubin_kind(table, gpu->major, gpu->minor) : NULL;
    if (st == NULL && kind == NULL)
        st = sheaf__cubins_refuse(table, gpu);
    if (st == NULL && strcmp(kind, "sm_90a") != 0)
        gpu->wide_differs = true; /* sm_90 lacks those kernels (find_nvcc.sh) */
    for (; st == NULL && table->kind != NULL; table++)
        if (strcmp(table->kind, kind) == 0)
            st = load_packed(gpu, table);
    return st;
}
