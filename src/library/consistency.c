/* consistency.c - do all processes have the same inputs? See model.h. */
#include "base/base.h"
#include "library/model.h"

#include "infer/batch_images.h"

#include "base/hash.h"
#include "comm/all.h"
#include "schema/config_text.h"
#include "schema/family.h"
#include "train/consistency.h"

static const char memory_for[] = "facts that processes compare";

/* Adds the hash of a text that is long or has several lines. */
static void add_hash(sheaf_text *t, const char *name, const char *text)
{
    char hash[33] = "";
    if (text != NULL)
        sheaf__hash_text(hash, sheaf__hash(text, strlen(text)));
    sheaf__consistency_line(t, name, hash);
}

static sheaf_status *add_model(sheaf_text *t, const sheaf__opened *opened, const char *folder,
                               const char *tokenizer, sheaf_dtype dtype, sheaf_sums sums)
{
    sheaf__origin origin = { 0 };
    char *config = NULL;
    sheaf_status *st = sheaf__config_text(&config, &opened->config);
    TRY(st, sheaf__origin_begin(&origin, opened,
                                &(sheaf__origin_from){ .model = folder, .tokenizer = tokenizer }));
    add_hash(t, "the model's config", config);
    sheaf__consistency_common(t, &origin, dtype, sums);
    add_hash(t, "the adapter's config", origin.adapter_config);
    sheaf__origin_release(&origin);
    free(config);
    return st;
}

/* `st`: errors in making *t, and earlier ones. */
static sheaf_status *compare(sheaf_comm *all, sheaf_status *st, sheaf_text *t)
{
    if (st == NULL && t->failed)
        st = sheaf__no_memory(memory_for);
    st = sheaf__all_agree(all, st);
    TRY(st, sheaf__consistency_lines(all, t->at));
    sheaf__text_release(t);
    return st;
}

/* They also depend on generation_config.json and the tokenizer, files of each host. */
static void add_answers(sheaf_text *t, const sheaf__answer_options *a)
{
    const sheaf__sampling *s = &a->generate.sampling;
    const sheaf__codec *w = a->codec;
    sheaf__text_add(t,
                    "how answers are made\tmax-new %" PRId64 ", max-length %" PRId64
                    ", greedy %d, sat %d, seed %" PRIu64 ", temperature %a, top-k %" PRId64
                    ", top-p %a, penalty %a\n",
                    a->generate.max_new, a->generate.max_length, s->greedy, s->sat, s->seed,
                    (double)s->temperature, s->top_k, (double)s->top_p,
                    (double)s->repetition_penalty);
    if (a->form.schema != NULL)
        add_hash(t, "the schema of answers", a->form.schema);
    sheaf__text_add(t, "the ids that end an answer\t");
    for (int i = 0; i < w->nstop; i++)
        sheaf__text_add(t, "%s%" PRId64, i == 0 ? "" : ", ", w->stop[i]);
    if (w->nstop == 0)
        sheaf__text_add(t, "none");
    if (w->end >= 0)
        sheaf__text_add(t, ", of a turn %" PRId32, w->end);
    sheaf__text_add(t, "\n");
}

sheaf_status *sheaf__consistency_evaluate(sheaf_status *st, const sheaf_model *m,
                                          const sheaf_model_evaluate_options *o,
                                          const sheaf_data *rows, int64_t positions)
{
    sheaf_text t = { 0 };
    if (sheaf__all_count(m->all) == 1)
        return st;
    TRY(st, add_model(&t, &m->opened, m->run.folder, o->tokenizer, m->o.dtype, m->o.sums));
    sheaf__text_add(&t,
                    "the flags\ttp %d, dp %d, slices %d, dtype %s, micro-batch %" PRId64
                    ", positions %" PRId64 ", place %s, logits %d\n",
                    m->o.tp, m->o.dp, m->opened.schema->slices, sheaf_dtype_name(m->o.dtype),
                    o->micro_batch, positions, m->o.place == NULL ? "" : m->o.place,
                    o->take != NULL || o->save_logits != NULL);
    add_hash(&t, "the objective", o->settings);
    if (st == NULL)
        sheaf__consistency_line(&t, "the data", sheaf_data_hash(rows));
    return compare(m->all, st, &t);
}

