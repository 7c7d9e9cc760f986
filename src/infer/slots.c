/* slots.c - see slots.h. */
#include "infer/slots.h"

#include "base/base.h"
#include "comm/activity.h"

/* The model of the running pass. */
static sheaf__model *running(const sheaf__slots *slots)
{
    return slots->member.model[slots->step.model];
}

static sheaf_status *take(void *self, int64_t row0, const int32_t *row, int64_t n,
                          const float *logits)
{
    sheaf__slots *slots = self;
    sheaf__chooser *chooser = &slots->chooser;
    chooser->vocab = running(slots)->schema->config.vocab; /* an adapter may add tokens */
    for (int64_t i = 0; i < n && slots->chooses; i++) {
        sheaf__sequence *s = slots->of[row0 + i];
        s->failed = sheaf__next_token(s, chooser, logits + i * chooser->vocab);
        s->over = s->over || s->failed != NULL;
    }
    return NULL;
}

/* ---- open and close ---- */

/* The cache of single prompts. */
static sheaf_status *take_cache(sheaf__slots *out, const sheaf__member *m,
                                const sheaf__slots_size *size)
{
    sheaf__rank_cache *cache = m->cache;
    sheaf_status *st = sheaf__prefix_cache_hold(&cache->prefix, out->model, size->length);
    out->kv_cache = &cache->prefix.kv_cache;
    out->size.length = cache->prefix.length;
    if (size->look == 0)
        return st;
    out->image_cache = &cache->image_cache;
    return TRY(st, sheaf__rank_cache_look(cache, out->model, size->look, &size->pictures));
}

sheaf_status *sheaf__slots_open(sheaf__slots *out, const sheaf__member *m,
                                const sheaf__slots_size *size)
{
    sheaf__model *own = m->model[0];
    const size_t places = (size_t)size->places;
    int64_t vocab = 0;
    *out = (sheaf__slots){ .member = *m, .size = *size, .model = own, .kv_cache = &out->own };
    out->decode = calloc((size_t)m->models, sizeof *out->decode);
    out->keys = malloc(places * sizeof *out->keys);
    out->place = malloc(places * sizeof *out->place);
    out->pick = malloc(places * sizeof *out->pick);
    sheaf_status *st =
        out->decode == NULL || out->keys == NULL || out->place == NULL || out->pick == NULL
            ? sheaf__no_memory("sequences")
            : NULL;
    if (size->single)
        TRY(st, take_cache(out, m, size));
    for (int i = 0; i < m->models; i++)
        if (m->model[i]->schema->config.vocab > vocab)
            vocab = m->model[i]->schema->config.vocab;
    if (sheaf__is_first_of_group(own->context))
        TRY(st,
            sheaf__chooser_open(&out->chooser, vocab, out->size.length + 1, own->context->slices));
    TRY(st, sheaf__batch_rows_open(&out->row, own, size->places, size->prompt, out->size.length));
    if (!size->single)
        TRY(st, sheaf__kv_cache_new(&out->own, own, size->places, size->length));
    return st;
}

void sheaf__slots_close(sheaf__slots *s)
{
    for (int i = 0; i < s->member.models && s->decode != NULL; i++)
        sheaf__tape_free(s->decode[i].tape);
    free(s->decode);
    free(s->keys);
    free(s->place);
    free(s->pick);
    if (s->model != NULL) {
        sheaf__kv_cache_release(&s->own, s->model);
        sheaf__batch_rows_release(&s->row, s->model);
    }
    sheaf__batch_images_release(&s->image);
    sheaf__chooser_close(&s->chooser);
    *s = (sheaf__slots){ 0 };
}

/* ---- laying out a pass, by the leader ---- */

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

/* The output of the towers that is kept for the pictures of a single sequence; NULL. */
static sheaf__image_cache *kept_images(const sheaf__slots *slots)
{
    return slots->step.keeps ? slots->image_cache : NULL;
}

