/* tensors_read.c - what readers of a .safetensors file of rows share: numbers, masks, pixels and
 * errors. */
#include <math.h>

#include "base/base.h"
#include "data/data_tensors.h"
#include "ops/kernels.h"

sheaf_status *sheaf__tensors_bad(const char *name, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name), "%s", expected);
}

sheaf_status *sheaf__tensors_shape(sheaf_status *st, const sheaf_safetensors_entry *entry)
{
    sheaf_text text = { 0 };
    for (int i = 0; i < entry->ndim; i++)
        sheaf__text_add(&text, "%s%" PRId64, i == 0 ? "[" : ", ", entry->shape[i]);
    sheaf__text_add(&text, "]");
    st = text.failed ? sheaf_found(st, "%d axes", entry->ndim)
                     : sheaf_found(st, "%s", entry->ndim == 0 ? "no axis" : text.at);
    sheaf__text_release(&text);
    return st;
}

sheaf_status *sheaf__tensors_table(const sheaf_safetensors_entry *e, int ndim, const int64_t *shape,
                                   const char *expected)
{
    bool same = e->ndim == ndim;
    if (!sheaf__tensors_whole(e))
        return sheaf_found(sheaf__tensors_bad(e->name, "I32 or I64"), "%s",
                           sheaf_dtype_name(e->dtype));
    for (int i = 0; i < ndim && same; i++)
        same = shape[i] < 0 || e->shape[i] == shape[i];
    return same ? NULL : sheaf__tensors_shape(sheaf__tensors_bad(e->name, expected), e);
}

sheaf_status *sheaf__tensors_per_row(int64_t **out, const sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, SHEAF__PER_ROW);
    *out = NULL;
    sheaf_status *st =
        e == NULL ? NULL : sheaf__tensors_table(e, 1, &in->rows, "one number for each row");
    if (e == NULL || st != NULL)
        return st;
    *out = malloc((size_t)in->rows * sizeof **out);
    return *out == NULL ? sheaf__data_no_memory(in->rows)
                        : sheaf__tensors_numbers_in(*out, in, e, 0, in->rows);
}

sheaf_status *sheaf__tensors_bad_value(const sheaf__tensors *in, const char *name, int64_t index,
                                       int64_t value)
{
    return sheaf_found(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64 ", position %" PRId64, name,
                                  index / in->length + 1, index % in->length + 1),
                       "%" PRId64, value);
}

static int64_t whole_number(const void *at, int64_t bytes, int64_t i)
{
    if (bytes == 1)
        return ((const uint8_t *)at)[i];
    return bytes == 8 ? ((const int64_t *)at)[i] : ((const int32_t *)at)[i];
}

sheaf_status *sheaf__tensors_numbers_in(int64_t *out, const sheaf__tensors *in,
                                        const sheaf_safetensors_entry *entry, int64_t first,
                                        int64_t count)
{
    const int64_t item = (int64_t)sheaf_dtype_bytes(entry->dtype);
    sheaf_status *st = sheaf__safetensors_read(in->file, entry, first * item, out, count * item);
    for (int64_t i = count; i-- > 0 && st == NULL;) /* narrower numbers fill the beginning */
        out[i] = whole_number(out, item, i);
    return st;
}

/* Calls take(in, index, value) for every element. */
sheaf_status *sheaf__tensors_each(sheaf__tensors *in, const char *name,
                                  sheaf_status *(*take)(sheaf__tensors *in, const char *name,
                                                        int64_t index, int64_t value))
{
    const sheaf_safetensors_entry *entry = sheaf__safetensors_find(in->file, name);
    const int64_t item = (int64_t)sheaf_dtype_bytes(entry->dtype), total = in->rows * in->length;
    for (int64_t done = 0; done < total; done += SHEAF__TENSORS_CHUNK) {
        const int64_t n = total - done < SHEAF__TENSORS_CHUNK ? total - done : SHEAF__TENSORS_CHUNK;
        sheaf_status *st =
            sheaf__safetensors_read(in->file, entry, done * item, in->chunk, n * item);
        for (int64_t i = 0; i < n && st == NULL; i++)
            st = take(in, name, done + i, whole_number(in->chunk, item, i));
        if (st != NULL)
            return st;
    }
    return NULL;
}

