/* tensors_masked.c - images of a .safetensors file by masks of their positions, one in each row, as
 * for CogVLM and CogAgent: the tensors that data_images.h lists. */
#include "base/base.h"
#include "data/data_tensors.h"

/* The tensors of the images, by tower: one for each row, or, as programs on the hub have them, one
 * for each row with an image. */
static const char *const images_of[][2] = { { "vision_image", "images" },
                                            { "cross_image", "cross_images" } };
enum { MOST_IMAGES = sizeof images_of / sizeof *images_of };

/* Files of programs on the hub may hold further tensors. */
static bool is_hubs(const sheaf__tensors *in)
{
    return sheaf__safetensors_find(in->file, "images_per_row") != NULL ||
           sheaf__safetensors_find(in->file, images_of[0][1]) != NULL;
}

static const char *image_name(const sheaf__tensors *in, int tower)
{
    return images_of[tower][is_hubs(in)];
}

bool sheaf__masked_known(const sheaf__tensors *in, const char *name)
{
    for (int t = 0; t < in->data->images->towers && t < MOST_IMAGES; t++)
        if (strcmp(name, images_of[t][0]) == 0)
            return true;
    /* masks are known as tensors of rows */
    return strcmp(name, "context_length") == 0 || is_hubs(in);
}

/* Does the file mark an image's positions at all? */
static const char *embed_name(const sheaf__tensors *in)
{
    if (sheaf__safetensors_find(in->file, "image_embed_mask") != NULL)
        return "image_embed_mask";
    return sheaf__safetensors_find(in->file, "token_type_ids") != NULL ? "token_type_ids" : NULL;
}

static sheaf_status *check_pixels(sheaf__tensors *in, int tower, int64_t images)
{
    return sheaf__tensors_stack(in, image_name(in, tower), tower, images,
                                is_hubs(in) ? ", an image for each row that marks one" : "");
}

/* Images without a mask for their places would be ignored silently. */
static sheaf_status *check_placed(const sheaf__tensors *in, const char *name)
{
    if (embed_name(in) != NULL || sheaf__safetensors_find(in->file, name) == NULL)
        return NULL;
    sheaf_status *st =
        sheaf__tensors_bad(name, "image_embed_mask or token_type_ids beside it, which marks BOI, "
                                 "patches and EOI of the image in each row");
    return sheaf_try_this(sheaf_found(st, "neither"),
                          "write one of them, or leave the images out of the file");
}

sheaf_status *sheaf__masked_check(sheaf__tensors *in)
{
    const sheaf__data_images *images = in->data->images;
    sheaf_status *st = NULL;
    if (images->towers > MOST_IMAGES)
        return sheaf_found(sheaf__tensors_bad(image_name(in, 0), "images of at most two towers"),
                           "%d", images->towers);
    for (int t = 0; embed_name(in) != NULL && !is_hubs(in) && t < images->towers && st == NULL; t++)
        st = check_pixels(in, t, in->rows);
    for (int t = 0; t < images->towers && st == NULL; t++)
        st = check_placed(in, image_name(in, t));
    return st;
}

/* If a file has both names, their values must agree. */
static sheaf_status *check_types(sheaf__tensors *in)
{
    static const char other[] = "token_type_ids";
    const int64_t n = in->data->tokens;
    const uint8_t *embed = in->data->images->embed;
    const char *name = embed_name(in);
    if (name == NULL || strcmp(name, other) == 0 ||
        sheaf__safetensors_find(in->file, other) == NULL)
        return NULL;
    uint8_t *types = malloc((size_t)n + 1);
    sheaf_status *st =
        types == NULL ? sheaf__data_no_memory(n) : sheaf__tensors_mask(in, other, types);
    for (int64_t i = 0; i < n && st == NULL; i++)
        if (types[i] != embed[i])
            st = sheaf_expected(sheaf__tensors_bad_value(in, other, i, types[i]),
                                "%d, as %s has it: both mark the images", embed[i], name);
    free(types);
    return st;
}

/* Position ids of a row from its patches: a counter that does not advance from patch to patch. */
static void count_positions(int32_t *position, const uint8_t *patch, int64_t n)
{
    int32_t next = 0;
    for (int64_t t = 0; t < n; t++) {
        next += t > 0 && !(patch[t] && patch[t - 1]);
        position[t] = next;
    }
}

/* Masks that the file leaves out follow from those it has. */
sheaf_status *sheaf__masked_places(sheaf__tensors *in)
{
    sheaf_data *data = in->data;
    sheaf__data_images *images = data->images;
    sheaf_status *st = sheaf__data_images_rows_new(data);
    if (st == NULL && embed_name(in) != NULL)
        st = sheaf__tensors_mask(in, embed_name(in), images->embed);
    TRY(st, check_types(in));
    const bool expert = sheaf__safetensors_find(in->file, "vision_expert_mask") != NULL;
    if (st == NULL && expert)
        st = sheaf__tensors_mask(in, "vision_expert_mask", images->expert);
    for (int64_t i = 0; i < data->tokens && st == NULL && !expert; i++) /* all but EOI, the last */
        images->expert[i] = images->embed[i] && (i + 1) % in->length != 0 && images->embed[i + 1];
    if (st != NULL || data->position != NULL || embed_name(in) == NULL)
        return st;
    uint8_t *patch = malloc((size_t)data->tokens + 1);
    data->position = malloc((size_t)data->tokens * sizeof *data->position + 1);
    if (patch == NULL || data->position == NULL)
        st = sheaf__data_no_memory(data->tokens);
    else if (sheaf__safetensors_find(in->file, "image_rope_mask") != NULL)
        st = sheaf__tensors_mask(in, "image_rope_mask", patch);
    else
        for (int64_t i = 0; i < data->tokens; i++) /* those that use experts, but BOI, the first */
            patch[i] = images->expert[i] && i % in->length != 0 && images->expert[i - 1];
    for (int64_t r = 0; r < in->rows && st == NULL; r++)
        count_positions(data->position + r * in->length, patch + r * in->length, in->length);
    free(patch);
    return st;
}

/* Of the hub: image i is that of the i-th row that marks one. */
static sheaf_status *find_hubs(sheaf__tensors *in)
{
    const sheaf__data_images *images = in->data->images;
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        const uint8_t *embed = images->embed + r * in->length;
        const uint8_t *begin = memchr(embed, 1, (size_t)in->length);
        if (begin != NULL)
            st = sheaf__tensors_image_add(
                in, &(sheaf__found_image){ .row = r, .begin = begin - embed, .item = in->images });
        images->first[r + 1] = in->images;
    }
    for (int t = 0; t < images->towers && st == NULL; t++) /* also those that no row marks */
        if (in->images > 0 || sheaf__safetensors_find(in->file, image_name(in, t)) != NULL)
            st = check_pixels(in, t, in->images);
    return st;
}

/* Else one entry for all: item r of the tensors is row r's, also if the row has no place for it. */
sheaf_status *sheaf__masked_find(sheaf__tensors *in)
{
    if (embed_name(in) == NULL)
        return NULL;
    if (is_hubs(in))
        return find_hubs(in);
    in->by_row = true;
    sheaf_status *st = sheaf__tensors_image_add(in, &(sheaf__found_image){ .row = 0 });
    for (int t = 0; t < in->data->images->towers && st == NULL; t++)
        st = check_pixels(in, t, in->rows);
    return st;
}