static sheaf_status *lay_out_images(sheaf__slots *slots, const sheaf__model *model,
                                    const sheaf__slots_pass *p)
{
    sheaf__slots_step *step = &slots->step;
    step->shows = true;
    step->keeps = p->n == 1 && slots->image_cache != NULL;
    step->full = step->keeps && slots->image_cache->full;
    sheaf__batch_images_lay_out(&slots->image, &slots->row, &model->schema->config, p->of, p->n,
                                p->rows);
    return step->full ? NULL : sheaf__batch_images_fill(&slots->image, model, p->of, p->n);
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

static sheaf_status *lay_out_pass(sheaf__slots *slots, const sheaf__slots_pass *p)
{
    const sheaf__model *model = slots->member.model[p->model];
    const int64_t rows = p->rows > 0 ? p->rows : 1, before = p->of[0]->read;
    sheaf_status *st = NULL;
    slots->of = p->of;
    slots->chooses = true;
    slots->step = (sheaf__slots_step){ .model = p->model,
                                       .n = p->n,
                                       .rows = p->rows,
                                       .keys = p->rows > 0 ? before + rows : slots->size.length,
                                       .image_rows_unread = p->rows == 0 || reads_text(p),
                                       .asks = slots->size.asks,
                                       .prompt = slots->prompt };
    for (int64_t i = 0; i < p->n && st == NULL; i++) {
        const sheaf__sequence *s = p->of[i];
        const int64_t left = sheaf__sequence_known(s) - s->read;
        slots->chooses = slots->chooses && left <= rows;
        slots->place[i] = s->place;
        slots->keys[i] = s->read + 1;
        slots->pick[i] = (int32_t)(i * rows + (left < rows ? left : rows) - 1);
        st = lay_out(slots, s, s->read, rows, i, p->n);
    }
    if (st == NULL && p->rows > 0 && before == 0 && sheaf__model_has_images(model))
        st = lay_out_images(slots, model, p);
    return st;
}

/* ---- from the leader to the others ---- */

/* Copies the arrays of a pass into a block, or out of one; returns their bytes. */
static size_t move(char *block, const sheaf__slots *s, bool out)
{
    const sheaf__batch_rows *row = &s->row;
    const sheaf__batch_images *image = &s->step.image;
    const size_t n = (size_t)s->step.n, rows = n * (size_t)(s->step.rows > 0 ? s->step.rows : 1),
                 ids = rows * sizeof(int32_t), shown = s->step.shows ? sizeof(int32_t) : 0;
    void *const array[] = {
        row->ids.host,       row->position.host,  s->place,           s->keys, s->pick,
        row->image_row.host, row->stream[0].host, row->stream[1].host
    };
    const size_t bytes[] = { ids,
                             ids * (size_t)row->axes,
                             n * sizeof *s->place,
                             n * sizeof *s->keys,
                             n * sizeof *s->pick,
                             shown * (size_t)image->embedded,
                             shown * (rows - (size_t)image->rows),
                             shown * (size_t)image->rows };
    return sheaf__lead_move(block, array, bytes, sizeof bytes / sizeof *bytes, out);
}

/* The pictures of a pass: from the leader to all; the others make room for them. Their pixels lie
 * behind them, in one piece. */
static sheaf_status *share_pictures(sheaf__slots *slots, bool leads)
{
    sheaf_comm *comm = sheaf__model_comm(slots->model->context);
    sheaf__batch_images *image = &slots->image;
    const size_t n = (size_t)image->pictures.images;
    size_t numbers = 0;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &slots->model->schema->config);
    sheaf__picture *like = calloc(n, sizeof *like);
    sheaf_status *st = like == NULL ? sheaf__no_memory("pictures") : NULL;
    if (st == NULL && leads)
        memcpy(like, image->picture, n * sizeof *like);
    TRY(st, sheaf_comm_broadcast(comm, like, n * sizeof *like, 0));
    if (st == NULL && !leads) {
        free(image->picture);
        image->picture = sheaf__picture_room_like(like, (int64_t)n, tower, towers);
        if (image->picture == NULL)
            st = sheaf__no_memory("pictures");
    }
    for (size_t i = 0; i < n && st == NULL; i++) {
        image->picture[i].row = like[i].row;
        for (int t = 0; t < towers; t++)
            numbers += (size_t)sheaf__view_numbers(&image->picture[i].of[t], &tower[t]);
    }
    free(like);
    return TRY(st, sheaf_comm_broadcast(comm, image->picture + n, numbers * sizeof(float), 0));
}

static bool sends_pictures(const sheaf__slots *slots)
{
    return slots->step.shows && !slots->step.full && slots->image.pictures.images > 0;
}

static sheaf_status *send(sheaf__slots *slots)
{
    if (sheaf__model_comm(slots->model->context) == NULL)
        return NULL;
    slots->step.image = slots->image;
    sheaf__order order = { .kind = SHEAF__ORDER_PASS,
                           .step = slots->step,
                           .size = move(NULL, slots, false) };
    char *block = malloc(order.size);
    sheaf_status *st = block == NULL ? sheaf__no_memory("a pass") : NULL;
    if (st == NULL)
        move(block, slots, false);
    TRY(st, sheaf__lead_send(slots->model->context, &order, block));
    free(block);
    return st == NULL && sends_pictures(slots) ? share_pictures(slots, true) : st;
}

/* ---- computing it, by all ---- */

static sheaf_status *record(sheaf__tape **tape, sheaf__slots *slots, const sheaf__pass *pass)
{
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    sheaf__model *model = running(slots);
    sheaf__pass all = *pass;
    all.in = &slots->in;
    all.head = &slots->head;
    all.info = info;
    all.kv_cache = slots->kv_cache;
    sheaf_status *st = sheaf__tape_new(tape, model->context);
    if (st != NULL)
        return st;
    sheaf__model_record(model, *tape, &all);
    return sheaf__tape_compile(*tape, false, false);
}

