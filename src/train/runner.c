/* runner.c - see runner.h. */
#include "train/runner.h"

#include "base/base.h"
#include "base/clock.h"
#include "tape/head_rows.h"

_Static_assert((int)SHEAF_DATA_READ_UNIT == (int)SHEAF__HEAD_ROWS_UNIT, "what the plan counts by");

/* The content of a micro-batch without data. */
static sheaf_batch_images assumed(const sheaf__runner *r)
{
    const sheaf_config *config = &r->model->schema->config;
    const sheaf_batch_images ordinary = { .pictures = sheaf__counts_ordinary(config, 1),
                                          .image_rows = sheaf__image_experts(config) },
                             *each = r->options.each != NULL ? r->options.each : &ordinary;
    sheaf_batch_images all = { .image_rows = each->image_rows * r->options.rows,
                               .seq = r->options.seq };
    sheaf__counts_add(&all.pictures, &each->pictures, r->options.rows);
    return all;
}

static sheaf_status *take_batch(sheaf__runner *r)
{
    const sheaf_config *config = &r->model->schema->config;
    const size_t n = (size_t)r->options.rows * (size_t)r->options.seq;
    const bool sees = sheaf__model_has_images(r->model),
               looks = r->model->begins; /* towers run on this stage */
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    if (sees)
        r->room = r->data == NULL ? assumed(r).pictures
                                  : sheaf_data_images_room(r->data, config, r->options.rows);
    const size_t bytes[SHEAF__RUNNER_INPUTS] = {
        [SHEAF__RUNNER_TOKENS] = n * 4,
        [SHEAF__RUNNER_LABELS] = n * 4,
        [SHEAF__RUNNER_POSITIONS] = n * 4 * (size_t)sheaf__position_axes(config),
        [SHEAF__RUNNER_MASK] = n,
        [SHEAF__RUNNER_SEGMENTS] = sheaf_data_is_packed(r->data) ? (n + 1) * 8 : 0,
        [SHEAF__RUNNER_IMAGE_ROWS] = (size_t)sheaf__counts_positions(config, &r->room) * 4,
        [SHEAF__RUNNER_STREAMS] = sees ? n * 4 : 0,
        [SHEAF__RUNNER_STREAMS + 1] = sees ? n * 4 : 0,
    };
    sheaf__device *device = r->model->context->device;
    sheaf_status *st = NULL;
    for (int i = 0; i < SHEAF__RUNNER_INPUTS && st == NULL; i++)
        if (bytes[i] > 0)
            st = sheaf__mirror_alloc(&r->input[i], device, bytes[i], SHEAF_MEM_INPUTS);
    r->batch.tokens = r->input[SHEAF__RUNNER_TOKENS].host;
    r->batch.labels = r->input[SHEAF__RUNNER_LABELS].host;
    r->batch.position = r->input[SHEAF__RUNNER_POSITIONS].host;
    r->batch.mask = r->input[SHEAF__RUNNER_MASK].host;
    r->batch.segment = r->input[SHEAF__RUNNER_SEGMENTS].host;
    r->batch.image_row = r->input[SHEAF__RUNNER_IMAGE_ROWS].host;
    for (int i = 0; i < 2; i++)
        r->batch.stream[i] = r->input[SHEAF__RUNNER_STREAMS + i].host;
    for (int t = 0; t < towers && looks && r->room.images > 0 && st == NULL; t++) {
        r->batch.room[t] = sheaf__counts_numbers(&r->room, tower, t);
        void *pixels = NULL;
        st = sheaf__host_alloc(&pixels, device, (size_t)r->batch.room[t] * 4, SHEAF_MEM_INPUTS);
        r->pixels[t] = pixels;
    }
    if (st != NULL || !looks || towers == 0 || r->room.images == 0 || r->options.plans)
        return st;
    r->batch.picture = malloc((size_t)r->room.images * sizeof *r->batch.picture);
    if (r->batch.picture == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%lld images", (long long)r->room.images);
    sheaf__picture_place(r->batch.picture, r->room.images, r->pixels, tower, towers);
    return NULL;
}

/* Moves the tape at `i` to the front. */
static sheaf__tape *use(sheaf__runner *r, int i)
{
    const sheaf__runner_tape used = r->tape[i];
    memmove(r->tape + 1, r->tape, (size_t)i * sizeof *r->tape);
    r->tape[0] = used;
    return used.tape;
}

static sheaf_status *record(sheaf__tape **out, sheaf__runner *r, sheaf_batch_images holds)
{
    sheaf_status *st = sheaf__tape_new(out, r->model->context);
    if (st != NULL)
        return st;
    sheaf__pass pass = { .batch = r->options.rows,
                         .queries = holds.seq,
                         .in = &r->in,
                         .info = r->kinds.of,
                         .head = &r->head,
                         .pictures = holds.pictures,
                         .image_rows = holds.image_rows,
                         .images_in = &r->images,
                         .kv_cache = r->options.kv_cache,
                         .image_rows_unread =
                             r->options.kv_cache != NULL ||
                             (r->options.backward && !sheaf_data_labels_images(r->data)),
                         .noise = r->options.noise,
                         .kept = r->options.kept,
                         .stages = r->options.stages };
    sheaf__model_record(r->model, *out, &pass);
    st = sheaf__tape_compile(*out, r->options.backward, r->options.kept);
    if (st != NULL)
        sheaf__tape_free(*out);
    return st;
}

static sheaf_status *tape_for(sheaf__tape **out, sheaf__runner *r, sheaf_batch_images holds)
{
    for (int i = 0; i < r->ntapes; i++)
        if (r->tape[i].holds.image_rows == holds.image_rows && r->tape[i].holds.seq == holds.seq &&
            memcmp(&r->tape[i].holds.pictures, &holds.pictures, sizeof holds.pictures) == 0) {
            *out = use(r, i);
            return NULL;
        }
    sheaf__tape *tape = NULL;
    sheaf_status *st = record(&tape, r, holds);
    if (st != NULL)
        return st;
    if (r->ntapes == SHEAF__RUNNER_TAPES)
        sheaf__tape_free(r->tape[--r->ntapes].tape);
    r->tape[r->ntapes++] = (sheaf__runner_tape){ holds, tape };
    *out = use(r, r->ntapes - 1);
    return NULL;
}

sheaf_status *sheaf__runner_open(sheaf__runner *r, sheaf__model *model, const sheaf_data *data,
                                 const sheaf__runner_options *options)
{
    *r = (sheaf__runner){ .model = model, .data = data, .options = *options };
    r->batch.whole = !options->longest;
    r->holds.seq = options->seq;
    if (r->options.plans && sheaf__model_has_images(model))
        r->holds = assumed(r);
    sheaf_status *st = take_batch(r);
    if (st == NULL && options->backward)
        st = sheaf__row_kinds_open(&r->kinds, model, &r->room, options->rows * options->seq);
    r->in = (sheaf__rows_in){ .ids = r->input[SHEAF__RUNNER_TOKENS].device,
                              .position = r->input[SHEAF__RUNNER_POSITIONS].device,
                              .key_mask = r->input[SHEAF__RUNNER_MASK].device,
                              .host = { r->batch.tokens, r->batch.position, r->batch.mask },
                              .mask_ld = options->seq,
                              .keys = options->seq }; /* lengths change with each run */
    if (r->options.plans) { /* a plan counts whole rows, as if one sequence filled each */
        r->batch.segment = NULL;
    } else {
        r->in.segment = r->batch.segment;
        r->batch.segments = &r->in.segments;
    }
    r->images = (sheaf__images_in){ .picture = r->batch.picture,
                                    .image_row = r->input[SHEAF__RUNNER_IMAGE_ROWS].device,
                                    .stream = { r->input[SHEAF__RUNNER_STREAMS].device,
                                                r->input[SHEAF__RUNNER_STREAMS + 1].device } };
    r->head.label = r->batch.labels;
    r->head.forward_alone = !options->backward;
    r->head.scores = model->schema->config.scores;
    return st;
}

sheaf_batch_images sheaf__runner_holds(const sheaf__runner *r, const int64_t *row)
{
    sheaf_batch_images holds =
        row == NULL ? r->holds : sheaf_data_images(r->data, row, r->options.rows);
    if (row != NULL && r->other != NULL)
        holds.seq = sheaf_data_mixed(r->data, row, r->other, r->options.rows);
    holds.seq = r->options.longest ? holds.seq : r->options.seq;
    return holds;
}

/* To the device, as far as the batch fills it. */
static sheaf_status *upload(sheaf__runner *r, sheaf_batch_images holds)
{
    const size_t n = (size_t)(r->options.rows * holds.seq),
                 images =
                     (size_t)sheaf__counts_positions(&r->model->schema->config, &holds.pictures),
                 sees = sheaf__model_has_images(r->model), experts = (size_t)holds.image_rows,
                 axes = (size_t)sheaf__position_axes(&r->model->schema->config);
    const size_t bytes[SHEAF__RUNNER_INPUTS] = {
        [SHEAF__RUNNER_TOKENS] = n * 4,
        [SHEAF__RUNNER_POSITIONS] = n * 4 * axes,
        [SHEAF__RUNNER_MASK] = n,
        [SHEAF__RUNNER_IMAGE_ROWS] = images * 4,
        [SHEAF__RUNNER_STREAMS] = sees * (n - experts) * 4,
        [SHEAF__RUNNER_STREAMS + 1] = sees * experts * 4,
    };
    sheaf_status *st = NULL;
    for (int i = 0; i < SHEAF__RUNNER_INPUTS; i++)
        TRY(st, sheaf__mirror_upload(&r->input[i], r->model->context->device, bytes[i]));
    return st;
}

sheaf_status *sheaf__runner_run(sheaf__runner *r, const int64_t *row)
{
    const int64_t rows = r->options.rows;
    const sheaf_batch_images holds = sheaf__runner_holds(r, row);
    sheaf_status *st = NULL;
    r->batch.seq = r->in.mask_ld = r->in.keys = holds.seq;
    r->batch.other = r->other;
    if (sheaf__position_axes(&r->model->schema->config) > 1)
        r->batch.axis_stride = rows * holds.seq;
    const double began = sheaf__seconds();
    /* The owner of a token or a label sends it; a plan may not know the ids. */
    r->in.host.ids = row == NULL ? NULL : r->batch.tokens;
    r->head.unknown = row == NULL;
    if (row != NULL)
        st = sheaf_data_batch(&r->batch, r->data, row, rows);
    else
        r->head.most = holds.read;
    if (r->model->begins && !r->options.plans)
        TRY(st, sheaf_data_pixels(&r->batch, r->data, row, rows));
    TRY(st, upload(r, holds));
    r->reading += sheaf__seconds() - began;
    if (sheaf__model_has_images(r->model) || sheaf_data_reads_files(r->data))
        st = sheaf__agree_all(r->model->context, st); /* files are read: a rank may fail alone */
    if (st == NULL) {
        st = sheaf__row_kinds_fill(&r->kinds, r->model, &r->info,
                                   r->options.plans ? NULL : &r->batch, holds, rows * holds.seq);
        TRY(st, tape_for(&r->last, r, holds));
    }
    return TRY(st, r->watch != NULL ? sheaf__tape_run_checked(r->watch, r->last)
                                    : sheaf__tape_run(r->last));
}

sheaf_status *sheaf__runner_prepare(sheaf__runner *r, sheaf_batch_images holds)
{
    return tape_for(&r->last, r, holds);
}

void sheaf__runner_release(sheaf__runner *r)
{
    for (int i = 0; i < r->ntapes; i++)
        sheaf__tape_free(r->tape[i].tape);
    for (int i = 0; r->model != NULL && i < SHEAF__RUNNER_INPUTS; i++)
        sheaf__mirror_free(&r->input[i], r->model->context->device);
    for (int t = 0; r->model != NULL && t < SHEAF__MOST_TOWERS; t++)
        sheaf__host_free(r->model->context->device, r->pixels[t]);
    free(r->batch.picture);
    if (r->model != NULL)
        sheaf__row_kinds_release(&r->kinds, r->model);
    *r = (sheaf__runner){ 0 };
}
