/* generation_config.c - see generation_config.h. */
#include "library/generation_config.h"

#include <float.h>
#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "library/settings.h"

/* Settings that are not implemented, unless they have this value or are null. */
static const struct {
    const char *key;
    double harmless; /* NAN: only null, false and an empty list are accepted */
} not_done[] = {
    { "num_beams", 1 },
    { "min_p", 0 },
    { "typical_p", 1 },
    { "epsilon_cutoff", 0 },
    { "eta_cutoff", 0 },
    { "no_repeat_ngram_size", 0 },
    { "min_length", 0 },
    { "min_new_tokens", 0 },
    { "encoder_repetition_penalty", 1 },
    { "encoder_no_repeat_ngram_size", 0 },
    { "guidance_scale", 1 },
    { "penalty_alpha", 0 },
    { "bad_words_ids", NAN },
    { "suppress_tokens", NAN },
    { "begin_suppress_tokens", NAN },
    { "forced_bos_token_id", NAN },
    { "forced_eos_token_id", NAN },
    { "sequence_bias", NAN },
    { "exponential_decay_length_penalty", NAN },
    { "watermarking_config", NAN },
    { "stop_strings", NAN },
    { "top_h", NAN },
    { "max_time", NAN },
    { "num_return_sequences", 1 },
    { "token_healing", NAN },
    { "force_words_ids", NAN },
    { "constraints", NAN },
    { "dola_layers", NAN },
};

static bool matters(const json_t *value, double harmless)
{
    if (value == NULL || json_is_null(value) || json_is_false(value))
        return false;
    if (json_is_array(value) && json_array_size(value) == 0)
        return false;
    return !json_is_number(value) || harmless != harmless || json_number_value(value) != harmless;
}

static void warn_of(const char *name, const char *key, const json_t *value, const char *instead,
                    const sheaf_events *events)
{
    char shown[96];
    sheaf_warn(events, "%s: %s %s is not done here%s", name, key, sheaf__json_show(shown, value),
               instead);
}

static void warn(const json_t *file, const char *name, const sheaf_events *events)
{
    const json_t *length = json_object_get(file, "max_length"),
                 *cache = json_object_get(file, "cache_implementation");
    for (size_t i = 0; i < sizeof not_done / sizeof *not_done; i++) {
        const json_t *value = json_object_get(file, not_done[i].key);
        if (matters(value, not_done[i].harmless))
            warn_of(name, not_done[i].key, value, "", events);
    }
    /* max_new_tokens has priority, in transformers too */
    if (matters(length, NAN) && !json_is_integer(json_object_get(file, "max_new_tokens")))
        warn_of(name, "max_length", length, ": `max-new` and `max-length` bound an answer", events);
    /* the others hold the same numbers in another order */
    if (json_is_string(cache) && strcmp(json_string_value(cache), "quantized") == 0)
        warn_of(name, "cache_implementation", cache, "", events);
}

static void take_eos(sheaf__generation_config *g, sheaf_json_reader *r)
{
    const json_t *eos = json_object_get(r->object, "eos_token_id");
    const bool list = json_is_array(eos);
    const size_t n = list ? json_array_size(eos) : 1;
    if (eos == NULL || json_is_null(eos))
        return;
    if (n > SHEAF_MAX_EOS) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "eos_token_id", "at most %d ids", SHEAF_MAX_EOS);
        return;
    }
    g->neos = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = list ? json_array_get(eos, i) : eos;
        if (!json_is_integer(one)) {
            sheaf__json_fail(r, SHEAF_E_DATA, "eos_token_id", "an id, or a list of them");
            return;
        }
        g->eos[g->neos++] = json_integer_value(one);
    }
}

/* Not the ids that end an answer: the model has read those of config.json. */
static sheaf_status *take(sheaf__generation_config *g, const json_t *file)
{
    sheaf_json_reader r = { .object = file };
    const json_t *sample = json_object_get(file, "do_sample");
    if (sample != NULL && !json_is_null(sample))
        g->do_sample = sheaf__json_bool(&r, "do_sample", false);
    g->temperature = sheaf__json_real(&r, "temperature", 0, SHEAF__MOST_SAMPLING, -1);
    g->top_p = sheaf__json_real(&r, "top_p", 0, 1, -1);
    g->repetition_penalty =
        sheaf__json_real(&r, "repetition_penalty", SHEAF__LEAST_SAMPLING, SHEAF__MOST_SAMPLING, -1);
    g->top_k = sheaf__json_int(&r, "top_k", 0, SHEAF__MOST_TOP_K, -1);
    g->max_new = sheaf__json_int(&r, "max_new_tokens", 1, SHEAF__MOST_NEW, -1);
    if (g->there)
        take_eos(g, &r);
    return r.st;
}

