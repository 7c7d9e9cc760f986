/* recorded.h - folders of recorded models, and the files in them. */
#pragma once

#include "tests/check.h"

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "checkpoint/convert/convert.h"
#include "schema/schema.h"
#include "sheaf/events.h"
#include "tests/stored.h"

enum { MAX_MODELS = 64 };
static const char *model_dir[MAX_MODELS];
static int models;

/* "dir/name" */
static inline const char *in_dir(const char *dir, const char *name)
{
    return textf("%s/%s", dir, name);
}

static inline bool exists(const char *path)
{
    return access(path, R_OK) == 0;
}

/* The folders of `root` that hold both files (other NULL: the one), at the end of model_dir. */
static inline void find_in(const char *root, const char *file, const char *other)
{
    char **names;
    int64_t count;
    CHECK_OK(sheaf__list_dir(&names, &count, root));
    for (int64_t i = 0; i < count && models < MAX_MODELS; i++) {
        const char *dir = in_dir(root, names[i]);
        if (exists(in_dir(dir, file)) && (other == NULL || exists(in_dir(dir, other))))
            model_dir[models++] = dir;
    }
    sheaf__names_free(names, count);
}

static inline sheaf_safetensors *record_of(const char *dir, const char *name)
{
    return record(in_dir(dir, name));
}

/* A recorded name without PEFT's ".default" in it. */
static inline const char *plain_name(const char *recorded)
{
    const char *inner = strstr(recorded, ".default");
    return inner == NULL ? recorded : textf("%.*s%s", (int)(inner - recorded), recorded, inner + 8);
}

/* A data file of rows of ids; mask NULL: none. */
static inline const char *rows_file(const char *name, const int64_t *ids, const int64_t *labels,
                                    const int64_t *mask, int64_t rows, int64_t length)
{
    const int64_t shape[] = { rows, length };
    made_tensors m = { .count = 0 };
    made_add(&m, "input_ids", SHEAF_I64, 2, shape, ids);
    made_add(&m, "labels", SHEAF_I64, 2, shape, labels);
    if (mask != NULL)
        made_add(&m, "attention_mask", SHEAF_I64, 2, shape, mask);
    return made_write(&m, at(name));
}

/* The tensors of a model, each with the numbers that `fill` gives it, as a file. */
static inline void write_model(const char *path, const sheaf_schema *schema, sheaf_dtype dtype,
                               void (*fill)(float *x, const sheaf_tensor *t, int64_t n,
                                            const sheaf_config *config))
{
    made_tensors m = { .count = 0 };
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        int64_t n = 1;
        for (int k = 0; k < t->ndim; k++)
            n *= t->shape[k];
        float *x = room((size_t)n * sizeof *x), *stored = room((size_t)n * sizeof *x);
        fill(x, t, n, &schema->config);
        assert_true(sheaf__dtype_convert(stored, dtype, x, SHEAF_F32, n));
        made_add(&m, t->name, dtype, t->ndim, t->shape, stored);
    }
    made_write(&m, path);
}

static inline void release_config(void *config)
{
    sheaf_config_release(config);
}

static inline const sheaf_config *config_of(const char *dir, const char *name)
{
    sheaf_config *config = room(sizeof *config);
    CHECK_OK(sheaf_config_read(config, in_dir(dir, name)));
    return kept(config, release_config);
}

static inline void drop_json(void *object)
{
    json_decref(object);
}

static inline json_t *json_of(const char *dir, const char *name)
{
    json_t *object = json_load_file(in_dir(dir, name), 0, NULL);
    if (object == NULL)
        fail_msg("%s/%s: not JSON", dir, name);
    return kept(object, drop_json);
}

/* The recorded steps of a run, in the order of its events. */
typedef struct trace {
    const json_t *steps;
    double tolerance; /* of a step's loss */
    int seen;
} trace;

static inline double number_in(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

/* The step that an event reports, whose loss is the recorded; NULL for any other event. */
static inline const json_t *recorded_step(trace *t, const sheaf_event *event)
{
    if (event->kind != SHEAF_EVENT_STEP)
        return NULL;
    const json_t *want = json_array_get(t->steps, (size_t)t->seen++);
    CHECK_NEAR("loss", event->step.loss, number_in(want, "loss"), t->tolerance);
    return want;
}
