/* config.c - see schema/config.h: the family of a config, and the keys that all of them share.
 * What each key means is in docs/formats.md. */
#include "base/base.h"
#include "schema/config_keys.h"

#include "base/file.h"
#include "base/numeric_env.h"
#include "schema/family.h"

const char *sheaf_config_position_key(const sheaf_config *config)
{
    return sheaf__family_for(config)->position_key;
}

const char *sheaf_family_name(sheaf_family family)
{
    return sheaf__family_at((int)family)->name;
}

int sheaf__towers_of(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->towers == NULL ? 0 : family->towers(out, config);
}

int sheaf__tower_beside(sheaf__tower *out, const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int n = sheaf__towers_of(tower, config);
    *out = (sheaf__tower){ 0 };
    for (int i = 0; i < n; i++)
        if (tower[i].beside && tower[i].gives > 0) {
            *out = tower[i];
            return i;
        }
    return -1;
}

void sheaf__patches_of(int64_t out[SHEAF__MOST_TOWERS], const sheaf_config *config, int64_t images)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int n = sheaf__towers_of(tower, config);
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++)
        out[t] = t < n ? images * tower[t].patches : 0;
}

int64_t sheaf__tower_numbers(const sheaf__tower *tower)
{
    return tower->channels * tower->height * tower->width;
}

void sheaf__picture_place(sheaf__picture *out, int64_t n, float *const *pixels,
                          const sheaf__tower *tower, int towers)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = (sheaf__picture){ 0 };
        for (int t = 0; t < towers; t++)
            out[i].of[t] = (sheaf__view){
                .pixels =
                    pixels[t] == NULL ? NULL : pixels[t] + i * sheaf__tower_numbers(&tower[t]),
                .height = tower[t].height,
                .width = tower[t].width,
            };
    }
}

sheaf__picture *sheaf__picture_room_like(const sheaf__picture *like, int64_t n,
                                         const sheaf__tower *tower, int towers)
{
    size_t numbers = 0;
    for (int t = 0; t < towers; t++)
        for (int64_t i = 0; i < n; i++)
            numbers += (size_t)(like != NULL && tower[t].ragged
                                    ? sheaf__view_numbers(&like[i].of[t], &tower[t])
                                    : sheaf__tower_numbers(&tower[t]));
    sheaf__picture *out = malloc((size_t)n * sizeof *out + numbers * sizeof(float) + 1);
    if (out == NULL)
        return NULL;
    float *next = (float *)(out + n), *none[SHEAF__MOST_TOWERS] = { NULL };
    sheaf__picture_place(out, n, none, tower, towers);
    for (int64_t i = 0; like != NULL && i < n; i++) {
        out[i].frame = like[i].frame;
        out[i].joins = like[i].joins;
    }
    for (int t = 0; t < towers; t++)
        for (int64_t i = 0; i < n; i++) {
            sheaf__view *view = &out[i].of[t];
            if (like != NULL && tower[t].ragged)
                *view = like[i].of[t];
            view->pixels = next;
            next += sheaf__view_numbers(view, &tower[t]);
        }
    return out;
}

int sheaf__picture_misfit(const sheaf__picture *picture, const sheaf__tower *tower, int towers)
{
    for (int t = 0; t < towers; t++) {
        const sheaf__view *view = &picture->of[t];
        if (view->pixels == NULL || !sheaf__view_fits(view, &tower[t]))
            return t;
    }
    return -1;
}

/* The tower whose rows stand in the sequence, and its number; -1: none. */
static int tower_inside(sheaf__tower *out, const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int n = sheaf__towers_of(tower, config);
    for (int i = 0; i < n; i++)
        if (!tower[i].beside) {
            *out = tower[i];
            return i;
        }
    return -1;
}

int64_t sheaf__image_rows(const sheaf_config *config)
{
    sheaf__tower tower;
    return tower_inside(&tower, config) < 0 ? 0 : tower.gives;
}

int64_t sheaf__picture_seen(const sheaf__picture *picture, int64_t n, int64_t i,
                            const sheaf__tower *tower, int t)
{
    int64_t k = i, most = sheaf__view_patches(&picture[i].of[t], tower);
    while (tower->padded && k > 0 && picture[k - 1].row == picture[i].row)
        k--;
    for (; tower->padded && k < n && picture[k].row == picture[i].row; k++) {
        const int64_t patches = sheaf__view_patches(&picture[k].of[t], tower);
        most = patches > most ? patches : most;
    }
    return most;
}

