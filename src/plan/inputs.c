/* inputs.c - see inputs.h. */
#include "plan/inputs.h"

#include "base/base.h"
#include "inputs/viewing.h"
#include "models/sums.h"
#include "train/options.h"

void sheaf__warn_positions(const sheaf_config *config, const char *what, int64_t positions,
                           const sheaf_events *events)
{
    if (positions > config->max_position)
        sheaf_warn(events,
                   "%s: %" PRId64 " positions are more than the model's %s of %" PRId64
                   ": rotary embeddings go on beyond it, but the model was not made for that",
                   what, positions, sheaf_config_position_key(config), config->max_position);
}

void sheaf__plan_inputs_close(sheaf__plan_inputs *q)
{
    sheaf__sets_close(&q->sets);
    sheaf__selection_release(&q->selection);
    sheaf_lora_options_release(&q->fresh);
    sheaf__run_tokenizer_release(&q->tokenizer);
    sheaf__opened_close(&q->opened);
    q->fresh = (sheaf_lora_options){ 0 };
    q->o.tokens_in = NULL;
}

/* The name of the setting for positions of a row. */
static const char *seq_name(const sheaf__plan_inputs *q)
{
    return q->positions ? "`positions`" : "`seq`";
}

/* The images of a micro-batch: from the data, or assumed. */
static void count_images(sheaf__plan_inputs *q, const sheaf_events *events)
{
    sheaf_batch_images fewest,
        most = { .pictures.images = q->each.pictures.images * q->o.micro_batch };
    if (q->sets.data != NULL)
        sheaf_data_images_range(&fewest, &most, q->sets.data, q->o.micro_batch);
    else if (most.pictures.images > 0 && !q->warned && q->images_text == NULL)
        sheaf_note(events, "without `data` every row is taken to have an image%s",
                   sheaf__family_for(&q->opened.config)->image.most > 1 ? " (`images N`: several)"
                                                                        : "");
    q->images = most.pictures.images;
    q->warned = true;
}

static double padding_of(const sheaf__plan_inputs *q)
{
    const double samples = (double)q->o.steps * (double)q->o.accumulate * (double)q->o.micro_batch;
    if (q->place_text != NULL || sheaf__sets_samples(&q->o))
        return 0;
    return sheaf__subset_padding(&q->sets.train, &q->o,
                                 q->whole || samples >= 1e15 ? 0 : (int64_t)samples);
}

void sheaf__plan_inputs_count(sheaf__plan_inputs *q, const sheaf_events *events)
{
    if (q->sets.train.data != NULL) {
        q->seq = sheaf__sets_seq(&q->sets, &q->o);
        q->padding = padding_of(q);
    }
    count_images(q, events);
}

/* ---- pictures of rows without data: `sheaf plan --images` ---- */

/* The pictures of each row; width 0: at the tower's own size. */
typedef struct wanted_pictures {
    int64_t count, width, height;
} wanted_pictures;

static sheaf_status *refuse(const char *text)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`images`");
    sheaf_expected(st, "how many pictures a row has, 0 to 1000, perhaps with their size in pixels");
    return sheaf_try_this(sheaf_found(st, "'%.60s'", text), "`images 2`, or `images 2:1344x896`");
}

/* "2", or "2:1344x896". */
static sheaf_status *read_text(wanted_pictures *out, const char *text)
{
    static const char digits[] = "0123456789";
    int n[3] = { 0 }, counted = 0, sized = 0;
    const int got = strspn(text, digits) == 0
                        ? 0
                        : sscanf(text, "%4d%n:%5dx%5d%n", &n[0], &counted, &n[1], &n[2], &sized);
    const bool whole = got == 1 && text[counted] == '\0',
               with_size = got == 3 && text[sized] == '\0' && n[1] > 0 && n[2] > 0 &&
                           n[1] <= SHEAF_IMAGE_MAX_SIDE && n[2] <= SHEAF_IMAGE_MAX_SIDE;
    if ((!whole && !with_size) || n[0] > 1000)
        return refuse(text);
    *out = (wanted_pictures){ n[0], n[1], n[2] };
    return NULL;
}

static sheaf_status *check_count(const sheaf_config *config, int64_t count)
{
    const sheaf__image_place *place = &sheaf__family_for(config)->image;
    const char *family = sheaf_family_name(config->family);
    sheaf_status *st = sheaf_found(sheaf_fail(SHEAF_E_ARG, "`images`"), "%" PRId64, count);
    if (sheaf__image_positions(config) == 0)
        return sheaf_try_this(sheaf_expected(st, "none: %s has no vision tower", family),
                              "no `images`");
    if (count > place->most)
        return sheaf_try_this(sheaf_expected(st, "at most %" PRId64 ": %s reads no more in a row",
                                             place->most, family),
                              "`images %" PRId64 "`", place->most);
    if (count == 0 && place->needed)
        return sheaf_try_this(
            sheaf_expected(st, "1: the cross-attention of %s looks at it in every row", family),
            "no `images`");
    sheaf_status_free(st);
    return NULL;
}

