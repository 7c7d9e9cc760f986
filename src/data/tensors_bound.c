/* tensors_bound.c - images of a .safetensors file by their bounds, as for MiniCPM-V:
 *   image_bound     [n, 2] (or image_bounds): where each begins in its row, and the position behind
 *   images_per_row  [rows] how many of these are of each row; absent: all of the only one
 *   image_bound.R   [n, 2] in place of both: of row R
 *   temporal_ids    [n, most] (temporal_ids.R) of a video: the numbers of the frames that stand at
 *                   a bound together, behind them -1; of a picture -1 alone; absent: pictures
 *   image_R_J_chw   [channels, height, width] the J-th of row R, of whole patches, frames of a
 *                   video one by one; image_J_chw where there is one row */
#include "base/base.h"
#include "data/data_tensors.h"

enum { MOST_SIDE = 1 << 20 }; /* pixels */

/* The pixels of the j-th image of a row. */
static sheaf_status *find_pixels(const sheaf_safetensors_entry **out, const sheaf__tensors *in,
                                 int64_t row, int64_t j)
{
    const sheaf__tower *tower = &in->data->images->tower[0];
    char name[64];
    snprintf(name, sizeof name, "image_%" PRId64 "_%" PRId64 "_chw", row, j);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, name);
    if (e == NULL && in->rows == 1) {
        snprintf(name, sizeof name, "image_%" PRId64 "_chw", j);
        e = sheaf__safetensors_find(in->file, name);
    }
    if (e == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name),
                                          "the pixels of image %" PRId64 " of row %" PRId64, j + 1,
                                          row + 1),
                           "no such tensor");
    sheaf_status *st = sheaf__pixels_check_type(e);
    *out = e;
    if (st != NULL || (e->ndim == 3 && e->shape[0] == tower->channels && e->shape[1] > 0 &&
                       e->shape[2] > 0 && e->shape[1] <= MOST_SIDE && e->shape[2] <= MOST_SIDE &&
                       e->shape[1] % tower->patch == 0 && e->shape[2] % tower->patch == 0))
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name),
                        "[%" PRId64 ", height, width], each side a multiple of %" PRId64
                        " and at most %d",
                        tower->channels, tower->patch, MOST_SIDE);
    return sheaf__tensors_shape(st, e);
}

static bool holds_pixels(const sheaf_safetensors_entry *e)
{
    return strncmp(e->name, "image_", 6) == 0 && sheaf__ends_with(e->name, "_chw");
}

/* Refuses images without a bound. Those that have one are tensors of their own, so their number
 * tells. */
static sheaf_status *check_placed(const sheaf__tensors *in)
{
    int64_t held = 0;
    for (int64_t i = 0; i < in->file->header.count; i++)
        held += holds_pixels(&in->file->header.entry[i]);
    for (int64_t i = 0; i < in->file->header.count && held > in->images; i++) {
        const sheaf_safetensors_entry *e = &in->file->header.entry[i];
        int64_t k = 0;
        if (!holds_pixels(e))
            continue;
        while (k < in->images && in->image[k].pixels[0] != e)
            k++;
        if (k == in->images)
            return sheaf_try_this(
                sheaf_found(sheaf__tensors_bad(e->name, "a bound of this image in image_bound"),
                            "none"),
                "temporal_ids, where frames of a video stand at a bound together");
    }
    return NULL;
}

static int by_begin(const void *a, const void *b)
{
    const sheaf__found_image *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                                : (x->number > y->number) - (x->number < y->number);
}

/* The bounds of one row, and what stands at each. */
typedef struct bounds {
    const sheaf_safetensors_entry *bound, *frames; /* frames NULL: pictures alone */
    int64_t row, first, count;                     /* [first, first + count) of the tensor's */
} bounds;

static sheaf_status *bad_frames(const bounds *b, int64_t k, const char *expected, int64_t found)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': image %" PRId64,
                                                 b->frames->name, b->first + k + 1),
                                      "%s", expected),
                       "%" PRId64, found);
}

/* The numbers of the frames at bound k of a row, and how many there are; 0: a picture. */
static sheaf_status *read_frames(int64_t **number, int64_t *count, const sheaf__tensors *in,
                                 const bounds *b, int64_t k)
{
    const int64_t most = b->frames == NULL ? 0 : b->frames->shape[1],
                  allowed = in->data->images->tower[0].frames;
    char expected[96];
    *count = 0;
    if (most == 0)
        return NULL;
    int64_t *list = *number = malloc((size_t)most * sizeof *list);
    if (list == NULL)
        return sheaf__data_no_memory(most);
    sheaf_status *st = sheaf__tensors_numbers_in(list, in, b->frames, (b->first + k) * most, most);
    while (st == NULL && *count < most && list[*count] >= 0)
        ++*count;
    for (int64_t i = 0; i < most && st == NULL; i++)
        if (i < *count ? list[i] >= SHEAF__MOST_FRAME : list[i] != -1)
            st = bad_frames(b, k, "numbers of frames from 0 to 16777215, then -1", list[i]);
    if (st != NULL || *count <= allowed)
        return st;
    if (allowed == 0)
        return sheaf_in(sheaf__no_videos(in->config), "'%s'", b->frames->name);
    snprintf(expected, sizeof expected, "at most %" PRId64 " frames in a group", allowed);
    return bad_frames(b, k, expected, *count);
}

