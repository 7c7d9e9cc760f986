/* generate.c - see generate.h. */
#include "comm/activity.h"
#include "infer/batch_images.h"
#include "infer/batch_rows.h"
#include "infer/next_token.h"
#include "infer/prefix_cache.h"
#include "models/rope.h"
#include "ops/tensor/tensor.h"

#include "base/base.h"

/* The state of one batch of prompts. */
typedef struct batch {
    sheaf__model *model;
    sheaf__context *c;
    const sheaf__generate_options *options;
    const sheaf__prompt *prompt;
    sheaf__continuation *out;
    int64_t first, n;        /* prompts [first, first + n) */
    int64_t longest, length; /* of the prompts; positions of the cache */
    int64_t begin;           /* rows of a single prompt that are cached */
    int64_t *keys;           /* [n] positions filled so far */
    sheaf__kv_cache own;     /* if nothing is kept between calls */
    const sheaf__kv_cache *kv_cache;
    sheaf__prefix_cache *prefix; /* of the options, where there is one prompt */
    sheaf__batch_rows row;       /* of the next run */
    int32_t *ids, *position;     /* the host's side of them */
    int64_t axes;                /* of positions */
    int32_t *behind;             /* [n] of several axes: the position behind each prompt */
    int32_t *pick;               /* [n] the host's */
    sheaf__batch_images image;
    bool *done;
    sheaf__chooser chooser;
    sheaf__image_cache *image_cache; /* of the options, where there is one prompt */
} batch;

static sheaf_status *take(void *self, int64_t row0, const int32_t *row, int64_t n,
                          const float *logits)
{
    batch *b = self;
    for (int64_t i = 0; i < n; i++) {
        const int64_t which = b->first + row0 + i;
        if (b->done[row0 + i])
            continue;
        sheaf_status *st =
            sheaf__next_token(&b->done[row0 + i], &b->out[which], &b->chooser, b->options,
                              &b->prompt[which], which, logits + i * b->chooser.vocab);
        if (st != NULL)
            return st;
    }
    return NULL;
}

/* Of several axes: of all tokens of prompt i, padding 0, those from b->begin on. */
static sheaf_status *set_axes(batch *b, int64_t i)
{
    const sheaf__prompt *p = &b->prompt[b->first + i];
    const int64_t rows = b->longest - b->begin, all = b->n * rows;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &b->model->schema->config);
    int32_t *own = malloc((size_t)(3 * p->n) * sizeof *own);
    if (own == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "positions of %lld tokens", (long long)p->n);
    b->behind[i] = sheaf__grid_positions(own, p->n, p->n, p->embed, NULL, p->picture, tower);
    for (int axis = 0; axis < 3; axis++)
        for (int64_t j = 0; j < rows; j++)
            b->position[axis * all + i * rows + j] =
                b->begin + j < p->n ? own[axis * p->n + b->begin + j] : 0;
    free(own);
    return NULL;
}

/* Is the output of the towers cached? */
static bool seen_before(const batch *b)
{
    return b->image_cache != NULL && b->image_cache->full;
}

/* The images of a batch, where the towers are. Files may be read: a rank may fail alone. `st`:
 * earlier status, consumed. */
static sheaf_status *fill_images(batch *b, sheaf_status *st)
{
    if (!sheaf__model_has_images(b->model) || seen_before(b) || b->begin > 0)
        return st;
    if (b->model->begins && st == NULL)
        st = sheaf__batch_images_fill(&b->image, b->model, b->prompt, b->first, b->n, b->options);
    return sheaf__agree_all(b->c, st);
}

/* Prompts are left-aligned in [0, longest), padding follows the shorter ones; new tokens overwrite
 * it. Cached rows are left out. */
