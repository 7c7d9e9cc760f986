/* codes_bnb.c - bitsandbytes: 4 bits by blocks of the flat tensor, 8 bits by rows. Their names and
 * shapes are those of save_pretrained(); catalog/coded.h has the bytes. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"
#include "ops/quant/quantise.h"

enum { MOST_STATE = 1 << 16, NESTED_BLOCK = 256 };

static const char again[] = "download or copy the files of this model again";

/* What "quant_state" says. */
typedef struct state {
    int64_t block, out, in;
    sheaf_dtype dtype;
    bool nested;
    double offset;
} state;

static void read_shape(state *s, sheaf_json_reader *r)
{
    const json_t *shape = sheaf__json_list(r, "shape");
    const json_t *out = json_array_get(shape, 0), *in = json_array_get(shape, 1);
    s->out = json_is_integer(out) ? json_integer_value(out) : 0;
    s->in = json_is_integer(in) ? json_integer_value(in) : 0;
    if (r->st == NULL &&
        (json_array_size(shape) != 2 || s->out < 1 || s->in < 1 || s->out > INT64_MAX / 64 / s->in))
        sheaf__json_fail(r, SHEAF_E_FORMAT, "shape", "two positive numbers, rows and columns");
}

static void read_keys(state *s, sheaf_json_reader *r, const char *type)
{
    const char *is = sheaf__json_string(r, "quant_type"), *dtype = sheaf__json_string(r, "dtype");
    const int d = dtype == NULL ? -1 : sheaf_dtype_from_torch_name(dtype);
    s->block = sheaf__json_int(r, "blocksize", 1, INT32_MAX, SHEAF_JSON_NEEDED);
    s->dtype = (sheaf_dtype)d;
    read_shape(s, r);
    if (is == NULL || strcmp(is, type) != 0)
        sheaf__json_fail(r, SHEAF_E_FORMAT, "quant_type", "%s, as in the tensor's name", type);
    else if (s->block < 32 || s->block > 4096 || (s->block & (s->block - 1)) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "blocksize", "a power of 2 from 32 to 4096");
    else if (d != SHEAF_F32 && d != SHEAF_F16 && d != SHEAF_BF16)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "dtype", "float32, float16 or bfloat16");
    s->nested = json_object_get(r->object, "nested_blocksize") != NULL ||
                json_object_get(r->object, "nested_offset") != NULL;
    if (!s->nested)
        return;
    const char *scales = sheaf__json_string(r, "nested_dtype");
    if (sheaf__json_int(r, "nested_blocksize", 1, INT32_MAX, SHEAF_JSON_NEEDED) != NESTED_BLOCK)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "nested_blocksize", "%d", NESTED_BLOCK);
    if (scales != NULL && strcmp(scales, "float32") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "nested_dtype", "float32");
    s->offset = sheaf__json_real(r, "nested_offset", -3e38, 3e38, SHEAF_JSON_NEEDED_REAL);
}

static sheaf_status *read_state(state *s, sheaf__coding *g, const sheaf_logical *t,
                                const char *type)
{
    const int64_t n = sheaf__elements(t->entry.ndim, t->entry.shape);
    char *text = NULL;
    json_t *root = NULL;
    sheaf_status *st = NULL;
    if (t->entry.dtype != SHEAF_U8 || n > MOST_STATE)
        return sheaf__coding_shape(g, t, 1u << SHEAF_U8, 1, MOST_STATE, 0);
    if ((text = malloc((size_t)n + 1)) == NULL)
        return sheaf__no_memory(t->entry.name);
    st = sheaf__part_bytes(text, g->x->c, t, 0, n);
    text[n] = '\0';
    TRY(st, sheaf__json_parse(&root, text, (size_t)n));
    if (st == NULL) {
        sheaf_json_reader r = { .object = root };
        read_keys(s, &r, type);
        st = r.st;
    }
    json_decref(root);
    free(text);
    if (!sheaf__catalog_is_finding(st))
        return st;
    const sheaf_code code = sheaf_status_code(st);
    sheaf_status *noted = sheaf__coding_wrong(
        g, code == SHEAF_E_UNSUPPORTED ? "unsupported" : "damaged", t, sheaf_status_expected(st),
        code == SHEAF_E_UNSUPPORTED
            ? "quantize the model in 16 or 32 bits: sheaf convert --quantize nf4"
            : again,
        "%s%s%s", sheaf_status_where(st), *sheaf_status_found(st) != '\0' ? ": " : "",
        sheaf_status_found(st));
    sheaf_status_free(st);
    return noted;
}

/* ---- tables ---- */