/* One bound: a picture, or the frames of a group. */
static sheaf_status *find_at(sheaf__tensors *in, const bounds *b, int64_t k, const int64_t at[2],
                             int64_t *taken)
{
    const int64_t rows = in->data->images->tower[0].gives;
    int64_t *number = NULL, count = 0;
    if (at[0] < 0 || at[1] > in->length || at[0] > at[1] || at[1] - at[0] != rows)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': image %" PRId64,
                                                     b->bound->name, b->first + k + 1),
                                          "%" PRId64 " positions of row %" PRId64
                                          ", from 0 to %" PRId64,
                                          rows, b->row + 1, in->length),
                           "[%" PRId64 ", %" PRId64 "]", at[0], at[1]);
    sheaf_status *st = read_frames(&number, &count, in, b, k);
    const int64_t n = count > 0 ? count : 1;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_safetensors_entry *pixels = NULL;
        st = find_pixels(&pixels, in, b->row, *taken + i);
        if (st == NULL)
            st = sheaf__tensors_image_add(
                in, &(sheaf__found_image){ .row = b->row,
                                           .begin = at[0],
                                           .pixels = { pixels },
                                           .frame = count > 0 ? (int32_t)(number[i] + 1) : 0,
                                           .joins = i > 0,
                                           .height = pixels->shape[1],
                                           .width = pixels->shape[2] });
    }
    *taken += n;
    free(number);
    return st;
}

/* Finds the images of one row; sorts in->image by place. */
static sheaf_status *find_in_row(sheaf__tensors *in, const bounds *b)
{
    const int64_t rows = in->data->images->tower[0].gives, before = in->images;
    int64_t(*bound)[2] = malloc(((size_t)b->count + 1) * sizeof *bound), taken = 0;
    sheaf_status *st = bound == NULL ? sheaf__data_no_memory(b->count) : NULL;
    TRY(st, b->count == 0
                ? NULL
                : sheaf__tensors_numbers_in(bound[0], in, b->bound, 2 * b->first, 2 * b->count));
    for (int64_t k = 0; k < b->count && st == NULL; k++)
        st = find_at(in, b, k, bound[k], &taken);
    free(bound);
    const int64_t n = in->images - before;
    if (st != NULL || n == 0)
        return st;
    sheaf__found_image *of = in->image + before;
    qsort(of, (size_t)n, sizeof *of, by_begin);
    for (int64_t k = 1; k < n; k++)
        if (!of[k].joins && of[k].begin < of[k - 1].begin + rows)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64,
                                                         b->bound->name, b->row + 1),
                                              "images that do not overlap"),
                               "one from %" PRId64 " to %" PRId64 " and one from %" PRId64,
                               of[k - 1].begin, of[k - 1].begin + rows, of[k].begin);
    return NULL;
}

static sheaf_status *check_bounds(const bounds *b)
{
    const sheaf_safetensors_entry *e = b->bound;
    sheaf_status *st = sheaf__tensors_table(e, 2, (const int64_t[]){ -1, 2 },
                                            "[images, 2], I32 or I64: where each image begins in "
                                            "its row, and the position behind it");
    if (st != NULL || b->frames == NULL)
        return st;
    return sheaf__tensors_table(b->frames, 2, (const int64_t[]){ e->shape[0], -1 },
                                "[images, frames], I32 or I64: for each bound the numbers of its "
                                "frames, -1 behind them");
}

/* "image_bound", of all rows, or "image_bound.R" and so on. */
static const sheaf_safetensors_entry *entry_of(const sheaf__tensors *in, const char *what,
                                               bool together, int64_t row)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%" PRId64, what, row);
    return sheaf__safetensors_find(in->file, together ? what : name);
}

static sheaf_status *bad_count(int64_t row, const char *most, int64_t n, int64_t found)
{
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64, SHEAF__PER_ROW, row + 1),
                       "%s%" PRId64 ", %s", most, n,
                       *most == '\0' ? "as many as there are bounds" : "the bounds that are left"),
        "%" PRId64, found);
}

/* Bounds of all rows in one tensor: how many are the next row's; of the last row all. */
static sheaf_status *count_next(bounds *b, const sheaf__tensors *in, const int64_t *declared)
{
    const int64_t n = b->bound->shape[0] - b->first;
    b->count = declared == NULL ? n : declared[b->row];
    if (declared == NULL && in->rows > 1 && n > 0)
        return sheaf_found(sheaf__tensors_bad(SHEAF__PER_ROW, "how many images each row has"),
                           "no such tensor, and %" PRId64 " rows", in->rows);
    if (b->count < 0 || b->count > n)
        return bad_count(b->row, "0 to ", n, b->count);
    if (b->row + 1 < in->rows || b->count == n)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", SHEAF__PER_ROW),
                                      "%" PRId64 " in all, as many as there are bounds",
                                      b->bound->shape[0]),
                       "%" PRId64, b->first + b->count);
}

sheaf_status *sheaf__bound_find(sheaf__tensors *in)
{
    const char *name = sheaf__safetensors_find(in->file, "image_bound") == NULL &&
                               sheaf__safetensors_find(in->file, "image_bounds") != NULL
                           ? "image_bounds"
                           : "image_bound";
    const bool together = sheaf__safetensors_find(in->file, name) != NULL;
    int64_t *declared;
    bounds b = { NULL };
    sheaf_status *st = sheaf__tensors_per_row(&declared, in);
    for (b.row = 0; b.row < in->rows && st == NULL; b.row++) {
        b.bound = entry_of(in, name, together, b.row);
        b.frames = entry_of(in, "temporal_ids", together, b.row);
        b.count = 0;
        st = b.bound == NULL ? NULL : check_bounds(&b);
        if (st == NULL && together)
            st = count_next(&b, in, declared);
        else if (st == NULL && b.bound != NULL)
            b.count = b.bound->shape[0];
        if (st == NULL && !together && declared != NULL && declared[b.row] != b.count)
            st = bad_count(b.row, "", b.count, declared[b.row]);
        TRY(st, find_in_row(in, &b));
        b.first += together ? b.count : 0;
    }
    free(declared);
    return TRY(st, check_placed(in));
}
