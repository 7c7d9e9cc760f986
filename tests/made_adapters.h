/* made_adapters.h - bases and adapters of any names and shapes, for tests of merges. */
#pragma once

#include "tests/files.h"
#include "tests/opened.h"

#include <sys/stat.h>

#include "base/random.h"
#include "checkpoint/merge/merge.h"
#include "formats/safetensors.h"
#include "ops/kernels.h"

#define P "base_model.model."
#define LORA "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 2, "

typedef struct thing {
    const char *name;
    sheaf_dtype dtype;
    int ndim;
    int64_t shape[5];
    float second;     /* its second value, unless 0 */
    const char *like; /* has the values of this one; or NULL */
} thing;

static inline int64_t volume(const thing *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

/* The values of a tensor follow from its name; of A and B the smaller, so that sums stay near
 * one. */
static inline float *values(const thing *t, float scale)
{
    const uint64_t key = sheaf__name_key(t->like != NULL ? t->like : t->name);
    float *x = room((size_t)volume(t) * sizeof *x);
    for (int64_t i = 0; i < volume(t); i++)
        x[i] = t->second != 0 && i == 1 ? t->second
                                        : sheaf__random_normal(3, key, (uint64_t)i) * scale;
    return x;
}

static inline float scale_of(const char *name)
{
    return strstr(name, "lora_") != NULL ? 0.2f : 1;
}

static inline void write_file(const char *path, const thing *things, int n)
{
    sheaf_safetensors_spec specs[24] = { { 0 } };
    sheaf_safetensors_writer *w = NULL;
    for (int i = 0; i < n; i++) {
        specs[i] = (sheaf_safetensors_spec){ .name = things[i].name,
                                             .dtype = things[i].dtype,
                                             .ndim = things[i].ndim };
        memcpy(specs[i].shape, things[i].shape, sizeof things[i].shape);
    }
    CHECK_OK(sheaf__safetensors_begin(&w, path, specs, n, NULL, 0));
    for (int i = 0; i < n; i++) {
        const thing *t = &things[i];
        const int64_t bytes = volume(t) * (int64_t)sheaf_dtype_bytes(t->dtype);
        int64_t *stored = room((size_t)bytes);
        if (t->dtype == SHEAF_I64)
            for (int64_t k = 0; k < volume(t); k++)
                stored[k] = k * k;
        else
            sheaf__kernels_for("ref")->convert(stored, t->dtype, values(t, scale_of(t->name)),
                                               SHEAF_F32, volume(t));
        CHECK_OK(sheaf__safetensors_write(w, i, 0, stored, bytes));
    }
    CHECK_OK(sheaf__safetensors_finish(w));
}

static inline void write_folder(const char *dir, const char *file, const char *config_name,
                                const char *config, const thing *things, int n)
{
    CHECK_OK(sheaf__remove_tree(dir));
    assert_int_equal(mkdir(dir, 0755), 0);
    write_file(textf("%s/%s", dir, file), things, n);
    if (config != NULL)
        put(textf("%s/%s", dir, config_name), config);
}

/* The model "base". */
static inline void write_base(const char *config, const thing *things, int n)
{
    write_folder(at("base"), "model.safetensors", "config.json", config, things, n);
}

static inline void write_adapter(const char *dir, const char *config, const thing *things, int n)
{
    write_folder(dir, "adapter_model.safetensors", "adapter_config.json", config, things, n);
}

static inline sheaf_status *merge(const char *base, const char *a, const char *b,
                                  sheaf_weights_merge_mode mode, sheaf_weights_merge_report *report)
{
    CHECK_OK(sheaf__remove_tree(at("out")));
    return sheaf_merge(report,
                       &(sheaf_weights_merge_options){ .base = base,
                                                       .adapters = (const char *const[]){ a, b },
                                                       .nadapters = b != NULL ? 2 : 1,
                                                       .dst = at("out"),
                                                       .mode = mode,
                                                       .threads = 3 });
}

/* The adapter "one" onto "base", into "out"; report NULL: not asked. */
static inline sheaf_status *merge_one(sheaf_weights_merge_report *report)
{
    sheaf_weights_merge_report unread;
    return merge(at("base"), at("one"), NULL, SHEAF_MERGE_ROUND_ONCE,
                 report == NULL ? &unread : report);
}

/* A tensor as float32; NULL when there is none. */
static inline float *result(const char *dir, const char *name, int64_t *rows)
{
    sheaf_source *s;
    CHECK_OK(open_stored(&s, dir));
    const sheaf_source_entry *e = s->find(s, name);
    float *x = NULL;
    if (e != NULL) {
        int64_t n = 1;
        for (int i = 0; i < e->ndim; i++)
            n *= e->shape[i];
        void *stored = room((size_t)n * 4);
        x = room((size_t)n * 4);
        const int64_t cols = e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
        CHECK_OK(s->read(s, name, 0, n / cols, 0, cols, stored));
        sheaf__kernels_for("ref")->convert(x, SHEAF_F32, stored, e->dtype, n);
        if (rows != NULL)
            *rows = e->shape[0];
    }
    s->close(s);
    return x;
}
