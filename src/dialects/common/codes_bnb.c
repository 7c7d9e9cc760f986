/* codes_bnb.c - what bitsandbytes stores beside codes, as save_pretrained() writes it: the
 * quant_state and tables of 4 bits, the order of 8. */
#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"
#include "ops/quant/quantise.h"

enum { MOST_STATE = 1 << 16, NESTED_BLOCK = 256 };
enum { MAP = SHEAF__FURTHER_PARTS, STATE, NESTED_MAP, FORMAT = SHEAF__FURTHER_PARTS };

static const char again[] = "download or copy the files of this model again";

/* The content of "quant_state". */
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

static sheaf_status *refuse_state(sheaf__codes_weight *g, sheaf_status *st)
{
    const bool unsupported = sheaf_status_code(st) == SHEAF_E_UNSUPPORTED;
    sheaf_status *noted = sheaf__codes_wrong(
        g, unsupported ? "unsupported" : "damaged", g->part[STATE], sheaf_status_expected(st),
        unsupported ? "quantize the model in 16 or 32 bits: sheaf convert --quantize nf4" : again,
        "%s%s%s", sheaf_status_where(st), *sheaf_status_found(st) != '\0' ? ": " : "",
        sheaf_status_found(st));
    sheaf_status_free(st);
    return noted;
}

static sheaf_status *read_state(state *s, sheaf__codes_weight *g)
{
    const sheaf_logical *t = g->part[STATE];
    const int64_t n = sheaf__elements(t->entry.ndim, t->entry.shape);
    json_t *root = NULL;
    if (t->entry.dtype != SHEAF_U8 || n > MOST_STATE)
        return sheaf__codes_shape(g, t, 1u << SHEAF_U8, 1, MOST_STATE, 0);
    char *text = malloc((size_t)n + 1);
    if (text == NULL)
        return sheaf__no_memory(t->entry.name);
    sheaf_status *st = sheaf__part_bytes(text, g->x->c, t, 0, n);
    TRY(st, sheaf__json_parse(&root, text, (size_t)n));
    if (st == NULL) {
        sheaf_json_reader r = { .object = root };
        read_keys(s, &r, g->packing->codes == SHEAF__NF4 ? "nf4" : "fp4");
        st = r.st;
    }
    json_decref(root);
    free(text);
    return sheaf__catalog_is_finding(st) ? refuse_state(g, st) : st;
}

/* ---- tables ---- */

/* Is this the known table? Programs compute the map of 256 on whatever machine: its last bits may
 * be others, which is a warning. */
static sheaf_status *check_map(sheaf__codes_weight *g, const sheaf_logical *t, const float *known,
                               int64_t n)
{
    float is[256];
    bool rounded = false;
    sheaf_status *st = sheaf__codes_shape(g, t, 1u << SHEAF_F32, 1, n, 0);
    if (st != NULL || g->wrong)
        return st;
    st = sheaf__part_bytes(is, g->x->c, t, 0, n * (int64_t)sizeof *is);
    for (int64_t i = 0; st == NULL && !g->wrong && i < n; i++) {
        rounded = rounded || is[i] != known[i];
        if (is[i] == known[i] || (n == 256 && fabsf(is[i] - known[i]) <= 1e-6f * fabsf(known[i])))
            continue;
        char want[64];
        snprintf(want, sizeof want, "%.9g, as bitsandbytes has it", (double)known[i]);
        st = sheaf__codes_wrong(
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

sheaf_status *sheaf__codes_tables(sheaf__codes_weight *g)
{
    float known[256];
    for (uint32_t i = 0; i < 16; i++)
        known[i] = sheaf__code_value(g->q->form.codes, i);
    sheaf_status *st = check_map(g, g->part[MAP], known, 16);
    if (st != NULL || g->wrong || !g->q->form.doubled)
        return st;
    sheaf__dynamic_map(known, true);
    return check_map(g, g->part[NESTED_MAP], known, 256);
}

/* ---- sizes ---- */

/* Two codes in a byte, whatever the declared type of the bytes. */
static sheaf_status *check_packed(sheaf__codes_weight *g, const state *s)
{
    const sheaf_logical *t = g->part[SHEAF__CODES_PART];
    const int64_t want = (s->out * s->in + 1) / 2,
                  size = (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    const int64_t is = sheaf__elements(t->entry.ndim, t->entry.shape) * size;
    char expected[128], shape[128];
    if (t->entry.dtype == SHEAF_I8 || t->entry.dtype == SHEAF_F8_E4M3)
        return sheaf__codes_wrong(
            g, "conflict", t, "the codes of one quantizer", "quantize the model in 16 or 32 bits",
            "%s under a quant_state of 4 bits: quantized twice", sheaf_dtype_name(t->entry.dtype));
    if (is >= want && is < want + (size > 0 ? size : 1))
        return NULL;
    snprintf(expected, sizeof expected,
             "%" PRId64 " bytes: two codes in each, of [%" PRId64 ", %" PRId64 "]", want, s->out,
             s->in);
    return sheaf__codes_wrong(g, "shape", t, expected, again, "%s %s, %" PRId64 " bytes",
                              sheaf_dtype_name(t->entry.dtype),
                              sheaf__show_shape(shape, t->entry.ndim, t->entry.shape), is);
}

sheaf_status *sheaf__codes_state(sheaf__codes_weight *g)
{
    static const int nested[] = { SHEAF__NESTED_PART, NESTED_MAP };
    state s = { 0 };
    sheaf_status *st = read_state(&s, g);
    for (int i = 0; st == NULL && !g->wrong && i < 2; i++)
        if (s.nested)
            st = sheaf__codes_need(g, nested[i]);
        else
            g->part[nested[i]] = NULL;
    if (st != NULL || g->wrong)
        return st;
    const int64_t blocks = (s.out * s.in + s.block - 1) / s.block;
    g->dtype = s.dtype;
    g->q->form.block = s.block;
    g->q->form.doubled = s.nested;
    g->q->out = s.out;
    g->q->in = s.in;
    g->q->offset = (float)s.offset;
    st = check_packed(g, &s);
    TRY(st, sheaf__codes_shape(g, g->part[SHEAF__SCALES_PART],
                               1u << (s.nested ? SHEAF_U8 : SHEAF_F32), 1, blocks, 0));
    if (st == NULL && s.nested)
        st = sheaf__codes_shape(g, g->part[SHEAF__NESTED_PART], 1u << SHEAF_F32, 1,
                                (blocks + NESTED_BLOCK - 1) / NESTED_BLOCK, 0);
    return st;
}

sheaf_status *sheaf__codes_order(sheaf__codes_weight *g)
{
    const sheaf_logical *t = g->part[FORMAT];
    uint8_t order = 0;
    if (t == NULL)
        return NULL;
    if (t->entry.dtype != SHEAF_U8 || sheaf__elements(t->entry.ndim, t->entry.shape) != 1)
        return sheaf__codes_shape(g, t, 1u << SHEAF_U8, 0, 0, 0);
    sheaf_status *st = sheaf__codes_read(&order, g, FORMAT, 0, 1);
    return st == NULL && !g->wrong && order != 0
               ? sheaf__codes_wrong(g, "unsupported", t, "0: rows in order",
                                    "save it with a newer bitsandbytes", "%d", order)
               : st;
}
