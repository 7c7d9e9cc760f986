/* tensors_bound.c - images of a .safetensors file by their bounds, as for MiniCPM-V:
 *   image_bound     [n, 2] (or image_bounds): where each begins in its row, and the position behind
 *   images_per_row  [rows] how many of these are of each row; absent: all of the only one
 *   image_R_J_chw   [channels, height, width] the J-th of row R, of whole patches; image_J_chw
 * where there is one row */
#include "base/base.h"
#include "data/data_tensors.h"

static const char per_row[] = "images_per_row";
enum { MOST_SIDE = 1 << 20 }; /* pixels */

static const sheaf_safetensors_entry *bounds_of(const sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, "image_bound");
    return e != NULL ? e : sheaf__safetensors_find(in->file, "image_bounds");
}

static bool of_whole_numbers(const sheaf_safetensors_entry *e)
{
    return e->dtype == SHEAF_I32 || e->dtype == SHEAF_I64;
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
    if (!of_whole_numbers(e) || e->ndim != 1 || e->shape[0] != in->rows)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", per_row),
                                          "[%" PRId64 "], I32 or I64", in->rows),
                           "%s of %d axes, %" PRId64 " in the first", sheaf_dtype_name(e->dtype),
                           e->ndim, e->ndim > 0 ? e->shape[0] : 0);
    sheaf_status *st = sheaf__tensors_numbers_in(count, in, e, 0, in->rows);
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        if (count[r] < 0 || count[r] > n - sum)
            st = sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64, per_row, r + 1),
                               "0 to %" PRId64 ", the bounds that are left", n - sum),
                "%" PRId64, count[r]);
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

/* Refuses images without a bound. */
static sheaf_status *check_placed(const sheaf__tensors *in)
{
    for (int64_t i = 0; i < in->file->header.count; i++) {
        const sheaf_safetensors_entry *e = &in->file->header.entry[i];
        int64_t k = 0;
        if (strncmp(e->name, "image_", 6) != 0 || !sheaf__ends_with(e->name, "_chw"))
            continue;
        while (k < in->images && in->image[k].pixels[0] != e)
            k++;
        if (k == in->images)
            return sheaf_found(sheaf__tensors_bad(e->name, "a bound of this image in image_bound"),
                               "none");
    }
    return NULL;
}

static int by_begin(const void *a, const void *b)
{
    const sheaf__found_image *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Finds the images of one row: bound[k] is of image k; sorts in->image by place. */
static sheaf_status *find_in_row(sheaf__tensors *in, const int64_t (*bound)[2], int64_t row,
                                 int64_t count)
{
    const int64_t rows = in->data->images->tower[0].gives;
    sheaf__found_image *of = in->image + in->images;
    sheaf_status *st = NULL;
    for (int64_t k = 0; k < count && st == NULL; k++) {
        const int64_t begin = bound[k][0], end = bound[k][1];
        if (begin < 0 || end > in->length || begin > end || end - begin != rows)
            return sheaf_found(
                sheaf_expected(
                    sheaf_fail(SHEAF_E_DATA, "'image_bound': image %" PRId64, in->images + k + 1),
                    "%" PRId64 " positions of row %" PRId64 ", from 0 to %" PRId64, rows, row + 1,
                    in->length),
                "[%" PRId64 ", %" PRId64 "]", begin, end);
        of[k] = (sheaf__found_image){ .row = row, .begin = begin };
        st = find_pixels(&of[k].pixels[0], in, row, k);
    }
    if (st != NULL)
        return st;
    qsort(of, (size_t)count, sizeof *of, by_begin);
    for (int64_t k = 1; k < count; k++)
        if (of[k].begin < of[k - 1].begin + rows)
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'image_bound': row %" PRId64, row + 1),
                               "images that do not overlap"),
                "one from %" PRId64 " to %" PRId64 " and one from %" PRId64, of[k - 1].begin,
                of[k - 1].begin + rows, of[k].begin);
    in->images += count;
    return NULL;
}

static sheaf_status *find(sheaf__tensors *in, int64_t (*bound)[2], int64_t *count, int64_t n)
{
    const sheaf_safetensors_entry *e = bounds_of(in);
    sheaf_status *st = n == 0 ? NULL : sheaf__tensors_numbers_in(bound[0], in, e, 0, 2 * n);
    TRY(st, count_rows(count, in, n));
    for (int64_t r = 0; r < in->rows && st == NULL; r++)
        st = find_in_row(in, (const int64_t(*)[2])bound + in->images, r, count[r]);
    return TRY(st, check_placed(in));
}

sheaf_status *sheaf__bound_find(sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = bounds_of(in);
    if (e != NULL && (!of_whole_numbers(e) || e->ndim != 2 || e->shape[1] != 2)) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", e->name),
                                          "[images, 2], I32 or I64: where each image begins in its "
                                          "row, and the position behind it");
        return of_whole_numbers(e) ? sheaf__tensors_shape(st, e)
                                   : sheaf_found(st, "%s", sheaf_dtype_name(e->dtype));
    }
    const int64_t n = e == NULL ? 0 : e->shape[0];
    int64_t(*bound)[2] = malloc(((size_t)n + 1) * sizeof *bound),
    *count = calloc((size_t)in->rows, sizeof *count);
    in->image = malloc(((size_t)n + 1) * sizeof *in->image);
    sheaf_status *st = bound == NULL || count == NULL || in->image == NULL
                           ? sheaf__data_no_memory(n)
                           : find(in, bound, count, n);
    free(bound);
    free(count);
    return st;
}
