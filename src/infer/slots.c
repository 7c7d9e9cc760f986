/* slots.c - see slots.h. */
#include "infer/slots.h"

#include "base/base.h"

/* Of each model one that reads, then one that decodes. */
struct sheaf__slots_line {
    sheaf__model *model; /* borrowed */
    sheaf__tape *tape;   /* of `n` sequences; NULL: none was recorded */
    int64_t n;
    sheaf__rows_in in;
    sheaf__head_run head;
    int64_t *keys, *place; /* [places] */
    int32_t *pick;
    const sheaf__slots_pass *pass; /* the running one */
    sheaf__slots *slots;
    bool chooses; /* the running pass, on this rank */
};

static sheaf_status *take(void *self, int64_t row0, const int32_t *row, int64_t n,
                          const float *logits)
{
    sheaf__slots_line *l = self;
    sheaf__chooser *chooser = &l->slots->chooser;
    chooser->vocab = l->model->schema->config.vocab; /* an adapter may add tokens */
    for (int64_t i = 0; i < n && l->chooses; i++) {
        sheaf__sequence *s = l->pass->of[row0 + i];
        s->failed = sheaf__next_token(s, chooser, logits + i * chooser->vocab);
        s->over = s->over || s->failed != NULL;
    }
    return NULL;
}

/* ---- open and close ---- */

static sheaf_status *open_line(sheaf__slots_line *l, sheaf__slots *slots, sheaf__model *model)
{
    const size_t n = (size_t)slots->o.places;
    *l = (sheaf__slots_line){ .model = model,
                              .slots = slots,
                              .keys = malloc(n * sizeof *l->keys),
                              .place = malloc(n * sizeof *l->place),
                              .pick = malloc(n * sizeof *l->pick) };
    return l->keys == NULL || l->place == NULL || l->pick == NULL ? sheaf__no_memory("sequences")
                                                                  : NULL;
}

sheaf_status *sheaf__slots_open(sheaf__slots *out, const sheaf__slots_options *o)
{
    sheaf__model *own = o->model[0];
    int64_t vocab = 0;
    *out = (sheaf__slots){ .o = *o, .model = own };
    out->line = calloc(2 * (size_t)o->models, sizeof *out->line);
    sheaf_status *st = out->line == NULL ? sheaf__no_memory("sequences") : NULL;
    for (int i = 0; i < 2 * o->models && st == NULL; i++)
        st = open_line(&out->line[i], out, o->model[i / 2]);
    for (int i = 0; i < o->models; i++)
        if (o->model[i]->schema->config.vocab > vocab)
            vocab = o->model[i]->schema->config.vocab;
    TRY(st, sheaf__chooser_open(&out->chooser, vocab, o->length + 1));
    TRY(st, sheaf__batch_rows_open(&out->row, own, o->places, o->prompt, o->length));
    if (o->kv_cache == NULL)
        TRY(st, sheaf__kv_cache_new(&out->own, own, o->places, o->length));
    return st;
}

void sheaf__slots_close(sheaf__slots *s)
{
    for (int i = 0; i < 2 * s->o.models && s->line != NULL; i++) {
        sheaf__tape_free(s->line[i].tape);
        free(s->line[i].keys);
        free(s->line[i].place);
        free(s->line[i].pick);
    }
    free(s->line);
    if (s->model != NULL) {
        sheaf__kv_cache_release(&s->own, s->model);
        sheaf__batch_rows_release(&s->row, s->model);
    }
    sheaf__batch_images_release(&s->image);
    sheaf__chooser_close(&s->chooser);
    *s = (sheaf__slots){ 0 };
}

/* ---- rows of a pass ---- */

/* Ids and positions of rows [begin, begin + rows) of a sequence that is number i of n. */
static sheaf_status *lay_out(sheaf__slots *slots, const sheaf__sequence *s, int64_t begin,
                             int64_t rows, int64_t i, int64_t n)
{
    const sheaf__prompt *p = s->prompt;
    const int64_t known = sheaf__sequence_known(s);
    int32_t *id = (int32_t *)slots->row.ids.host + i * rows, *position = slots->row.position.host;
    for (int64_t j = 0; j < rows; j++)
        id[j] = begin + j < known ? sheaf__sequence_token(s, begin + j) : 0;
    for (int64_t j = 0; j < rows && slots->row.axes == 1; j++)
        position[i * rows + j] = begin + j < known ? sheaf__prompt_position(p, begin + j) : 0;
    if (slots->row.axes == 1)
        return NULL;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &slots->model->schema->config);
    int32_t *own = malloc((size_t)(3 * p->n) * sizeof *own);
    if (own == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "positions of %lld tokens", (long long)p->n);
    const int32_t behind =
        sheaf__grid_positions(own, p->n, p->n, p->embed, NULL, p->picture, tower);
    for (int axis = 0; axis < 3; axis++)
        for (int64_t j = 0; j < rows; j++)
            position[axis * n * rows + i * rows + j] =
                begin + j < p->n    ? own[axis * p->n + begin + j]
                : begin + j < known ? behind + (int32_t)(begin + j - p->n)
                                    : 0;
    free(own);
    return NULL;
}

static sheaf_status *record(sheaf__tape **tape, sheaf__slots *slots, sheaf__slots_line *l,
                            const sheaf__pass *pass)
{
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    sheaf__pass all = *pass;
    all.in = &l->in;
    all.head = &l->head;
    all.info = info;
    all.kv_cache = slots->o.kv_cache != NULL ? slots->o.kv_cache : &slots->own;
    sheaf_status *st = sheaf__tape_new(tape, l->model->context);
    if (st != NULL)
        return st;
    sheaf__model_record(l->model, *tape, &all);
    return sheaf__tape_compile(*tape, false, false);
}