/* The pixels of images: files of the same name may differ. */
static sheaf_status *add_images(sheaf_hasher *hasher, const sheaf__answer_options *a,
                                const sheaf__prompt *prompt, int64_t index,
                                const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    const int64_t n = sheaf__prompt_images(prompt, config, &a->generate);
    sheaf__picture *picture = sheaf__picture_room_like(prompt->picture, n, tower, towers);
    sheaf_status *st = picture == NULL ? sheaf__no_memory(memory_for)
                                       : a->generate.load(a->generate.self, index, picture, n);
    for (int64_t i = 0; i < n && st == NULL; i++)
        for (int k = 0; k < towers; k++) {
            const sheaf__view *view = &picture[i].of[k];
            if (tower[k].ragged)
                sheaf__hasher_add(hasher, (const int64_t[2]){ view->height, view->width }, 16);
            sheaf__hasher_add(hasher, view->pixels,
                              (size_t)sheaf__view_numbers(view, &tower[k]) * sizeof(float));
        }
    free(picture);
    return st;
}

static sheaf_status *hash_prompts(char out[33], const sheaf__prompts *p,
                                  const sheaf__answer_options *a, const sheaf_config *config)
{
    sheaf_status *st = NULL;
    sheaf_hasher *hasher = sheaf__hasher_new();
    if (hasher == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        const sheaf__prompt *one = &p->prompt[i];
        const int64_t facts[2] = { one->n, one->embed != NULL };
        sheaf__hasher_add(hasher, facts, sizeof facts);
        sheaf__hasher_add(hasher, one->ids, (size_t)one->n * sizeof *one->ids);
        if (one->embed != NULL)
            sheaf__hasher_add(hasher, one->embed, (size_t)one->n);
        if (one->embed != NULL && a->generate.load != NULL &&
            (one->picture == NULL || one->picture[0].of[0].pixels == NULL))
            st = add_images(hasher, a, one, i, config);
    }
    sheaf__hash_text(out, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return st;
}

static void add_asking(sheaf_text *t, const sheaf_model *m, const sheaf__answer_options *a)
{
    sheaf__text_add(t,
                    "the flags\ttp %d, dp %d, slices %d, dtype %s, place %s, batch %" PRId64
                    ", logprobs %d %" PRId64 "\n",
                    m->o.tp, m->o.dp, m->opened.schema->slices, sheaf_dtype_name(m->o.dtype),
                    m->o.place == NULL ? "" : m->o.place, a->generate.batch, a->logprobs,
                    a->generate.best);
    for (int64_t i = 0; i < a->nstop; i++)
        add_hash(t, "`stop`", a->stop[i]);
    add_answers(t, a);
}

sheaf_status *sheaf__consistency_generate(sheaf_status *st, const sheaf_model *m,
                                          const sheaf__prompts *prompts,
                                          const sheaf__answer_options *a)
{
    sheaf_text t = { 0 };
    char hash[33] = "";
    if (sheaf__all_count(m->all) == 1)
        return st;
    TRY(st, add_model(&t, &m->opened, m->run.folder, NULL, m->o.dtype, m->o.sums));
    if (st == NULL) { /* otherwise only the failure is reported */
        add_asking(&t, m, a);
        st = hash_prompts(hash, prompts, a, &m->opened.config);
    }
    sheaf__consistency_line(&t, "the template",
                            st == NULL ? sheaf__codec_template(a->codec) : NULL);
    sheaf__consistency_line(&t, "the prompts", hash);
    return compare(m->all, st, &t);
}