static sheaf_status *lay_out_prompts(batch *b)
{
    const int64_t rows = b->longest - b->begin;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < b->n; i++) {
        const sheaf__prompt *p = &b->prompt[b->first + i];
        for (int64_t j = 0; j < rows; j++) {
            const int64_t at = b->begin + j;
            b->ids[i * rows + j] = at < p->n ? p->ids[at] : 0;
            if (b->axes == 1)
                b->position[i * rows + j] = at < p->n ? sheaf__prompt_position(p, at) : 0;
        }
        if (b->axes > 1)
            TRY(st, set_axes(b, i));
        b->keys[i] = p->n;
        b->pick[i] = (int32_t)(i * rows + p->n - b->begin - 1);
        b->out[b->first + i].n = 0;
        b->done[i] = false;
    }
    TRY(st, sheaf__batch_rows_upload(&b->row, b->c->device, b->n * rows));
    if (st != NULL || !sheaf__model_has_images(b->model) || b->begin > 0)
        return st;
    sheaf__batch_images_lay_out(&b->image, &b->row, &b->model->schema->config, b->prompt + b->first,
                                b->n, b->longest, b->options);
    return TRY(st, sheaf__batch_rows_upload_images(
                       &b->row, b->c->device, b->image.embedded,
                       (int64_t[]){ b->n * rows - b->image.rows, b->image.rows }));
}

/* A finished sequence repeats its position; its result is ignored. */
static sheaf_status *lay_out_next(batch *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        const sheaf__continuation *out = &b->out[b->first + i];
        b->keys[i] += !b->done[i];
        b->ids[i] = out->ids[out->n - 1];
        if (b->axes == 1)
            b->position[i] = sheaf__prompt_position(&b->prompt[b->first + i], b->keys[i] - 1);
        for (int axis = 0; axis < 3 && b->axes > 1; axis++)
            b->position[axis * b->n + i] =
                b->behind[i] + (int32_t)(b->keys[i] - 1 - b->prompt[b->first + i].n);
        b->pick[i] = (int32_t)i;
    }
    return sheaf__batch_rows_upload(&b->row, b->c->device, b->n);
}

static bool all_done(const batch *b)
{
    for (int64_t i = 0; i < b->n; i++)
        if (!b->done[i])
            return false;
    return true;
}

/* Was a stop requested on any rank? */
static sheaf_status *stopped(const batch *b)
{
    if (b->options->stop_now == NULL)
        return NULL;
    int flag = atomic_load(b->options->stop_now) != 0;
    sheaf_status *st =
        sheaf__model_comm(b->c) == NULL ? NULL : sheaf_comm_any(sheaf__model_comm(b->c), &flag);
    return st == NULL && flag ? sheaf_fail(SHEAF_E_STOPPED, "generation") : st;
}

/* Only the last row of each prompt is read. */
static bool last_is_text(const batch *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        const sheaf__prompt *p = &b->prompt[b->first + i];
        if (p->expert != NULL && p->expert[p->n - 1])
            return false;
    }
    return true;
}

/* images NULL: single new tokens, which have none. */
static sheaf_status *record(sheaf__tape **tape, batch *b, int64_t queries, sheaf__rows_in *in,
                            sheaf__head_run *head, const sheaf__images_in *images)
{
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    sheaf_status *st = sheaf__tape_new(tape, b->c);
    if (st != NULL)
        return st;
    sheaf__pass pass = { .batch = b->n,
                         .queries = queries,
                         .in = in,
                         .info = info,
                         .head = head,
                         .kv_cache = b->kv_cache,
                         .images = images == NULL ? 0 : b->image.count,
                         .joined = images == NULL ? 0 : b->image.joined,
                         .image_rows = images == NULL ? 0 : b->image.rows,
                         .images_in = images,
                         .image_cache = b->image_cache,
                         .image_rows_unread = last_is_text(b) };
    if (images != NULL)
        memcpy(pass.patches, b->image.patches, sizeof pass.patches);
    sheaf__model_record(b->model, *tape, &pass);
    return sheaf__tape_compile(*tape, false, false);
}

