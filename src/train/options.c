/* options.c - defaults of a run, and its flags in the words of lora/adapter.h. */
#include "train/options.h"

#include "base/base.h"
#include "lora/adapter.h"

void sheaf_train_options_default(sheaf_train_options *options)
{
    *options = (sheaf_train_options){
        .tp = 1,
        .dp = 1,
        .transport = SHEAF_TRANSPORT_THREADS,
        .slices = SHEAF__DEFAULT_SLICES,
        .method = SHEAF_METHOD_LORA,
        .lora_rank = 8,
        .lora_alpha = 8, /* PEFT's LoraConfig; the targets depend on the model (models/open.h) */
        .lora_bias = SHEAF_BIAS_NONE,
        .steps = 0,
        .micro_batch = 1,
        .accumulate = 1,
        .shuffle = true,
        /* the Trainer's TrainingArguments */
        .lr = 5e-5,
        .schedule = SHEAF_SCHEDULE_LINEAR,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .clip = 1.0,
        .seed = 42,
        .dtype = SHEAF_F32,
        .save_every = 500,
        .keep = 2,
        .heartbeat = 10,
        .hang_after = 600,
    };
}

sheaf_schedule sheaf_train_options_schedule(const sheaf_train_options *o)
{
    return (sheaf_schedule){ .kind = o->schedule,
                             .warmup = o->warmup,
                             .steps = o->steps,
                             .warmup_ratio = o->warmup_ratio,
                             .decay_ratio = 0.1, /* SAT's, when it fine-tunes */
                             .held_steps = 100,
                             .held_rate = 0.05 };
}

sheaf_status *sheaf_train_options_lora(sheaf_lora_options *out, const sheaf_train_options *o)
{
    sheaf_status *st = sheaf__lora_options_default(out);
    out->rank = o->lora_rank;
    out->alpha = o->lora_alpha;
    out->dropout = o->lora_dropout;
    out->rslora = o->lora_rslora;
    out->bias = o->lora_bias;
    TRY(st, sheaf_in(sheaf__lora_set_targets(out, o->lora_targets), "--lora-targets"));
    TRY(st, sheaf_in(sheaf__lora_set_exclude(out, o->lora_exclude), "--lora-exclude"));
    TRY(st, sheaf_in(sheaf__lora_set_layers(out, o->lora_layers), "--lora-layers"));
    TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->rank_pattern, o->lora_rank_pattern, true),
                     "--lora-rank-pattern"));
    TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->alpha_pattern, o->lora_alpha_pattern, false),
                     "--lora-alpha-pattern"));
    TRY(st, sheaf_in(sheaf__lora_set_saved(out, o->modules_to_save), "--modules-to-save"));
    if (st == NULL && o->model != NULL && (out->base_name = strdup(o->model)) == NULL)
        st = sheaf__no_memory("name of the base model");
    if (st != NULL)
        sheaf_lora_options_release(out);
    return st;
}

sheaf_status *sheaf__train_options_open(sheaf__open_options *out, sheaf_lora_options *fresh,
                                        const sheaf_train_options *o)
{
    *out = (sheaf__open_options){ .model = o->model, .config = o->config, .slices = o->slices };
    *fresh = (sheaf_lora_options){ 0 };
    if (o->method != SHEAF_METHOD_LORA)
        return NULL;
    if (o->adapter != NULL && o->adapter[0] != '\0') {
        out->adapter = o->adapter;
        return NULL;
    }
    out->fresh = fresh;
    return sheaf_train_options_lora(fresh, o);
}