int64_t sheaf__image_experts(const sheaf_config *config)
{
    const sheaf__image_place *image = &sheaf__family_for(config)->image;
    const int64_t gives = sheaf__image_rows(config);
    return gives == 0 || !image->experts ? 0 : image->before + gives;
}

int64_t sheaf__image_positions(const sheaf_config *config)
{
    const sheaf__image_place *image = &sheaf__family_for(config)->image;
    const int64_t gives = sheaf__image_rows(config);
    return gives == 0 ? 0 : image->before + gives + image->after;
}

const char *sheaf__template_key(const sheaf_config *config)
{
    const char *own = sheaf__family_for(config)->template_key;
    return own != NULL ? own : "text_processor_version";
}

int32_t sheaf__image_id(const sheaf_config *config)
{
    return sheaf__family_for(config)->image.pads && config->pad >= 0 ? (int32_t)config->pad : 0;
}

void (*sheaf__pictures_of(const sheaf_config *config))(sheaf__picture_form *, const sheaf_config *)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    return sheaf__towers_of(tower, config) > 0 ? sheaf__family_for(config)->pictures : NULL;
}

void sheaf__image_shared_positions(int32_t *position, const uint8_t *embed, int64_t n,
                                   const sheaf_config *config)
{
    const int64_t before = sheaf__family_for(config)->image.before,
                  gives = sheaf__image_rows(config), whole = sheaf__image_positions(config);
    int64_t inside = 0; /* positions of images that are complete or begun */
    int32_t next = 0;
    for (int64_t t = 0; t < n; t++) {
        const int64_t at = embed[t] ? inside++ % whole - before : 0;
        next += t > 0 && !(at > 0 && at < gives);
        position[t] = next;
    }
}

int64_t sheaf__images_positions(const sheaf_config *config, int64_t images,
                                const int64_t patches[SHEAF__MOST_TOWERS])
{
    const sheaf__image_place *image = &sheaf__family_for(config)->image;
    sheaf__tower tower;
    const int t = tower_inside(&tower, config);
    return t < 0 ? 0
                 : images * (image->before + image->after) +
                       sheaf__tower_gives(&tower, images, patches[t]);
}

static void set_position(int32_t *position, int64_t stride, int32_t t, int32_t r, int32_t c)
{
    position[0] = t;
    position[stride] = r;
    position[2 * stride] = c;
}

int32_t sheaf__grid_positions(int32_t *position, int64_t stride, int64_t n, const uint8_t *embed,
                              const uint8_t *seen, const sheaf__picture *picture,
                              const sheaf__tower *tower)
{
    int32_t next = 0;
    for (int64_t t = 0; t < n; t++, position++) {
        if (seen != NULL && !seen[t]) {
            set_position(position, stride, 0, 0, 0);
            continue;
        }
        if (embed == NULL || !embed[t]) {
            set_position(position, stride, next, next, next);
            next++;
            continue;
        }
        const int32_t unit = (int32_t)sheaf__unit_of(tower),
                      rows = (int32_t)picture->of[0].height / unit,
                      cols = (int32_t)picture->of[0].width / unit;
        for (int32_t k = 0; k < rows * cols && t + k < n; k++)
            set_position(position + k, stride, next, next + k / cols, next + k % cols);
        next += rows > cols ? rows : cols;
        t += (int64_t)rows * cols - 1;
        position += (int64_t)rows * cols - 1;
        picture++;
    }
    return next;
}

sheaf_component sheaf__family_component(const sheaf__family *family, const char *name)
{
    for (const sheaf__component_rule *rule = family->components; rule->part != NULL; rule++)
        if (strstr(name, rule->part) != NULL)
            return rule->is;
    return SHEAF_PLAN_TEXT;
}

/* ---- keys that all families share ---- */

static int64_t read_id(sheaf_json_reader *r, const char *key, const json_t *value, int64_t min,
                       int64_t vocab)
{
    char shown[96];
    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) < vocab)
        return json_integer_value(value);
    sheaf_found(sheaf__json_fail(r, json_is_integer(value) ? SHEAF_E_LAYOUT : SHEAF_E_FORMAT, key,
                                 "a token id below vocab_size, %" PRId64, vocab),
                "%s", sheaf__json_show(shown, value));
    return -1;
}