/* Where keys and values go. */
static sheaf_status *find_cache(batch *b)
{
    b->begin = 0;
    b->kv_cache = &b->own;
    if (b->prefix == NULL)
        return sheaf__kv_cache_new(&b->own, b->model, b->n, b->length);
    b->kv_cache = &b->prefix->kv_cache;
    return sheaf__prefix_cache_begin(&b->begin, b->prefix, b->model, b->prompt, b->length);
}

/* Token j of sequence i, of its prompt or its answer. */
static int32_t token_at(const batch *b, int64_t i, int64_t j)
{
    const sheaf__prompt *p = &b->prompt[b->first + i];
    return j < p->n ? p->ids[j] : b->out[b->first + i].ids[j - p->n];
}

/* The rows of the last run are in the cache. */
static void note_past(const batch *b, bool whole)
{
    const int64_t last = b->keys[0] - 1;
    if (b->prefix != NULL && whole)
        sheaf__prefix_cache_set(b->prefix, b->prompt);
    else if (b->prefix != NULL)
        sheaf__prefix_cache_add(b->prefix, token_at(b, 0, last),
                                sheaf__prompt_position(b->prompt, last));
}

static sheaf_status *read_prompts(batch *b, sheaf__rows_in *in, sheaf__head_run *head)
{
    sheaf__tape *tape = NULL;
    sheaf_status *st = fill_images(b, lay_out_prompts(b));
    in->keys = b->longest;
    const sheaf__images_in images = { .picture = b->image.picture,
                                      .image_row = b->row.image_row.device,
                                      .stream = { b->row.stream[0].device,
                                                  b->row.stream[1].device } };
    TRY(st, record(&tape, b, b->longest - b->begin, in, head, b->begin > 0 ? NULL : &images));
    TRY(st, sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    if (st == NULL && b->image_cache != NULL && b->begin == 0 && b->image.count > 0)
        b->image_cache->full = true;
    if (st == NULL)
        note_past(b, true);
    return st;
}

/* Does a sequence grow to a length with other rotary angles, so that the family must read all
 * tokens again? */
static bool turns(const batch *b)
{
    const sheaf_config *config = &b->model->schema->config;
    bool any = false;
    for (int64_t i = 0; i < b->n; i++)
        any |= !b->done[i] && sheaf__rope_changes(config, b->keys[i] - 1, b->keys[i]);
    return any && sheaf__family_for(config)->reads_again;
}

/* Runs all tokens of every sequence instead of the last ones, so that the cache has the angles of
 * the current lengths. */
static sheaf_status *read_again(batch *b, sheaf__head_run *head)
{
    int64_t longest = b->keys[0];
    for (int64_t i = 1; i < b->n; i++)
        longest = b->keys[i] > longest ? b->keys[i] : longest;
    sheaf__rows_in in = sheaf__batch_rows_in(&b->row);
    sheaf__tape *tape = NULL;
    in.keys = longest;
    for (int64_t i = 0; i < b->n; i++) {
        for (int64_t j = 0; j < longest; j++) {
            const bool there = j < b->keys[i];
            b->ids[i * longest + j] = there ? token_at(b, i, j) : 0;
            b->position[i * longest + j] =
                there ? sheaf__prompt_position(&b->prompt[b->first + i], j) : 0;
        }
        b->pick[i] = (int32_t)(i * longest + b->keys[i] - 1);
    }
    sheaf_status *st = sheaf__batch_rows_upload(&b->row, b->c->device, b->n * longest);
    TRY(st, record(&tape, b, longest, &in, head, NULL));
    TRY(st, sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    return st;
}

static sheaf_status *run_batch(batch *b)
{
    sheaf__rows_in in = sheaf__batch_rows_in(&b->row);
    sheaf__head_run head = {
        .all_rows = true, .pick = b->pick, .npick = b->n, .take = take, .self = b
    };
    sheaf__tape *decode = NULL;
    sheaf_status *st = find_cache(b);
    TRY(st, read_prompts(b, &in, &head));
    in.keys = b->length;
    in.keys_of = b->keys;
    TRY(st, record(&decode, b, 1, &in, &head, NULL));
    while (st == NULL && !all_done(b) && (st = stopped(b)) == NULL) {
        st = lay_out_next(b);
        TRY(st, turns(b) ? read_again(b, &head) : sheaf__tape_run(decode));
        if (st == NULL)
            note_past(b, false);
    }
    for (int64_t i = 0; i < b->n && st != NULL; i++)
        if (!b->done[i])
            b->out[b->first + i].ending = SHEAF_ENDS_STOPPED;
    sheaf__tape_free(decode);
    sheaf__kv_cache_release(&b->own, b->model);
    return st;
}

/* Names a weight that is not finite. */
static sheaf_status *name_weight(sheaf_status *st, const sheaf__model *model)
{
    const char *weight = NULL;
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_NUMBER)
        return st;
    sheaf_status *lost = sheaf__model_bad_weight(&weight, model);
    if (lost != NULL) {
        sheaf_status_free(st);
        return lost;
    }
    return weight == NULL
               ? st
               : sheaf_try_this(st,
                                "the weight '%s' holds a number that is not finite: sheaf verify "
                                "counts such numbers of each tensor",
                                weight);
}

/* ---- groups that each answered a share of the prompts ---- */

/* Copies an answer's numbers into a block, or out of one; returns their bytes. */
static size_t move(char *block, const sheaf__continuation *one, int64_t best, bool out)
{
    const size_t n = (size_t)one->n, many = n * (size_t)best;
    void *const array[] = { one->ids, one->logprob, one->best_ids, one->best_logprob };
    const size_t bytes[] = { 4 * n, 4 * n, 4 * many, 4 * many };
    size_t at = 0;
    for (int i = 0; i < (one->logprob != NULL ? 4 : 1); at += bytes[i++])
        if (block != NULL && bytes[i] > 0)
            memcpy(out ? array[i] : block + at, out ? block + at : array[i], bytes[i]);
    return at;
}

/* All answers, group after group. */
static sheaf_status *gather(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                            int64_t best)
{
    size_t size[SHEAF_MAX_SLICES], total = 0;
    int64_t *length = malloc((2 * (size_t)count + 1) * sizeof *length); /* then why it ended */
    if (length == NULL)
        return sheaf__no_memory("answers of other groups");
    for (int64_t i = 0; i < count; i++) {
        length[2 * i] = out[i].n;
        length[2 * i + 1] = (int64_t)out[i].ending;
    }
    for (int g = 0; g < c->groups; g++) {
        const sheaf_range share = sheaf__share_of(count, c, g);
        size[g] = (size_t)(share.end - share.begin) * 2 * sizeof *length;
    }
    sheaf_status *st = sheaf_comm_gather(c->peers, length, size);
    for (int g = 0; g < c->groups && st == NULL; g++) {
        const sheaf_range share = sheaf__share_of(count, c, g);
        size[g] = 0;
        for (int64_t i = share.begin; i < share.end; i++) {
            out[i].n = length[2 * i];
            out[i].ending = (sheaf_ending)length[2 * i + 1];
            size[g] += move(NULL, &out[i], best, false);
        }
        total += size[g];
    }
    char *all = st == NULL ? malloc(total + 1) : NULL, *at = all;
    if (st == NULL && all == NULL)
        st = sheaf__no_memory("answers of other groups");
    for (int64_t i = 0; i < count && st == NULL; i++)
        at += move(at, &out[i], best, false);
    TRY(st, sheaf_comm_gather(c->peers, all, size));
    at = all;
    for (int64_t i = 0; i < count && st == NULL; i++)
        at += move(at, &out[i], best, true);
    free(all);
    free(length);
    return st;
}

/* Exchanges the groups' shares of `out`, also incomplete ones after a stop, which all then return
 * as SHEAF_E_STOPPED; `st` is this group's status, consumed. Collective among peers, except for a
 * rank that failed otherwise. */
static sheaf_status *share_answers(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                                   int64_t best, sheaf_status *st)
{
    int over = st != NULL;
    if (st != NULL && sheaf_status_code(st) != SHEAF_E_STOPPED)
        return st;
    sheaf_status *failed = sheaf_comm_any(c->peers, &over);
    TRY(failed, gather(out, c, count, best));
    if (failed != NULL) {
        sheaf_status_free(st);
        return failed;
    }
    return st == NULL && over ? sheaf_fail(SHEAF_E_STOPPED, "generation") : st;
}

/* ---- sheaf__generate ---- */

static void free_batch(batch *b)
{
    sheaf__batch_images_release(&b->image);
    sheaf__batch_rows_release(&b->row, b->model);
    free(b->keys);
    free(b->pick);
    free(b->behind);
    free(b->done);
    sheaf__chooser_close(&b->chooser);
}

/* Rows of the longest sequence: its last token is not an input. */
static int64_t rows_of(const sheaf__generate_options *o, int64_t longest)
{
    const int64_t all = longest + o->max_new;
    if (o->max_length == 0 || all <= o->max_length)
        return all;
    return o->max_length > longest ? o->max_length : longest + 1;
}

sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count,
                              const sheaf__generate_options *options)
{
    const bool divided = options->divided && model->context->peers != NULL;
    const sheaf_range own = divided ? sheaf__share_of(count, model->context, model->context->group)
                                    : (sheaf_range){ 0, count };
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++)
        longest = prompt[i].n > longest ? prompt[i].n : longest;
    const int64_t most = options->batch < count ? options->batch : count,
                  length = rows_of(options, longest);
    batch b = { .model = model,
                .c = model->context,
                .options = options,
                .prompt = prompt,
                .out = out,
                .keys = malloc((size_t)most * sizeof *b.keys),
                .pick = malloc((size_t)most * 4),
                .behind = malloc((size_t)most * 4),
                .axes = sheaf__position_axes(&model->schema->config),
                .done = malloc((size_t)most),
                .image_cache = count == 1 ? options->image_cache : NULL,
                .prefix = count == 1 ? options->prefix : NULL };
    sheaf_status *st = sheaf__chooser_open(&b.chooser, model->schema->config.vocab, length);
    if (options->prefix != NULL && count != 1)
        sheaf__prefix_cache_release(options->prefix, model);
    if (st == NULL && (b.keys == NULL || b.pick == NULL || b.behind == NULL || b.done == NULL))
        st = sheaf_fail(SHEAF_E_MEMORY, "generation of %lld sequences", (long long)most);
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = sheaf__batch_images_check(model, &prompt[i], i, options);
    TRY(st, sheaf__batch_rows_open(&b.row, model, most, longest, length));
    b.ids = b.row.ids.host;
    b.position = b.row.position.host;
    for (int64_t i = 0; i < count && divided; i++)
        out[i].n = 0;
    for (b.first = own.begin; b.first < own.end && st == NULL; b.first += b.n) {
        b.n = own.end - b.first < most ? own.end - b.first : most;
        b.longest = 1;
        for (int64_t i = 0; i < b.n; i++)
            b.longest = prompt[b.first + i].n > b.longest ? prompt[b.first + i].n : b.longest;
        b.length = rows_of(options, b.longest);
        sheaf__activity_number(b.c->activity, "prompt", options->number + b.first + 1);
        st = b.first > own.begin ? stopped(&b) : NULL;
        if (st != NULL)
            break;
        st = name_weight(run_batch(&b), model);
        if (own.end - own.begin > 1) /* else its text shows it */
            sheaf_emit(options->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                        .text = "prompts",
                                                        .done = b.first + b.n - own.begin,
                                                        .total = own.end - own.begin });
    }
    free_batch(&b);
    sheaf__activity_item(b.c->activity, NULL);
    return divided ? share_answers(out, model->context, count, options->best, st) : st;
}
