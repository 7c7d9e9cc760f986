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

static const char per_row[] = "images_per_row";
enum { MOST_SIDE = 1 << 20 }; /* pixels */

static const sheaf_safetensors_entry *bounds_of(const sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, "image_bound");
    return e != NULL ? e : sheaf__safetensors_find(in->file, "image_bounds");
}

/* images_per_row, as it is. */
static sheaf_status *read_per_row(int64_t *count, const sheaf__tensors *in,
                                  const sheaf_safetensors_entry *e)
{
    if (!sheaf__tensors_whole(e) || e->ndim != 1 || e->shape[0] != in->rows)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", per_row),
                                          "[%" PRId64 "], I32 or I64", in->rows),
                           "%s of %d axes, %" PRId64 " in the first", sheaf_dtype_name(e->dtype),
                           e->ndim, e->ndim > 0 ? e->shape[0] : 0);
    return sheaf__tensors_numbers_in(count, in, e, 0, in->rows);
}

static sheaf_status *bad_count(int64_t row, int64_t least, int64_t most, int64_t found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64, per_row, row + 1);
    if (least == most)
        sheaf_expected(st, "%" PRId64 ", as many as there are bounds", most);
    else
        sheaf_expected(st, "0 to %" PRId64 ", the bounds that are left", most);
    return sheaf_found(st, "%" PRId64, found);
}

/* Fills count[rows], which sum to n. */
static sheaf_status *count_rows(int64_t *count, const sheaf__tensors *in, int64_t n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, per_row);
    int64_t sum = 0;
    if (e == NULL && in->rows > 1 && n > 0)
        return sheaf_found(sheaf__tensors_bad(per_row, "how many images each row has"),
                           "no such tensor, and %" PRId64 " rows", in->rows);
    if (e == NULL) {
        count[0] = n;
        return NULL;
    }
    sheaf_status *st = read_per_row(count, in, e);
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        if (count[r] < 0 || count[r] > n - sum)
            st = bad_count(r, -1, n - sum, count[r]);
        sum += count[r];
    }
    if (st == NULL && sum != n)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", per_row),
                                        "%" PRId64 " in all, as many as there are bounds", n),
                         "%" PRId64, sum);
    return st;
}

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

/* Shape and type of a tensor of whole numbers with so many rows (-1: any) and columns (-1). */
static sheaf_status *check_table(const sheaf_safetensors_entry *e, int64_t rows, int64_t cols,
                                 const char *expected)
{
    if (sheaf__tensors_whole(e) && e->ndim == 2 && (rows < 0 || e->shape[0] == rows) &&
        (cols < 0 ? e->shape[1] > 0 : e->shape[1] == cols))
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", e->name), "%s", expected);
    return sheaf__tensors_whole(e) ? sheaf__tensors_shape(st, e)
                                   : sheaf_found(st, "%s", sheaf_dtype_name(e->dtype));
}

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
        TRY(st, sheaf__tensors_image_add(in, b->row, at[0]));
        if (st != NULL)
            break;
        sheaf__found_image *of = &in->image[in->images - 1];
        of->frame.frame = count > 0 ? (int32_t)(number[i] + 1) : 0;
        of->frame.joins = i > 0;
        of->pixels[0] = pixels;
        of->height = pixels->shape[1];
        of->width = pixels->shape[2];
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
        if (!of[k].frame.joins && of[k].begin < of[k - 1].begin + rows)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64,
                                                         b->bound->name, b->row + 1),
                                              "images that do not overlap"),
                               "one from %" PRId64 " to %" PRId64 " and one from %" PRId64,
                               of[k - 1].begin, of[k - 1].begin + rows, of[k].begin);
    return NULL;
}

static const char shape_of_bounds[] = "[images, 2], I32 or I64: where each image begins in its "
                                      "row, and the position behind it",
                  shape_of_frames[] = "[images, frames], I32 or I64: for each bound the numbers of "
                                      "its frames, -1 behind them";

static sheaf_status *check_bounds(const bounds *b)
{
    sheaf_status *st = check_table(b->bound, -1, 2, shape_of_bounds);
    return TRY(st, b->frames == NULL
                       ? NULL
                       : check_table(b->frames, b->bound->shape[0], -1, shape_of_frames));
}

/* "image_bound.R" and so on. */
static const sheaf_safetensors_entry *entry_of(const sheaf__tensors *in, const char *what,
                                               int64_t row)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%" PRId64, what, row);
    return sheaf__safetensors_find(in->file, name);
}

/* Bounds of all rows in one tensor. */
static sheaf_status *find_together(sheaf__tensors *in, const sheaf_safetensors_entry *e)
{
    bounds b = { e, sheaf__safetensors_find(in->file, "temporal_ids"), 0, 0, 0 };
    int64_t *count = calloc((size_t)in->rows, sizeof *count);
    sheaf_status *st = count == NULL ? sheaf__data_no_memory(in->rows) : check_bounds(&b);
    TRY(st, count_rows(count, in, e->shape[0]));
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        b.row = r;
        b.count = count[r];
        st = find_in_row(in, &b);
        b.first += count[r];
    }
    free(count);
    return st;
}

/* Each row's own tensors; images_per_row may say how many there are. */
static sheaf_status *find_by_row(sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, per_row);
    int64_t *count = calloc((size_t)in->rows, sizeof *count);
    sheaf_status *st = count == NULL ? sheaf__data_no_memory(in->rows)
                       : e == NULL   ? NULL
                                     : read_per_row(count, in, e);
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        bounds b = { entry_of(in, "image_bound", r), entry_of(in, "temporal_ids", r), r, 0, 0 };
        st = b.bound == NULL ? NULL : check_bounds(&b);
        b.count = b.bound == NULL || st != NULL ? 0 : b.bound->shape[0];
        if (st == NULL && e != NULL && count[r] != b.count)
            st = bad_count(r, b.count, b.count, count[r]);
        TRY(st, find_in_row(in, &b));
    }
    free(count);
    return st;
}

sheaf_status *sheaf__bound_find(sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = bounds_of(in);
    sheaf_status *st = e != NULL ? find_together(in, e) : find_by_row(in);
    return TRY(st, check_placed(in));
}
