/* slots.c - see slots.h. */
#include "infer/slots.h"

#include "base/base.h"
#include "infer/prefix_cache.h"
#include "models/rope.h"

/* Of each model one that reads, then one that goes on. */
struct sheaf__slots_line {
    sheaf__model *model; /* borrowed */
    sheaf__tape *tape;   /* of `n` sequences; NULL: none was recorded */
    int64_t n;
    sheaf__rows_in in;
    sheaf__head_run head;
    int64_t *keys, *place; /* [places] */
    int32_t *pick;
    sheaf__sequence *const *of; /* [n] of the running pass */
    sheaf__slots *slots;
    bool chooses; /* the running pass, on this rank */
};

/* Only the first rank chooses: the sequences are the same memory for all. */
static sheaf_status *take(void *self, int64_t row0, const int32_t *row, int64_t n,
                          const float *logits)
{
    sheaf__slots_line *l = self;
    sheaf__chooser *chooser = &l->slots->chooser;
    chooser->vocab = l->model->schema->config.vocab; /* an adapter may add tokens */
    for (int64_t i = 0; i < n && l->chooses; i++) {
        sheaf__sequence *s = l->of[row0 + i];
        s->failed = sheaf__next_token(&s->over, s->out, chooser, s->options, s->prompt, 0,
                                      logits + i * chooser->vocab);
        s->over = s->over || s->failed != NULL;
    }
    return NULL;
}

/* ---- open and close ---- */

static sheaf_status *open_line(sheaf__slots_line *l, sheaf__slots *slots, sheaf__model *model)
{
    const size_t n = (size_t)slots->places;
    *l = (sheaf__slots_line){ .model = model,
                              .slots = slots,
                              .keys = malloc(n * sizeof *l->keys),
                              .place = malloc(n * sizeof *l->place),
                              .pick = malloc(n * sizeof *l->pick) };
    return l->keys == NULL || l->place == NULL || l->pick == NULL ? sheaf__no_memory("sequences")
                                                                  : NULL;
}

sheaf_status *sheaf__slots_open(sheaf__slots *out, sheaf__model *const *model, int lines,
                                int64_t places, int64_t length)
{
    sheaf__model *own = model[0];
    int64_t vocab = 0;
    *out = (sheaf__slots){ .places = places, .length = length, .model = own, .lines = 2 * lines };
    out->line = calloc((size_t)out->lines, sizeof *out->line);
    sheaf_status *st = out->line == NULL ? sheaf__no_memory("sequences") : NULL;
    for (int i = 0; i < out->lines && st == NULL; i++)
        st = open_line(&out->line[i], out, model[i / 2]);
    for (int i = 0; i < lines; i++)
        if (model[i]->schema->config.vocab > vocab)
            vocab = model[i]->schema->config.vocab;
    TRY(st, sheaf__chooser_open(&out->chooser, vocab, length + 1));
    TRY(st, sheaf__batch_rows_open(&out->row, own, 1, length > places ? length : places, length));
    return TRY(st, sheaf__kv_cache_new(&out->kv_cache, own, places, length));
}

void sheaf__slots_close(sheaf__slots *s)
{
    for (int i = 0; i < s->lines && s->line != NULL; i++) {
        sheaf__tape_free(s->line[i].tape);
        free(s->line[i].keys);
        free(s->line[i].place);
        free(s->line[i].pick);
    }
    free(s->line);
    if (s->model != NULL) {
        sheaf__kv_cache_release(&s->kv_cache, s->model);
        sheaf__batch_rows_release(&s->row, s->model);
    }
    sheaf__batch_images_release(&s->image);
    sheaf__chooser_close(&s->chooser);
    *s = (sheaf__slots){ 0 };
}

/* ---- rows of a sequence ---- */

int64_t sheaf__slots_known(const sheaf__sequence *s)
{
    return s->prompt->n + s->out->n;
}

int64_t sheaf__slots_rows(const sheaf_config *config, const sheaf__sequence *s, int64_t most)
{
    const int64_t seen = sheaf__prompt_seen_rows(s->prompt), left = sheaf__slots_known(s) - s->read;
    if (sheaf__rope_follows_length(config))
        return left;
    if (s->read + most < seen)
        most = seen - s->read;
    return left < most ? left : most;
}

bool sheaf__slots_reads_again(const sheaf_config *config, const sheaf__sequence *s)
{
    return sheaf__family_for(config)->reads_again &&
           sheaf__rope_changes(config, s->read, s->read + 1);
}

sheaf_status *sheaf__slots_check(const sheaf__model *model, const sheaf__sequence *s)
{
    return sheaf__batch_images_check(model, s->prompt, 0, s->options);
}

static int32_t token_at(const sheaf__sequence *s, int64_t j)
{
    const sheaf__prompt *p = s->prompt;
    return j < p->n ? p->ids[j] : s->out->ids[j - p->n];
}