/* Is this the known table? Programs compute the map of 256 on whatever machine: its last bits may
 * be others, which is a warning. */
static sheaf_status *check_map(sheaf__coding *g, const sheaf_logical *t, const float *known,
                               int64_t n)
{
    float is[256];
    bool rounded = false;
    sheaf_status *st = sheaf__coding_shape(g, t, 1u << SHEAF_F32, 1, n, 0);
    if (st != NULL || g->wrong)
        return st;
    st = sheaf__part_bytes(is, g->x->c, t, 0, n * (int64_t)sizeof *is);
    for (int64_t i = 0; st == NULL && !g->wrong && i < n; i++) {
        rounded = rounded || is[i] != known[i];
        if (is[i] == known[i] || (n == 256 && fabsf(is[i] - known[i]) <= 1e-6f * fabsf(known[i])))
            continue;
        char want[64];
        snprintf(want, sizeof want, "%.9g, as bitsandbytes has it", (double)known[i]);
        st = sheaf__coding_wrong(
            g, "unsupported", t, want,
            "only bitsandbytes' own tables are read: quantize the model in 16 or 32 bits anew",
            "%.9g as value %" PRId64 " of the table", (double)is[i], i);
    }
    if (st != NULL || g->wrong || !rounded)
        return sheaf__catalog_defect(g->x->c, sheaf__catalog_path_of(g->x->c, t), st);
    return sheaf__warning(g->x->c, "inferred", sheaf__catalog_path_of(g->x->c, t), t->entry.name,
                          "the map of bitsandbytes", "",
                          "its last bits are others: sheaf reads with the known ones");
}

static sheaf_status *check_tables(sheaf__coding *g, const sheaf_logical *map,
                                  const sheaf_logical *nested)
{
    float known[256];
    for (uint32_t i = 0; i < 16; i++)
        known[i] = sheaf__code_value(g->q->form.codes, i);
    sheaf_status *st = check_map(g, map, known, 16);
    if (st != NULL || g->wrong || nested == NULL)
        return st;
    sheaf__dynamic_map(known, true);
    return check_map(g, nested, known, 256);
}

/* ---- 4 bits ---- */