sheaf_status *sheaf__generation_config_read(sheaf__generation_config *g, const char *folder,
                                            const sheaf_events *events)
{
    static const char *const names[] = { "generation_config.json", "config.json" };
    json_t *file = NULL;
    char path[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    *g = (sheaf__generation_config){ false, false, -1, -1, -1, -1, -1, -1, { 0 }, -1, names[0] };
    for (int i = 0; i < 2 && st == NULL && file == NULL; i++) {
        if (sheaf__path_kind(sheaf__path_in(path, folder, names[i])) != SHEAF_PATH_FILE)
            continue;
        g->there = i == 0;
        g->name = names[i];
        st = sheaf__json_load(&file, path);
        TRY(st, sheaf_in(take(g, file), "%s", path));
        if (st == NULL)
            warn(file, g->name, events);
    }
    json_decref(file);
    return st;
}

void sheaf__generation_config_stops(sheaf__codec *w, const sheaf__generation_config *g)
{
    if (g->neos >= 0)
        sheaf__codec_set_stops(w, g->eos, g->neos);
}

void sheaf__generation_config_family(sheaf__generation_config *g, const sheaf__picture_form *form)
{
    g->family = true;
    g->do_sample = g->do_sample < 0 ? 1 : g->do_sample;
    g->temperature = g->temperature < 0 ? form->temperature : g->temperature;
    g->top_p = g->top_p < 0 ? form->top_p : g->top_p;
    g->top_k = g->top_k < 0 ? form->top_k : g->top_k;
    g->repetition_penalty =
        g->repetition_penalty < 0 ? form->repetition_penalty : g->repetition_penalty;
}

/* ---- sampling ---- */

static double first_named(double option, double file)
{
    return option > 0 ? option : file >= 0 ? file : 1;
}

/* Notes the settings that the file decided. */
static void note(const sheaf__sampling *s, const sheaf__generation_config *g,
                 const sheaf_model_generate_options *o, const sheaf_events *events)
{
    sheaf_text text = { 0 };
    if (o->sampled == 0 && g->do_sample > 0)
        sheaf__text_add(&text, ", do_sample");
    if (!s->greedy && o->temperature == 0 && g->temperature >= 0)
        sheaf__text_add(&text, ", temperature %g", g->temperature);
    if (!s->greedy && o->top_k == 0 && (g->top_k >= 0 || s->top_k > 0))
        sheaf__text_add(&text, ", top_k %lld%s", (long long)s->top_k,
                        g->top_k >= 0 ? "" : " (as transformers has it)");
    if (!s->greedy && o->top_p == 0 && g->top_p >= 0)
        sheaf__text_add(&text, ", top_p %g", g->top_p);
    if (o->repetition_penalty == 0 && g->repetition_penalty >= 0 && g->repetition_penalty != 1)
        sheaf__text_add(&text, ", repetition_penalty %g", g->repetition_penalty);
    if (!text.failed && text.size > 0)
        sheaf_note(events, "sampled as %s%s: %s",
                   g->family ? "the family's own program does" : g->name, g->family ? "" : " says",
                   text.at + 2);
    sheaf__text_release(&text);
}

void sheaf__generation_config_sampling(sheaf__sampling *out, const sheaf__generation_config *g,
                                       const sheaf_model_generate_options *o,
                                       const sheaf_events *events)
{
    const bool requested = o->temperature > 0 || o->top_p > 0 || o->top_k != 0,
               sampled = o->sampled != 0 ? o->sampled > 0 : requested || g->do_sample > 0;
    /* transformers' default of top_k applies only if the file has do_sample, not to flags of
     * sampling */
    const int64_t top_k = !requested && g->do_sample > 0 ? 50 : 0;
    const double temperature = first_named(o->temperature, g->temperature);
    out->greedy = !sampled || temperature == 0;
    out->temperature = (float)temperature;
    out->top_k = o->top_k > 0 ? o->top_k : o->top_k < 0 ? 0 : g->top_k >= 0 ? g->top_k : top_k;
    /* 0 keeps the most probable one in transformers too; here it would skip the step */
    const double top_p = first_named(o->top_p, g->top_p);
    out->top_p = top_p < FLT_MIN ? FLT_MIN : (float)top_p;
    out->repetition_penalty = (float)first_named(o->repetition_penalty, g->repetition_penalty);
    note(out, g, o, events);
}
