/* options.c - defaults of a run, its LoRA options, and checks of its learning rates. */
#include "train/options.h"

#include "base/base.h"
#include "lora/start.h"
#include "train/tokenizer.h"

void sheaf_train_options_default(sheaf_train_options *options)
{
    *options = (sheaf_train_options){
        .tp = 1,
        .dp = 1,
        .slices = SHEAF__DEFAULT_SLICES,
        .lora_rank = 8,
        .lora_alpha = 8, /* PEFT's LoraConfig; the targets depend on the model (models/open.h) */
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

sheaf_status *sheaf__offloads(unsigned *out, const char *text)
{
    static const char *const name[] = { "weights", "moments", "activations" };
    *out = 0;
    if (text == NULL || text[0] == '\0' || strcmp(text, "none") == 0)
        return NULL;
    for (const char *at = text;; at += 1) {
        const size_t n = strcspn(at, ",");
        const unsigned before = *out;
        for (size_t i = 0; i < sizeof name / sizeof *name; i++)
            if (strlen(name[i]) == n && strncmp(name[i], at, n) == 0)
                *out |= 1u << i;
        if (*out == before)
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`offload`"),
                               "weights, moments, activations, or several with commas; "
                               "none"),
                "%s", text);
        at += n;
        if (*at == '\0')
            return NULL;
    }
}

const char *sheaf__offloads_text(unsigned offloads)
{
    static const char *const text[] = { "none",
                                        "weights",
                                        "moments",
                                        "weights,moments",
                                        "activations",
                                        "weights,activations",
                                        "moments,activations",
                                        "weights,moments,activations" };
    return text[offloads];
}

sheaf_schedule sheaf_train_options_schedule(const sheaf_train_options *o)
{
    return (sheaf_schedule){ .kind = o->schedule,
                             .warmup = o->warmup,
                             .steps = o->steps,
                             .warmup_ratio = o->warmup_ratio,
                             .min_ratio = o->min_lr_ratio,
                             .decay = o->decay_steps,
                             .decay_ratio = o->min_lr_ratio > 0
                                                ? o->min_lr_ratio
                                                : 0.1, /* SAT's, when it fine-tunes */
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
    out->dora = o->lora_dora;
    out->bias = o->lora_bias;
    TRY(st, sheaf_in(sheaf__lora_set_targets(out, o->lora_targets), "`lora-targets`"));
    TRY(st, sheaf_in(sheaf__lora_set_exclude(out, o->lora_exclude), "`lora-exclude`"));
    TRY(st, sheaf_in(sheaf__lora_set_layers(out, o->lora_layers), "`lora-layers`"));
    TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->rank_pattern, o->lora_rank_pattern, true),
                     "`lora-rank-pattern`"));
    TRY(st, sheaf_in(sheaf__lora_set_pattern(&out->alpha_pattern, o->lora_alpha_pattern, false),
                     "`lora-alpha-pattern`"));
    TRY(st, sheaf_in(sheaf__lora_set_saved(out, o->modules_to_save), "`modules-to-save`"));
    TRY(st, sheaf_in(sheaf__lora_set_init(out, o->init), "`init`"));
    if (st == NULL && sheaf__start_is_held(out->init))
        sheaf__lora_double(out);
    if (st == NULL && o->model != NULL && (out->base_name = strdup(o->model)) == NULL)
        st = sheaf__no_memory("name of the base model");
    if (st != NULL)
        sheaf_lora_options_release(out);
    return st;
}

/* Tokens are added by a new adapter alone. */
static sheaf_status *check_tokens(const sheaf_train_options *o)
{
    const bool lora = o->method == SHEAF_METHOD_LORA, from = sheaf__is_given(o->adapter);
    if (!sheaf__is_given(o->add_tokens) || (lora && !from))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`add-tokens`");
    sheaf_expected(st, "`method lora` without `adapter`: a new adapter, which holds their rows");
    sheaf_found(st, "%s", !lora ? "another method" : o->adapter);
    return sheaf_try_this(st, "train an adapter with the tokens, sheaf merge BASE ADAPTER MERGED, "
                              "and go on with MERGED");
}

sheaf_status *sheaf__train_options_open(sheaf__open_options *out, sheaf_lora_options *fresh,
                                        const sheaf_train_options *o)
{
    *out = (sheaf__open_options){ .model = o->model, .config = o->config, .slices = o->slices };
    *fresh = (sheaf_lora_options){ 0 };
    out->scores = sheaf__objective_scores(o->objective.name);
    out->added.seed = o->seed;
    sheaf_status *st = check_tokens(o);
    if (st != NULL || o->method != SHEAF_METHOD_LORA)
        return st;
    if (sheaf__is_given(o->adapter)) {
        st = sheaf_in(sheaf__lora_set_init(fresh, o->init), "`init`");
        out->init = fresh->init;
        out->adapter = o->adapter;
        return st != NULL || sheaf__start_is_held(out->init) || out->init == SHEAF_LORA_DEFAULT
                   ? st
                   : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`init` beside `adapter`"),
                                                "pissa or olora, of an adapter that began so: half "
                                                "of its ranks stay as they are"),
                                 "%s", o->init);
    }
    out->fresh = fresh;
    st = sheaf_train_options_lora(fresh, o);
    return st == NULL && sheaf__is_given(o->add_tokens) ? sheaf__run_added(&out->added, o) : st;
}