/* Two codes in a byte, whatever type the bytes are said to have. */
static sheaf_status *check_packed(sheaf__coding *g, const sheaf_logical *t, const state *s)
{
    const int64_t want = (s->out * s->in + 1) / 2,
                  size = (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    const int64_t is = sheaf__elements(t->entry.ndim, t->entry.shape) * size;
    char expected[128], shape[128];
    if (t->entry.dtype == SHEAF_I8 || t->entry.dtype == SHEAF_F8_E4M3)
        return sheaf__coding_wrong(
            g, "conflict", t, "the codes of one quantizer", "quantize the model in 16 or 32 bits",
            "%s under a quant_state of 4 bits: quantized twice", sheaf_dtype_name(t->entry.dtype));
    if (is >= want && is < want + (size > 0 ? size : 1))
        return NULL;
    snprintf(expected, sizeof expected,
             "%" PRId64 " bytes: two codes in each, of [%" PRId64 ", %" PRId64 "]", want, s->out,
             s->in);
    return sheaf__coding_wrong(g, "shape", t, expected, again, "%s %s, %" PRId64 " bytes",
                               sheaf_dtype_name(t->entry.dtype),
                               sheaf__show_shape(shape, t->entry.ndim, t->entry.shape), is);
}

typedef struct parts4 {
    sheaf_logical *codes, *absmax, *map, *nested, *nested_map, *state;
} parts4;

static sheaf_status *find_parts(parts4 *p, sheaf__coding *g, const state *s)
{
    sheaf_status *st = sheaf__coding_need(&p->codes, g, ".weight");
    TRY(st, sheaf__coding_need(&p->absmax, g, ".weight.absmax"));
    TRY(st, sheaf__coding_need(&p->map, g, ".weight.quant_map"));
    TRY(st, s->nested ? sheaf__coding_need(&p->nested, g, ".weight.nested_absmax") : NULL);
    return TRY(st, s->nested ? sheaf__coding_need(&p->nested_map, g, ".weight.nested_quant_map")
                             : NULL);
}

static sheaf_status *check_parts(sheaf__coding *g, const parts4 *p, const state *s)
{
    const int64_t blocks = (s->out * s->in + s->block - 1) / s->block;
    sheaf_status *st = check_packed(g, p->codes, s);
    TRY(st,
        sheaf__coding_shape(g, p->absmax, 1u << (s->nested ? SHEAF_U8 : SHEAF_F32), 1, blocks, 0));
    if (st == NULL && s->nested)
        st = sheaf__coding_shape(g, p->nested, 1u << SHEAF_F32, 1,
                                 (blocks + NESTED_BLOCK - 1) / NESTED_BLOCK, 0);
    return TRY(st, !g->wrong ? check_tables(g, p->map, p->nested_map) : NULL);
}

static sheaf_status *take_parts(sheaf__coding *g, const parts4 *p)
{
    sheaf_status *st = sheaf__coding_take(g, SHEAF__CODES_PART, p->codes);
    TRY(st, sheaf__coding_take(g, SHEAF__SCALES_PART, p->absmax));
    TRY(st, sheaf__coding_take(g, SHEAF__FURTHER_PARTS, p->map));
    TRY(st, sheaf__coding_take(g, SHEAF__FURTHER_PARTS + 1, p->state));
    TRY(st, p->nested != NULL ? sheaf__coding_take(g, SHEAF__NESTED_PART, p->nested) : NULL);
    return TRY(st, p->nested != NULL
                       ? sheaf__coding_take(g, SHEAF__FURTHER_PARTS + 2, p->nested_map)
                       : NULL);
}

sheaf_status *sheaf__codes_bnb4(sheaf__coding *g, const char *type)
{
    char suffix[64];
    state s = { 0 };
    parts4 p = { 0 };
    snprintf(suffix, sizeof suffix, ".weight.quant_state.bitsandbytes__%s", type);
    sheaf_status *st = sheaf__coding_need(&p.state, g, suffix);
    TRY(st, !g->wrong ? read_state(&s, g, p.state, type) : NULL);
    TRY(st, !g->wrong ? find_parts(&p, g, &s) : NULL);
    if (st != NULL || g->wrong)
        return st;
    g->dtype = s.dtype;
    *g->q = (sheaf__coded){
        .form = { .codes = strcmp(type, "nf4") == 0 ? SHEAF__NF4 : SHEAF__FP4,
                  .grouping = SHEAF__GROUPS_FLAT,
                  .block = s.block,
                  .doubled = s.nested },
        .packing = SHEAF__BNB4,
        .method = sheaf__quantizer_name(SHEAF__BITSANDBYTES),
        .out = s.out,
        .in = s.in,
        .offset = (float)s.offset,
    };
    st = check_parts(g, &p, &s);
    return TRY(st, !g->wrong ? take_parts(g, &p) : NULL);
}

/* ---- 8 bits ---- */

sheaf_status *sheaf__codes_bnb8(sheaf__coding *g)
{
    sheaf_logical *codes, *scb = sheaf__coding_find(g, ".SCB"),
                          *format = sheaf__coding_find(g, ".weight_format");
    uint8_t order = 0;
    sheaf_status *st = sheaf__coding_need(&codes, g, ".weight");
    if (st != NULL || g->wrong)
        return st;
    if (codes->entry.ndim != 2)
        return sheaf__coding_shape(g, codes, 1u << SHEAF_I8, 2, scb->entry.shape[0], -1);
    const int64_t out = codes->entry.shape[0], in = codes->entry.shape[1];
    st = sheaf__coding_shape(g, codes, 1u << SHEAF_I8, 2, out, in);
    TRY(st, sheaf__coding_shape(g, scb, 1u << SHEAF_F32, 1, out, 0));
    if (st == NULL && !g->wrong && format != NULL) {
        st = format->entry.dtype == SHEAF_U8 &&
                     sheaf__elements(format->entry.ndim, format->entry.shape) == 1
                 ? sheaf__part_bytes(&order, g->x->c, format, 0, 1)
                 : sheaf__coding_shape(g, format, 1u << SHEAF_U8, 0, 0, 0);
        if (st == NULL && !g->wrong && order != 0)
            st = sheaf__coding_wrong(g, "unsupported", format, "0: rows in order",
                                     "save it with a newer bitsandbytes", "%d", order);
    }
    if (st != NULL || g->wrong)
        return st;
    g->dtype = g->x->dtype;
    *g->q = (sheaf__coded){
        .form = { .codes = SHEAF__INT8, .grouping = SHEAF__GROUPS_OF_ROW },
        .packing = SHEAF__BNB8,
        .method = sheaf__quantizer_name(SHEAF__BITSANDBYTES),
        .out = out,
        .in = in,
    };
    st = sheaf__coding_take(g, SHEAF__CODES_PART, codes);
    TRY(st, sheaf__coding_take(g, SHEAF__SCALES_PART, scb));
    return TRY(st, format != NULL ? sheaf__coding_take(g, SHEAF__FURTHER_PARTS, format) : NULL);
}
