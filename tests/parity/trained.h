/* trained.h - a training run as it was recorded. */
#pragma once

#include "checkpoint/store/probe.h"
#include "tests/parity/trial.h"
#include "train/train.h"

static inline double number_or(const json_t *object, const char *key, double otherwise)
{
    const json_t *x = json_object_get(object, key);
    return x == NULL ? otherwise : json_number_value(x);
}

/* A run in float32 with the recorded numbers of AdamW, one row a step in their order, at one rate
 * and without clipping. */
static inline sheaf_train_options adamw_options(const json_t *adam)
{
    const json_t *betas = json_object_get(adam, "betas");
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    o.threads = 2;
    o.micro_batch = 1;
    o.shuffle = false;
    o.lr = number_or(adam, "lr", o.lr);
    o.beta1 = betas == NULL ? o.beta1 : json_number_value(json_array_get(betas, 0));
    o.beta2 = betas == NULL ? o.beta2 : json_number_value(json_array_get(betas, 1));
    o.eps = number_or(adam, "eps", o.eps);
    o.weight_decay = number_or(adam, "weight_decay", o.weight_decay);
    o.clip = 0;
    o.schedule = SHEAF_SCHEDULE_CONSTANT;
    o.dtype = SHEAF_F32;
    return o;
}

/* Runs it, with its events (on_event NULL: unheard); returns its last checkpoint. */
static inline const char *train_as(const sheaf_train_options *o,
                                   void (*on_event)(void *self, const sheaf_event *event),
                                   void *self)
{
    sheaf_train_result result;
    const sheaf_events events = { on_event, self };
    CHECK_OK(sheaf_train(&result, o, "settings: none\n", "steps: 1\n",
                         &(sheaf_train_hooks){ .events = on_event == NULL ? NULL : &events }));
    const char *checkpoint = textf("%s", result.checkpoint == NULL ? "" : result.checkpoint);
    sheaf_train_result_release(&result);
    return checkpoint;
}

/* Recorded tensors whose names begin with `prefix` beside those of a checkpoint, by its `kind`
 * ("master", "exp_avg"), each times a factor. */
static inline void compare_state(sheaf_source *state, const sheaf_safetensors *want,
                                 const char *prefix, const char *kind, double factor, tolerance by)
{
    static const char peft[] = "base_model.model.";
    for (int64_t i = 0; i < want->header.count; i++) {
        const sheaf_safetensors_entry *e = &want->header.entry[i];
        if (strncmp(e->name, prefix, strlen(prefix)) != 0)
            continue;
        const char *plain = plain_name(e->name + strlen(prefix)),
                   *name = textf("%s/%s", kind, plain);
        if (state->find(state, name) == NULL && strncmp(plain, peft, sizeof peft - 1) == 0)
            name = textf("%s/%s", kind, plain + sizeof peft - 1);
        if (state->find(state, name) == NULL)
            fail_msg("'%s' is missing", name);
        int64_t n;
        const float *x = values_of(want, e->name, &n);
        const int64_t cols = e->ndim == 2 ? e->shape[1] : 1;
        float *y = room((size_t)n * sizeof *y);
        CHECK_OK(state->read(state, name, 0, n / cols, 0, cols, y));
        for (int64_t k = 0; k < n; k++)
            y[k] = (float)(y[k] * factor);
        compare(name, y, x, n, by.absolute, by.relative);
    }
}