/* ---- learning rates ---- */

/* Of so few steps the first, whose rate a warm-up sets to 0, is a third or more. */
enum { FEW = 3 };

bool sheaf__warmup_yield(sheaf_train_options *o)
{
    const sheaf_schedule s = sheaf_train_options_schedule(o);
    const bool few = o->epochs > 0 && o->steps <= FEW && sheaf_schedule_rate(&s, 1, 0) == 0;
    if ((o->yields & SHEAF__YIELDS_WARMUP) == 0 || o->steps < 1 ||
        (!few && sheaf_schedule_learns(&s)))
        return false;
    o->warmup = 0;
    o->warmup_ratio = 0;
    return true;
}

/* The cause of a late rise of the rate. */
static void name_rise(char name[64], const sheaf_train_options *o, const sheaf_schedule *s)
{
    if (sheaf_schedule_is_sat(s->kind) && sheaf_schedule_rises(s) == s->held_steps &&
        s->held_steps > 0)
        snprintf(name, 64, "SAT's auto-warmup of %" PRId64 " steps", s->held_steps);
    else if (o->warmup_ratio > 0)
        snprintf(name, 64, "`warmup-ratio %g`", o->warmup_ratio);
    else
        snprintf(name, 64, "`warmup %" PRId64 "`", o->warmup);
}

/* Advice for more steps with a rate above 0. */
static void name_cure(char cure[160], const sheaf_train_options *o)
{
    snprintf(cure, 160, "fewer warm-up steps, or more steps");
    if (o->epochs > 0)
        snprintf(cure, 160,
                 "fewer warm-up steps, more epochs, or fewer rows a step than %" PRId64
                 ": `micro-batch` times `accumulate`",
                 o->micro_batch * o->accumulate);
}

static sheaf_status *never(const char *name, const char *cure, const sheaf_train_options *o)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", o->lr == 0 ? "`lr`" : name);
    sheaf_expected(st, "a learning rate above 0, for nothing is trained without");
    if (o->lr == 0)
        return sheaf_found(st, "0");
    sheaf_found(st, "0 in %s, as a warm-up begins with it",
                o->steps == 1 ? "the one step there is" : "every step");
    return sheaf_try_this(st, "%s", cure);
}

sheaf_status *sheaf__rates_check(const sheaf_train_options *o, const sheaf_events *events)
{
    const sheaf_schedule s = sheaf_train_options_schedule(o);
    char name[64], cure[160];
    if (o->steps < 1)
        return NULL;
    name_rise(name, o, &s);
    name_cure(cure, o);
    if (o->lr == 0 || !sheaf_schedule_learns(&s))
        return never(name, cure, o);
    const double last = sheaf_schedule_rate(&s, 1, o->steps - 1);
    if (sheaf_schedule_rises(&s) >= o->steps && last < 1)
        sheaf_warn(events,
                   "%s is not over after %s%" PRId64
                   "%s: the learning rate ends at %.3g of `lr %g`; %s",
                   name, o->epochs > 0 ? "" : "`steps` ", o->steps, o->epochs > 0 ? " steps" : "",
                   last, o->lr, cure);
    else if (o->steps <= FEW && sheaf_schedule_rate(&s, 1, 0) == 0)
        sheaf_warn(events, "1 of %" PRId64 " steps trains nothing: %s begins at a rate of 0; %s",
                   o->steps, name, cure);
    return NULL;
}

void sheaf__rates_resumed(const sheaf_train_options *o, const sheaf_train_options *was,
                          int64_t done, const sheaf_events *events)
{
    const sheaf_schedule now = sheaf_train_options_schedule(o),
                         then = sheaf_train_options_schedule(was);
    if (o->steps < done)
        sheaf_warn(events,
                   "`steps %" PRId64 "`: %" PRId64 " steps are done already, and are kept; a run "
                   "of fewer begins anew in another `out`",
                   o->steps, done);
    if (o->steps <= done || done == 0 || o->steps == was->steps || was->steps < done)
        return;
    const double before = sheaf_schedule_rate(&then, o->lr, done - 1),
                 next = sheaf_schedule_rate(&now, o->lr, done);
    if (before != next && before != sheaf_schedule_rate(&now, o->lr, done - 1))
        sheaf_warn(events,
                   "`steps %" PRId64 "`, after %" PRId64 " steps of a run of %" PRId64
                   ": `schedule %s` follows the number of steps, so that the learning rate goes "
                   "from %g to %g; a run of %" PRId64 " steps from its start is another one",
                   o->steps, done, was->steps, sheaf_schedule_name(o->schedule), before, next,
                   o->steps);
}