static void begin(sheaf__slots *slots, sheaf__slots_line *l, const sheaf__slots_pass *pass)
{
    l->pass = pass;
    l->chooses = !slots->o.first_chooses || sheaf__is_first(l->model->context);
    l->in = sheaf__batch_rows_in(&slots->row);
    l->in.place_of = l->place;
    l->head = (sheaf__head_run){
        .all_rows = true, .pick = l->pick, .npick = pass->n, .take = take, .self = l
    };
    for (int64_t i = 0; i < pass->n; i++)
        l->place[i] = pass->of[i]->place;
}

/* The output of the towers that is kept for the picture of a single sequence; NULL. */
static sheaf__image_cache *kept_images(const sheaf__slots_pass *p)
{
    return p->n == 1 ? p->of[0]->options->image_cache : NULL;
}

/* Pixels are read where the towers are: a rank may fail alone. */
static sheaf_status *lay_out_images(sheaf__slots *slots, const sheaf__model *model,
                                    const sheaf__slots_pass *p, sheaf_status *st)
{
    const sheaf__image_cache *kept = kept_images(p);
    if (st == NULL) {
        sheaf__batch_images_lay_out(&slots->image, &slots->row, &model->schema->config, p->of, p->n,
                                    p->rows);
        st = sheaf__batch_rows_upload_images(
            &slots->row, model->context->device, slots->image.embedded,
            (int64_t[]){ p->n * p->rows - slots->image.rows, slots->image.rows });
    }
    if (kept != NULL && kept->full)
        return st;
    if (model->begins)
        TRY(st, sheaf__batch_images_fill(&slots->image, model, p->of, p->n));
    return sheaf__agree_all(model->context, st);
}

/* Does the head read no row of an image? */
static bool reads_text(const sheaf__slots_pass *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        const sheaf__prompt *prompt = p->of[i]->prompt;
        const int64_t known = sheaf__sequence_known(p->of[i]), end = p->of[i]->read + p->rows,
                      last = (end < known ? end : known) - 1;
        if (prompt->expert != NULL && last < prompt->n && prompt->expert[last])
            return false;
    }
    return true;
}

static sheaf_status *read_rows(sheaf__slots *slots, const sheaf__slots_pass *p)
{
    sheaf__slots_line *l = &slots->line[2 * p->model];
    const int64_t before = p->of[0]->read;
    const bool shows = before == 0 && sheaf__model_has_images(l->model);
    sheaf__tape *tape = NULL;
    sheaf_status *st = NULL;
    begin(slots, l, p);
    l->in.keys = before + p->rows;
    for (int64_t i = 0; i < p->n && st == NULL; i++) {
        const int64_t left = sheaf__sequence_known(p->of[i]) - before;
        l->chooses = l->chooses && left <= p->rows;
        l->pick[i] = (int32_t)(i * p->rows + (left < p->rows ? left : p->rows) - 1);
        st = lay_out(slots, p->of[i], before, p->rows, i, p->n);
    }
    TRY(st, sheaf__batch_rows_upload(&slots->row, l->model->context->device, p->n * p->rows));
    if (shows)
        st = lay_out_images(slots, l->model, p, st);
    const sheaf__images_in images = { .picture = slots->image.picture,
                                      .image_row = slots->row.image_row.device,
                                      .stream = { slots->row.stream[0].device,
                                                  slots->row.stream[1].device } };
    sheaf__pass pass = { .batch = p->n, .queries = p->rows, .image_rows_unread = reads_text(p) };
    if (shows) {
        pass.pictures = slots->image.pictures;
        pass.image_rows = slots->image.rows;
        pass.images_in = &images;
        pass.image_cache = kept_images(p);
    }
    TRY(st, record(&tape, slots, l, &pass));
    TRY(st, sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    if (st == NULL && shows && slots->image.pictures.images > 0 && kept_images(p) != NULL)
        kept_images(p)->full = true;
    return st;
}

static sheaf_status *decode(sheaf__slots *slots, const sheaf__slots_pass *p)
{
    sheaf__slots_line *l = &slots->line[2 * p->model + 1];
    sheaf_status *st = NULL;
    begin(slots, l, p);
    l->in.keys = slots->o.length;
    l->in.keys_of = l->keys;
    for (int64_t i = 0; i < p->n && st == NULL; i++) {
        l->keys[i] = p->of[i]->read + 1;
        l->pick[i] = (int32_t)i;
        st = lay_out(slots, p->of[i], p->of[i]->read, 1, i, p->n);
    }
    TRY(st, sheaf__batch_rows_upload(&slots->row, l->model->context->device, p->n));
    if (l->n != p->n || l->tape == NULL) {
        sheaf__tape_free(l->tape);
        l->tape = NULL;
        l->n = p->n;
        TRY(st, record(&l->tape, slots, l,
                       &(sheaf__pass){ .batch = p->n, .queries = 1, .image_rows_unread = true }));
    }
    return TRY(st, sheaf__tape_run(l->tape));
}

sheaf_status *sheaf__slots_run(sheaf__slots *slots, const sheaf__slots_pass *pass)
{
    return pass->rows > 0 ? read_rows(slots, pass) : decode(slots, pass);
}