/* One id; absent, null and -1 mean none. */
int64_t sheaf__config_read_id(sheaf_json_reader *r, const char *key, int64_t vocab)
{
    const json_t *value = json_object_get(r->object, key);
    return value == NULL || json_is_null(value) ? -1 : read_id(r, key, value, -1, vocab);
}

void sheaf__config_read_eos(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *eos = json_object_get(r->object, "eos_token_id");
    if (!json_is_array(eos)) {
        c->eos[0] = sheaf__config_read_id(r, "eos_token_id", c->vocab);
        c->neos = c->eos[0] >= 0;
        if (c->neos == 0)
            c->eos[0] = 0;
        return;
    }
    if (json_array_size(eos) > SHEAF_MAX_EOS) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "eos_token_id", "at most %d ids", SHEAF_MAX_EOS);
        return;
    }
    for (size_t i = 0; i < json_array_size(eos); i++)
        c->eos[c->neos++] = read_id(r, "eos_token_id", json_array_get(eos, i), 0, c->vocab);
}

void sheaf__config_read_tokenizer(sheaf_json_reader *r, sheaf_config *c)
{
    const char *tokenizer = sheaf__json_string(r, "sheaf_tokenizer");
    if (tokenizer != NULL && strcmp(tokenizer, "bytes") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "sheaf_tokenizer", "\"bytes\"");
    c->byte_vocab = tokenizer != NULL;
    if (c->byte_vocab && c->vocab < 256)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "vocab_size",
                         "at least 256, as sheaf_tokenizer is \"bytes\"");
}

/* dtype (5.x) or torch_dtype (4.x). */
void sheaf__config_read_dtype(sheaf_json_reader *r, sheaf_config *c)
{
    static const char *const key[] = { "dtype", "torch_dtype" };
    static const struct {
        const char *name;
        sheaf_dtype dtype;
    } known[] = {
        { "float32", SHEAF_F32 },
        { "bfloat16", SHEAF_BF16 },
        { "float16", SHEAF_F16 },
    };
    bool said = false;
    c->dtype = SHEAF_F32;
    for (int k = 0; k < 2; k++) {
        const char *name = sheaf__json_string(r, key[k]);
        size_t i = 0;
        if (name == NULL)
            continue;
        while (i < 3 && strcmp(known[i].name, name) != 0)
            i++;
        if (i == 3)
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key[k], "float32, bfloat16 or float16");
        else if (said && known[i].dtype != c->dtype)
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key[k], "the same as 'dtype'");
        else
            c->dtype = known[i].dtype;
        said = true;
    }
    c->dtype_named = said;
}

/* ---- the whole ---- */

static sheaf_status *keep_text(sheaf_config *c, const char *text, size_t size, sheaf_text *unknown)
{
    c->json = malloc(size + 1);
    if (c->json == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory for a config of %zu bytes", size);
    memcpy(c->json, text, size);
    c->json[size] = '\0';
    return unknown->size == 0 && !unknown->failed ? NULL
                                                  : sheaf__text_take(&c->unknown_keys, unknown);
}

const sheaf__family *sheaf__family_reading(const json_t *object)
{
    const sheaf__family *family;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->claims != NULL && family->claims(object))
            return family;
    return sheaf__family_at(SHEAF_LLAMA); /* whose reader reports unknown keys */
}

sheaf_status *sheaf_config_parse(sheaf_config *out, const char *text, size_t size)
{
    SHEAF__NUMERIC_ENV;
    sheaf_config c = { 0 };
    sheaf_text unknown = { 0 };
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, text, size);
    if (st != NULL)
        return st;
    sheaf_json_reader r = { root, NULL, NULL };
    sheaf__family_reading(root)->read(&r, &c, &unknown);
    st = r.st;
    TRY(st, keep_text(&c, text, size, &unknown));
    sheaf__text_release(&unknown);
    json_decref(root);
    if (st == NULL)
        *out = c;
    else
        sheaf_config_release(&c);
    return st;
}

sheaf_status *sheaf_config_read(sheaf_config *out, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, SHEAF_JSON_MAX_BYTES);
    TRY(st, sheaf_in(sheaf_config_parse(out, text, size), "%s", path));
    free(text);
    return st;
}

void sheaf_config_release(sheaf_config *config)
{
    free(config->json);
    free(config->unknown_keys);
    *config = (sheaf_config){ 0 };
}