/* The pieces of pictures of a size. */
static sheaf_status *divide(sheaf_batch_images *each, const sheaf_config *config,
                            const wanted_pictures *a, const sheaf_events *events)
{
    sheaf__viewing viewing;
    sheaf__sliced s;
    sheaf__viewing_of(&viewing, config);
    if (viewing.form.resolution == 0 && viewing.form.most == 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`images`");
        sheaf_expected(st, "a number alone: %s makes every picture as large as its tower",
                       sheaf_family_name(config->family));
        return sheaf_try_this(sheaf_found(st, "a size, %" PRId64 "x%" PRId64, a->width, a->height),
                              "`images %" PRId64 "`", a->count);
    }
    sheaf_status *st = sheaf_in(sheaf__view_divide(&s, a->width, a->height, &viewing), "`images`");
    if (st != NULL)
        return st;
    const int64_t pieces = sheaf__sliced_count(&s);
    sheaf__picture_counts one = { 0 };
    int64_t largest[SHEAF__MOST_TOWERS] = { 0 };
    for (int64_t i = 0; i < pieces; i++) {
        const sheaf__picture piece = sheaf__view_piece(&s, i);
        sheaf__counts_see(&one, largest, &piece, viewing.tower, viewing.towers);
    }
    each->pictures = (sheaf__picture_counts){ 0 };
    sheaf__counts_add(&each->pictures, &one, a->count);
    sheaf_note(
        events,
        "a picture of %" PRId64 "x%" PRId64 " is seen whole%s: %" PRId64 " image%s for the tower",
        a->width, a->height, pieces > 1 ? " and in slices" : "", pieces, pieces > 1 ? "s" : "");
    return NULL;
}

/* Sets q->each, the content of a row without data, from images_text. */
static sheaf_status *find_images(sheaf__plan_inputs *q, const sheaf_events *events)
{
    const sheaf_config *config = &q->opened.config;
    wanted_pictures a = { sheaf__image_positions(config) > 0 ? 1 : 0, 0, 0 };
    sheaf_status *st = NULL;
    if (q->images_text != NULL)
        st = read_text(&a, q->images_text);
    if (st == NULL && q->images_text != NULL)
        st = check_count(config, a.count);
    if (st != NULL)
        return st;
    q->each = (sheaf_batch_images){ .pictures = sheaf__counts_ordinary(config, a.count),
                                    .image_rows = a.count * sheaf__image_experts(config) };
    return a.width == 0 ? NULL : divide(&q->each, config, &a, q->warned ? NULL : events);
}

/* Tokens of a prompt before an answer: there must be room for one, and for the model's image. */
static sheaf_status *find_prompt(int64_t *prompt, const sheaf__plan_inputs *q, int64_t answer)
{
    const sheaf_config *config = &q->opened.config;
    const sheaf__picture_counts *each = &q->each.pictures;
    const int64_t rows = q->o.micro_batch > 0 ? q->o.micro_batch : 1,
                  one = each->images > 0 ? sheaf__counts_positions(config, each) / each->images
                                         : sheaf__image_positions(config),
                  image = (q->images + rows - 1) / rows * one;
    *prompt = q->seq - answer;
    if (*prompt > image)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "positions before the answer");
    sheaf_expected(st, "a prompt of at least %" PRId64 " positions", image + 1);
    sheaf_found(st, "%" PRId64 ": %" PRId64 " less %" PRId64, *prompt, q->seq, answer);
    return sheaf_try_this(st, "%s of %" PRId64 " or more, or a smaller `max-new`", seq_name(q),
                          image + 1 + answer);
}

/* ---- all of it ---- */