/* Positions of rows [begin, begin + rows) of a sequence that is number i of n in the pass. */
static sheaf_status *set_positions(sheaf__slots *slots, const sheaf__sequence *s, int64_t begin,
                                   int64_t rows, int64_t i, int64_t n)
{
    const sheaf__prompt *p = s->prompt;
    int32_t *position = slots->row.position.host;
    if (slots->row.axes == 1) {
        for (int64_t j = 0; j < rows; j++)
            position[i * rows + j] = sheaf__prompt_position(p, begin + j);
        return NULL;
    }
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &slots->model->schema->config);
    int32_t *own = malloc((size_t)(3 * p->n) * sizeof *own);
    if (own == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "positions of %lld tokens", (long long)p->n);
    const int32_t behind =
        sheaf__grid_positions(own, p->n, p->n, p->embed, NULL, p->picture, tower);
    for (int axis = 0; axis < 3; axis++)
        for (int64_t j = 0; j < rows; j++)
            position[axis * n * rows + i * rows + j] = begin + j < p->n
                                                           ? own[axis * p->n + begin + j]
                                                           : behind + (int32_t)(begin + j - p->n);
    free(own);
    return NULL;
}

/* ---- passes ---- */

static sheaf_status *record(sheaf__tape **tape, sheaf__slots *slots, sheaf__slots_line *l,
                            const sheaf__pass *pass)
{
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    sheaf__pass all = *pass;
    all.in = &l->in;
    all.head = &l->head;
    all.info = info;
    all.kv_cache = &slots->kv_cache;
    sheaf_status *st = sheaf__tape_new(tape, l->model->context);
    if (st != NULL)
        return st;
    sheaf__model_record(l->model, *tape, &all);
    return sheaf__tape_compile(*tape, false, false);
}

static void begin(sheaf__slots *slots, sheaf__slots_line *l, sheaf__sequence *const *of, int64_t n)
{
    l->of = of;
    l->chooses = sheaf__is_first(l->model->context);
    l->in = sheaf__batch_rows_in(&slots->row);
    l->in.place_of = l->place;
    l->head =
        (sheaf__head_run){ .all_rows = true, .pick = l->pick, .npick = n, .take = take, .self = l };
    for (int64_t i = 0; i < n; i++)
        l->place[i] = of[i]->place;
}

/* Pixels are read where the towers are: a rank may fail alone. */
static sheaf_status *lay_out_images(sheaf__slots *slots, const sheaf__slots_line *l,
                                    const sheaf__sequence *s, int64_t rows, sheaf_status *st)
{
    const sheaf__model *model = l->model;
    if (st == NULL) {
        sheaf__batch_images_lay_out(&slots->image, &slots->row, &model->schema->config, s->prompt,
                                    1, rows, s->options);
        st = sheaf__batch_rows_upload_images(
            &slots->row, model->context->device, slots->image.embedded,
            (int64_t[]){ rows - slots->image.rows, slots->image.rows });
    }
    if (st == NULL && model->begins)
        st = sheaf__batch_images_fill(&slots->image, model, s->prompt, 0, 1, s->options);
    return sheaf__agree_all(model->context, st);
}

sheaf_status *sheaf__slots_read(sheaf__slots *slots, int line, sheaf__sequence *s, int64_t rows)
{
    sheaf__slots_line *l = &slots->line[2 * line];
    const sheaf__prompt *p = s->prompt;
    const int64_t last = s->read + rows - 1;
    const bool shows = s->read == 0 && sheaf__model_has_images(l->model);
    sheaf__tape *tape = NULL;
    begin(slots, l, &s, 1);
    l->chooses = l->chooses && last + 1 == sheaf__slots_known(s);
    l->in.keys = last + 1;
    l->pick[0] = (int32_t)(rows - 1);
    for (int64_t j = 0; j < rows; j++)
        ((int32_t *)slots->row.ids.host)[j] = token_at(s, s->read + j);
    sheaf_status *st = set_positions(slots, s, s->read, rows, 0, 1);
    TRY(st, sheaf__batch_rows_upload(&slots->row, l->model->context->device, rows));
    if (shows)
        st = lay_out_images(slots, l, s, rows, st);
    const sheaf__images_in images = { .picture = slots->image.picture,
                                      .image_row = slots->row.image_row.device,
                                      .stream = { slots->row.stream[0].device,
                                                  slots->row.stream[1].device } };
    sheaf__pass pass = { .batch = 1,
                         .queries = rows,
                         .image_rows_unread =
                             p->expert == NULL || last >= p->n || !p->expert[last] };
    if (shows) {
        pass.images = slots->image.count;
        pass.joined = slots->image.joined;
        pass.image_rows = slots->image.rows;
        pass.images_in = &images;
        memcpy(pass.patches, slots->image.patches, sizeof pass.patches);
    }
    TRY(st, record(&tape, slots, l, &pass));
    TRY(st, sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    return st;
}

sheaf_status *sheaf__slots_next(sheaf__slots *slots, int line, sheaf__sequence *const *of,
                                int64_t n)
{
    sheaf__slots_line *l = &slots->line[2 * line + 1];
    sheaf_status *st = NULL;
    begin(slots, l, of, n);
    l->in.keys = slots->length;
    l->in.keys_of = l->keys;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        ((int32_t *)slots->row.ids.host)[i] = token_at(of[i], of[i]->read);
        l->keys[i] = of[i]->read + 1;
        l->pick[i] = (int32_t)i;
        st = set_positions(slots, of[i], of[i]->read, 1, i, n);
    }
    TRY(st, sheaf__batch_rows_upload(&slots->row, l->model->context->device, n));
    if (l->n != n || l->tape == NULL) {
        sheaf__tape_free(l->tape);
        l->tape = NULL;
        l->n = n;
        TRY(st, record(&l->tape, slots, l,
                       &(sheaf__pass){ .batch = n, .queries = 1, .image_rows_unread = true }));
    }
    return TRY(st, sheaf__tape_run(l->tape));
}
