/* picture_keys.c - see picture_keys.h. */
#include "schema/picture_keys.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "schema/config_keys.h"

/* transformers takes null for false here. */
static const sheaf_unsupported_key steps[] = {
    { "do_resize", SHEAF_NEUTRAL_TRUE, "leaves pictures as large as they are" },
    { "do_rescale", SHEAF_NEUTRAL_TRUE, "leaves bytes as they are" },
    { "do_normalize", SHEAF_NEUTRAL_TRUE, "leaves out mean and deviation" },
    { "do_convert_rgb", SHEAF_NEUTRAL_TRUE, "leaves grey and transparent pictures as they are" },
    { NULL },
};
static const sheaf_unsupported_key crops[] = {
    { "do_center_crop", SHEAF_NEUTRAL_ZERO, "cuts off the edges" },
    { "do_pad", SHEAF_NEUTRAL_ZERO, "puts edges around pictures" },
    { NULL },
};

static void check(sheaf_json_reader *r, const sheaf_unsupported_key *keys)
{
    sheaf_text unknown = { 0 };
    sheaf__config_keys(r, &(sheaf__key_lists){ .unsupported = keys }, &unknown);
    sheaf__text_release(&unknown);
}

void sheaf__picture_keys(sheaf_json_reader *r)
{
    static const char resample[] = "resample";
    const json_t *value = json_object_get(r->object, resample);
    check(r, steps);
    if (value != NULL && !(json_is_integer(value) && json_integer_value(value) == 3))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, resample, "3, or no such key: bicubic");
    if (fabs(sheaf__json_real(r, "rescale_factor", -1e9, 1e9, 1.0 / 255) * 255 - 1) > 1e-9)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "rescale_factor", "1/255, 0.00392156862745098");
}

/* {"height": H, "width": W}, or a number for both. */
static bool is_size(const json_t *value, const sheaf__tower *tower)
{
    const json_t *height = json_is_object(value) ? json_object_get(value, "height") : value,
                 *width = json_is_object(value) ? json_object_get(value, "width") : value;
    return json_is_integer(height) && json_is_integer(width) &&
           json_integer_value(height) == tower->height && json_integer_value(width) == tower->width;
}

void sheaf__picture_keys_fixed(sheaf_json_reader *r, const sheaf__tower *tower)
{
    const json_t *size = json_object_get(r->object, "size");
    check(r, crops);
    if (size != NULL && !json_is_null(size) && !is_size(size, tower))
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "size",
                         "{\"height\": %" PRId64 ", \"width\": %" PRId64
                         "}, of the tower: pictures are resized to it whatever their shape",
                         tower->height, tower->width);
}

void sheaf__picture_keys_scale(sheaf_json_reader *r, const char *key, float out[3])
{
    const json_t *value = json_object_get(r->object, key);
    const bool one = json_is_number(value);
    if (value == NULL || json_is_null(value))
        return;
    for (size_t i = 0; i < 3; i++) {
        const json_t *x = one ? value : json_array_get(value, i);
        if ((!one && json_array_size(value) != 3) || !json_is_number(x) ||
            !(fabs(json_number_value(x)) < 1e6)) {
            sheaf__json_fail(r, SHEAF_E_FORMAT, key, "a list of three numbers");
            return;
        }
        out[i] = (float)json_number_value(x);
    }
}

void sheaf__picture_keys_same(sheaf_json_reader *r, const char *key, const float wanted[3])
{
    float is[3] = { wanted[0], wanted[1], wanted[2] };
    sheaf__picture_keys_scale(r, key, is);
    if (memcmp(is, wanted, sizeof is) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "[%.9g, %.9g, %.9g]", (double)wanted[0],
                         (double)wanted[1], (double)wanted[2]);
}

void sheaf__picture_keys_whole(sheaf_json_reader *r, const char *key, int64_t wanted,
                               const char *where)
{
    const int64_t n = sheaf__json_int(r, key, 1, 1 << 16, wanted);
    if (n != wanted)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "%" PRId64 ", as %s", wanted, where);
}