sheaf_status *sheaf__plan_inputs_open(sheaf__plan_inputs *q, const sheaf_events *events)
{
    sheaf_train_options *o = &q->o;
    const bool generates = q->place_text != NULL, samples = !generates && sheaf__sets_samples(o);
    sheaf__open_options how;
    sheaf__sums_note(o->device, o->sums, SHEAF_SUMS_UNNAMED, o->dtype, events);
    sheaf_status *st =
        sheaf__sums_choose(&q->o.sums, NULL, o->device, SHEAF_SUMS_UNNAMED, o->dtype);
    TRY(st, sheaf__train_options_open(&how, &q->fresh, o));
    how.config_only = how.new_run = true;
    how.events = events;
    if (generates)
        how.fresh = NULL;
    TRY(st, sheaf__open_model(&q->opened, &how));
    if (st == NULL && generates)
        st = sheaf_in(sheaf__placement_read(&q->place, q->place_text, q->opened.schema), "`place`");
    else if (st == NULL)
        st = sheaf__select(&q->selection, q->opened.schema, q->opened.lora, o, events);
    TRY(st, sheaf__opened_quantise(&q->opened, o->quantize, generates ? NULL : sheaf__selected,
                                   &q->selection));
    if (st == NULL && o->data != NULL && o->data[0] != '\0') {
        if (q->images_text != NULL && !q->warned)
            sheaf_note(events, "`images %s` has no effect: the data have pictures of their own",
                       q->images_text);
        st = sheaf__run_tokenizer_open(&q->tokenizer, o, &q->opened);
        q->o.tokens_in = q->tokenizer.folder;
        TRY(st, samples ? sheaf__sets_sample(&q->sets, o, &q->opened.config, q->sampler, events)
                        : sheaf__sets_open(&q->sets, o, &q->opened.config, events, NULL));
        if (st == NULL)
            q->data_bytes = sheaf__sets_memory(&q->sets);
    } else {
        TRY(st, samples
                    ? sheaf__sets_sample(&q->sets, o, &q->opened.config, q->sampler, events)
                    : sheaf__objective_read(&q->sets.objective, &o->objective, o->label_smoothing));
        TRY(st, find_images(q, events));
        if (st == NULL) /* sheaf_plan_seq() counts one image */
            q->seq = o->seq > 0
                         ? o->seq
                         : sheaf_plan_seq(&q->opened.config) +
                               sheaf__counts_positions(&q->opened.config, &q->each.pictures) -
                               sheaf__image_positions(&q->opened.config);
        if (st == NULL && !q->warned && sheaf__image_positions(&q->opened.config) == 0)
            sheaf__warn_positions(&q->opened.config, seq_name(q), q->seq, events);
    }
    if (st == NULL)
        sheaf__warmup_yield(o);
    if (st == NULL && !generates && (!q->whole || q->o.lr == 0))
        st = sheaf__rates_check(&q->o, events);
    if (st == NULL)
        sheaf__plan_inputs_count(q, events);
    if (st == NULL && samples && q->sets.data == NULL)
        st = find_prompt(&(int64_t){ 0 }, q, o->objective.group.max_new);
    return st;
}

sheaf__job sheaf__plan_inputs_job(const sheaf__plan_inputs *q)
{
    return (sheaf__job){ .options = &q->o,
                         .schema = q->opened.schema,
                         .lora = q->opened.lora,
                         .forms = sheaf__opened_forms(&q->opened),
                         .selection = &q->selection,
                         .objective = q->sets.objective,
                         .train = q->sets.train,
                         .eval = q->sets.eval,
                         .sampler = sheaf__sets_samples(&q->o) ? q->sampler : NULL,
                         .seq = q->seq,
                         .each = q->sets.data == NULL ? &q->each : NULL };
}

sheaf_status *sheaf__plan_inputs_generation(sheaf_plan_generation *out, const sheaf__plan_inputs *q,
                                            int64_t max_new)
{
    *out = (sheaf_plan_generation){ .schema = q->opened.schema,
                                    .lora = q->opened.lora,
                                    .forms = sheaf__opened_forms(&q->opened),
                                    .place = &q->place,
                                    .tp = q->o.tp,
                                    .groups = q->o.dp,
                                    .threads = q->o.threads,
                                    .device = q->o.device,
                                    .transport = q->o.transport,
                                    .dtype = q->o.dtype,
                                    .batch = q->o.micro_batch,
                                    .seq = q->seq };
    if (q->each.pictures.images > 0)
        sheaf__counts_add(&out->pictures, &q->each.pictures, q->o.micro_batch);
    else
        out->pictures = sheaf__counts_ordinary(&q->opened.config, q->images);
    return max_new > 0 ? find_prompt(&out->prompt, q, max_new) : NULL;
}

sheaf_status *sheaf__plan_inputs_answer(sheaf_plan *plan, const sheaf__plan_inputs *q)
{
    if (q->place_text != NULL) {
        sheaf_plan_generation request;
        sheaf_status *st = sheaf__plan_inputs_generation(&request, q, q->max_new);
        return st == NULL ? sheaf_plan_generate(plan, &request) : st;
    }
    const sheaf__job job = sheaf__plan_inputs_job(q);
    return sheaf_plan_train(plan, &job, (size_t)q->data_bytes);
}
