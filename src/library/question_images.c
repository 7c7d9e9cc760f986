/* question_images.c - pictures of rows that no data tell: `sheaf plan --images`. */
#include "base/base.h"
#include "inputs/viewing.h"
#include "library/question.h"

/* What is asked of each row; width 0: of the tower's own size. */
typedef struct asked {
    int64_t count, width, height;
} asked;

static sheaf_status *refuse(const char *text)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--images");
    sheaf_expected(st, "how many pictures a row has, 0 to 1000, perhaps with their size in pixels");
    return sheaf_try_this(sheaf_found(st, "'%.60s'", text), "--images 2, or --images 2:1344x896");
}

/* "2", or "2:1344x896". */
static sheaf_status *read_text(asked *out, const char *text)
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
    *out = (asked){ n[0], n[1], n[2] };
    return NULL;
}

static sheaf_status *check_count(const sheaf_config *config, int64_t count)
{
    const sheaf__image_place *place = &sheaf__family_for(config)->image;
    const char *family = sheaf_family_name(config->family);
    sheaf_status *st = sheaf_found(sheaf_fail(SHEAF_E_ARG, "--images"), "%" PRId64, count);
    if (sheaf__image_positions(config) == 0)
        return sheaf_try_this(sheaf_expected(st, "none: %s has no vision tower", family),
                              "no --images");
    if (count > place->most)
        return sheaf_try_this(sheaf_expected(st, "at most %" PRId64 ": %s reads no more in a row",
                                             place->most, family),
                              "--images %" PRId64, place->most);
    if (count == 0 && place->needed)
        return sheaf_try_this(
            sheaf_expected(st, "1: the cross-attention of %s looks at it in every row", family),
            "no --images");
    sheaf_status_free(st);
    return NULL;
}

/* The pieces that pictures of a size fall into. */
static sheaf_status *divide(sheaf_batch_images *each, const sheaf_config *config, const asked *a,
                            const sheaf_events *events)
{
    sheaf__viewing viewing = { 0 };
    sheaf__sliced s;
    if (sheaf__family_for(config)->pictures != NULL)
        sheaf__viewing_of(&viewing, config);
    if (viewing.form.resolution == 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--images");
        sheaf_expected(st, "a number alone: %s makes every picture as large as its tower",
                       sheaf_family_name(config->family));
        return sheaf_try_this(sheaf_found(st, "a size, %" PRId64 "x%" PRId64, a->width, a->height),
                              "--images %" PRId64, a->count);
    }
    sheaf_status *st = sheaf_in(sheaf__view_divide(&s, a->width, a->height, &viewing), "--images");
    if (st != NULL)
        return st;
    const int64_t pieces = sheaf__sliced_count(&s), patch = viewing.tower[0].patch;
    int64_t sum = 0, most = 0;
    for (int64_t i = 0; i < pieces; i++) {
        const int64_t patches =
            sheaf__sliced_height(&s, i) / patch * (sheaf__sliced_width(&s, i) / patch);
        sum += patches;
        most = patches > most ? patches : most;
    }
    each->images = a->count * pieces;
    each->patches[0] = a->count * (viewing.tower[0].padded ? most * pieces : sum);
    sheaf_note(
        events,
        "a picture of %" PRId64 "x%" PRId64 " is seen whole%s: %" PRId64 " image%s for the tower",
        a->width, a->height, pieces > 1 ? " and in slices" : "", pieces, pieces > 1 ? "s" : "");
    return NULL;
}

sheaf_status *sheaf__question_images(sheaf__question *q, const sheaf_events *events)
{
    const sheaf_config *config = &q->opened.config;
    asked a = { sheaf__image_positions(config) > 0 ? 1 : 0, 0, 0 };
    sheaf_status *st = NULL;
    if (q->images_text != NULL)
        st = read_text(&a, q->images_text);
    if (st == NULL && q->images_text != NULL)
        st = check_count(config, a.count);
    if (st != NULL)
        return st;
    q->each = (sheaf_batch_images){ .images = a.count,
                                    .image_rows = a.count * sheaf__image_experts(config) };
    sheaf__patches_of(q->each.patches, config, a.count);
    return a.width == 0 ? NULL : divide(&q->each, config, &a, q->warned ? NULL : events);
}