static void begin(sheaf__slots *slots)
{
    slots->in = sheaf__batch_rows_in(&slots->row);
    slots->in.place_of = slots->place;
    slots->in.keys = slots->step.keys;
    slots->in.keys_of = slots->step.rows > 0 ? NULL : slots->keys;
    slots->head = (sheaf__head_run){ .forward_alone = true,
                                     .all_rows = true,
                                     .pick = slots->pick,
                                     .npick = slots->step.n,
                                     .take = take,
                                     .self = slots };
}

static sheaf_status *read_rows(sheaf__slots *slots)
{
    const sheaf__slots_step *step = &slots->step;
    const sheaf__batch_images *image = &slots->image;
    sheaf__tape *tape = NULL;
    sheaf_status *st = NULL;
    if (step->shows)
        st = sheaf__batch_rows_upload_images(
            &slots->row, slots->model->context->device, image->embedded,
            (int64_t[]){ step->n * step->rows - image->rows, image->rows });
    const sheaf__images_in images = { .picture = image->picture,
                                      .image_row = slots->row.image_row.device,
                                      .stream = { slots->row.stream[0].device,
                                                  slots->row.stream[1].device } };
    sheaf__pass pass = { .batch = step->n,
                         .queries = step->rows,
                         .image_rows_unread = step->image_rows_unread };
    if (step->shows) {
        pass.pictures = image->pictures;
        pass.image_rows = image->rows;
        pass.images_in = &images;
        pass.image_cache = kept_images(slots);
    }
    TRY(st, record(&tape, slots, &pass));
    TRY(st, sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    if (st == NULL && step->shows && image->pictures.images > 0 && kept_images(slots) != NULL)
        kept_images(slots)->full = true;
    return st;
}

static sheaf_status *decode(sheaf__slots *slots)
{
    struct sheaf__slots_decode *d = &slots->decode[slots->step.model];
    sheaf_status *st = NULL;
    if (d->n != slots->step.n) {
        sheaf__tape_free(d->tape);
        d->tape = NULL;
        d->n = slots->step.n;
        st = record(&d->tape, slots,
                    &(sheaf__pass){ .batch = d->n, .queries = 1, .image_rows_unread = true });
    }
    TRY(st, sheaf__tape_run(d->tape));
    if (st != NULL) /* it is recorded anew */
        d->n = 0;
    return st;
}

static sheaf_status *compute(sheaf__slots *slots)
{
    const sheaf__slots_step *step = &slots->step;
    const sheaf__context *c = slots->model->context;
    bool over = false;
    if (step->prompt > 0)
        sheaf__activity_number(c->activity, "prompt", step->prompt);
    begin(slots);
    sheaf_status *st = sheaf__batch_rows_upload(&slots->row, c->device,
                                                step->n * (step->rows > 0 ? step->rows : 1));
    TRY(st, step->rows > 0 ? read_rows(slots) : decode(slots));
    if (st == NULL && step->asks)
        st = sheaf__lead_stopped(&over, c, slots->member.stop);
    slots->stopped = slots->stopped || over;
    return st;
}

/* After a failed pass the cached pictures differ between ranks. */
static sheaf_status *settle(sheaf__slots *slots, sheaf_status *st)
{
    if (st != NULL && slots->image_cache != NULL)
        slots->image_cache->full = false;
    return sheaf__lead_settle(slots->model->context, st);
}

sheaf_status *sheaf__slots_run(sheaf__slots *slots, const sheaf__slots_pass *pass)
{
    sheaf_status *st = lay_out_pass(slots, pass);
    if (st != NULL) /* the others know nothing of it */
        return st;
    st = send(slots);
    return settle(slots, TRY(st, compute(slots)));
}

static void copy_rows(const sheaf__slots *slots, const struct sheaf__slots_copy *copy)
{
    sheaf__kv_cache_copy(slots->kv_cache, slots->model, copy->to, copy->from, copy->rows);
}

sheaf_status *sheaf__slots_copy(sheaf__slots *slots, const struct sheaf__slots_copy *copy)
{
    sheaf__order order = { .kind = SHEAF__ORDER_COPY, .copy = *copy };
    sheaf_status *st = sheaf__lead_send(slots->model->context, &order, NULL);
    if (st == NULL)
        copy_rows(slots, copy);
    return sheaf__lead_settle(slots->model->context, st);
}

sheaf_status *sheaf__slots_obey(sheaf__slots *slots, sheaf__order *order, char *bytes)
{
    sheaf__picture *const before = slots->image.picture;
    if (order->kind == SHEAF__ORDER_COPY) {
        copy_rows(slots, &order->copy);
        return NULL;
    }
    slots->step = order->step;
    slots->image = order->step.image;
    slots->image.picture = before;
    move(bytes != NULL ? bytes : order->bytes, slots, true);
    sheaf_status *st = sends_pictures(slots) ? share_pictures(slots, false) : NULL;
    return settle(slots, TRY(st, compute(slots)));
}