static sheaf_status *take_mask(sheaf__tensors *in, const char *name, int64_t index, int64_t value)
{
    if (value != 0 && value != 1) {
        sheaf_status *st =
            sheaf_expected(sheaf__tensors_bad_value(in, name, index, value), "0 or 1");
        return strcmp(name, "attention_mask") != 0 || value < 2
                   ? st
                   : sheaf_try_this(st, "if it numbers the records of a row, leave it out: "
                                        "position_ids that restart keep records apart");
    }
    in->mask[index] = (uint8_t)value;
    return NULL;
}

sheaf_status *sheaf__tensors_mask(sheaf__tensors *in, const char *name, uint8_t *mask)
{
    in->mask = mask;
    return sheaf__tensors_each(in, name, take_mask);
}

/* ---- pixels ---- */

sheaf_status *sheaf__pixels_check_type(const sheaf_safetensors_entry *e)
{
    if (e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16)
        return NULL;
    return sheaf_found(sheaf__tensors_bad(e->name, "F32, BF16 or F16"), "%s",
                       sheaf_dtype_name(e->dtype));
}

sheaf_status *sheaf__pixels_read(float *dst, const sheaf_safetensors *file,
                                 const sheaf_safetensors_entry *e, int64_t item, int64_t n)
{
    const int64_t bytes = n * (int64_t)sheaf_dtype_bytes(e->dtype);
    if (e->dtype == SHEAF_F32)
        return sheaf__safetensors_read(file, e, item * bytes, dst, bytes);
    void *half = malloc((size_t)bytes);
    sheaf_status *st = half == NULL ? sheaf__data_no_memory(n)
                                    : sheaf__safetensors_read(file, e, item * bytes, half, bytes);
    if (st == NULL)
        sheaf__kernels_for(NULL)->convert(dst, SHEAF_F32, half, e->dtype, n);
    free(half);
    return st;
}

sheaf_status *sheaf__pixels_check(const float *pixels, const sheaf_safetensors_entry *e,
                                  int64_t item, int64_t n)
{
    const int64_t width = e->shape[e->ndim - 1], height = e->shape[e->ndim - 2];
    int64_t i = 0;
    while (i < n && isfinite(pixels[i]))
        i++;
    if (i == n)
        return NULL;
    char image[48] = "";
    if (e->ndim > 3)
        snprintf(image, sizeof image, "image %" PRId64 ", ", item + 1);
    sheaf_status *st =
        sheaf_fail(SHEAF_E_DATA, "'%s': %schannel %" PRId64 ", row %" PRId64 ", column %" PRId64,
                   e->name, image, i / (height * width) + 1, i / width % height + 1, i % width + 1);
    sheaf_found(sheaf_expected(st, "finite numbers"), "%s",
                isnan(pixels[i])   ? "nan"
                : pixels[i] < 0.0f ? "-inf"
                                   : "inf");
    return sheaf_try_this(st,
                          "the program that made this file wrote them: make this picture again");
}

sheaf_status *sheaf__tensors_stack(sheaf__tensors *in, const char *name, int tower, int64_t images,
                                   const char *each)
{
    const sheaf__tower *t = &in->data->images->tower[tower];
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, name);
    const int64_t shape[] = { images, t->channels, t->height, t->width };
    sheaf_status *st = e == NULL ? NULL : sheaf__pixels_check_type(e);
    for (int64_t i = 0; i < in->images; i++)
        in->image[i].pixels[tower] = e;
    if (st != NULL || (e != NULL && sheaf__same_shape(e->ndim, e->shape, 4, shape)))
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", name),
                        "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]%s", images,
                        t->channels, t->height, t->width, each);
    return e == NULL ? sheaf_found(st, "no such tensor") : sheaf__tensors_shape(st, e);
}

sheaf_status *sheaf__tensors_image_add(sheaf__tensors *in, const sheaf__found_image *image)
{
    if (!SHEAF_GROW(&in->image, &in->image_capacity, in->images + 1))
        return sheaf__data_no_memory(in->images);
    in->image[in->images] = *image;
    in->image[in->images].number = in->images;
    in->images++;
    return NULL;
}
