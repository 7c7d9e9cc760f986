/* bnb_write.c - see bnb_write.h. */
#include "dialects/common/bnb_write.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/json_write.h"
#include "ops/quant/quantise.h"

enum { PARTS = 6, NESTED_BLOCK = 256, STATE = 512 };

/* The stored parts of a quantised tensor, in this order; of 8 bits CODES, SCALES and FORMAT. */
enum { CODES, SCALES, MAP, NESTED, NESTED_MAP, STATE_JSON };
enum { FORMAT = MAP };

/* A block of which not all values have come. */
typedef struct edge {
    int64_t block, have;
    char *values;
} edge;

typedef struct tensor {
    sheaf__bnb_tensor is;
    int64_t first;                         /* of the folder's tensors */
    int64_t cols, n, block, blocks, value; /* elements; bytes of a value */
    _Atomic int64_t left;                  /* elements whose codes are not written */
    float *scales;                         /* [blocks] from the first put to the last */
    edge *edge;
    int64_t edges, edges_capacity;
} tensor;

struct sheaf__bnb_writer {
    tensor *tensor;
    int64_t count;
    sheaf_safetensors_spec *spec; /* names owned */
    bool *late, any_late;
    int64_t nspecs;
    sheaf_folder *folder;
    sheaf__map8 *map; /* NULL: no doubled scales */
    pthread_mutex_t lock;
};

/* ---- names, shapes and constants ---- */

static bool is_8(const sheaf__quant *q)
{
    return q->codes == SHEAF__INT8;
}

bool sheaf__bnb_writes(const sheaf__quant *q)
{
    return is_8(q) ? q->grouping == SHEAF__GROUPS_OF_ROW && q->block == 0
                   : (q->codes == SHEAF__NF4 || q->codes == SHEAF__FP4) &&
                         q->grouping == SHEAF__GROUPS_FLAT && !q->zeros;
}

static const char *type_name(const sheaf__quant *q)
{
    return q->codes == SHEAF__FP4 ? "fp4" : "nf4";
}

/* The state of a tensor as Python's json writes it; of doubled scales with their offset. */
static sheaf_status *state_text(char **out, const sheaf__bnb_tensor *t, float offset)
{
    const sheaf__quant *q = &t->form;
    sheaf_text text = { 0 };
    sheaf__text_add(&text,
                    "{\"quant_type\": \"%s\", \"blocksize\": %" PRId64
                    ", \"dtype\": \"%s\", \"shape\": [%" PRId64 ", %" PRId64 "]",
                    type_name(q), q->block, sheaf_dtype_torch_name(q->dtype), t->spec.shape[0],
                    t->spec.shape[1]);
    if (q->doubled) {
        char number[SHEAF__JSON_NUMBER];
        sheaf__number_json(number, (double)offset);
        sheaf__text_add(&text,
                        ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", "
                        "\"nested_offset\": %s%s",
                        NESTED_BLOCK, number,
                        strpbrk(number, ".e") != NULL ? "" : ".0"); /* Python's "2.0" */
    }
    sheaf__text_add(&text, "}");
    return sheaf__text_take(out, &text);
}

static sheaf_status *add_spec(sheaf__bnb_writer *w, const char *name, size_t length,
                              const char *end, sheaf_safetensors_spec spec, bool late)
{
    char *whole = NULL;
    if (asprintf(&whole, "%.*s%s", (int)length, name, end) < 0)
        return sheaf__no_memory(name);
    spec.name = whole;
    w->late[w->nspecs] = late;
    w->any_late |= late;
    w->spec[w->nspecs++] = spec;
    return NULL;
}

static sheaf_status *add_state(sheaf__bnb_writer *w, const sheaf__bnb_tensor *t)
{
    char *text = NULL, end[64];
    sheaf_status *st = t->form.doubled ? NULL : state_text(&text, t, 0);
    const int64_t size = text != NULL ? (int64_t)strlen(text) : STATE;
    snprintf(end, sizeof end, ".quant_state.bitsandbytes__%s", type_name(&t->form));
    TRY(st, add_spec(w, t->spec.name, strlen(t->spec.name), end,
                     (sheaf_safetensors_spec){ .dtype = SHEAF_U8, .ndim = 1, .shape = { size } },
                     t->form.doubled));
    free(text);
    return st;
}

static sheaf_status *add_4(sheaf__bnb_writer *w, const tensor *t)
{
    const sheaf_safetensors_spec *s = &t->is.spec;
    const size_t length = strlen(s->name);
    const bool doubled = t->is.form.doubled;
#define SPEC(TYPE, N, ...) ((sheaf_safetensors_spec){ NULL, TYPE, N, { __VA_ARGS__ } })
    sheaf_status *st =
        add_spec(w, s->name, length, "", SPEC(SHEAF_U8, 2, (t->n + 1) / 2, 1), false);
    TRY(st, add_spec(w, s->name, length, ".absmax",
                     SPEC(doubled ? SHEAF_U8 : SHEAF_F32, 1, t->blocks), false));
    TRY(st, add_spec(w, s->name, length, ".quant_map", SPEC(SHEAF_F32, 1, 16), false));
    if (doubled) {
        TRY(st, add_spec(w, s->name, length, ".nested_absmax",
                         SPEC(SHEAF_F32, 1, (t->blocks + NESTED_BLOCK - 1) / NESTED_BLOCK), false));
        TRY(st, add_spec(w, s->name, length, ".nested_quant_map", SPEC(SHEAF_F32, 1, 256), false));
    }
    return TRY(st, add_state(w, &t->is));
}

static sheaf_status *add_8(sheaf__bnb_writer *w, const tensor *t)
{
    const sheaf_safetensors_spec *s = &t->is.spec;
    const size_t length = strlen(s->name), module = length - strlen(".weight");
    sheaf_status *st =
        add_spec(w, s->name, length, "", SPEC(SHEAF_I8, 2, s->shape[0], s->shape[1]), false);
    TRY(st, add_spec(w, s->name, module, ".SCB", SPEC(SHEAF_F32, 1, s->shape[0]), false));
    return TRY(st, add_spec(w, s->name, length, "_format", SPEC(SHEAF_U8, 0, 0), false));
#undef SPEC
}

static sheaf_status *check_tensor(const sheaf__bnb_tensor *t)
{
    const sheaf_safetensors_spec *s = &t->spec;
    const bool floats = s->dtype == SHEAF_F32 || s->dtype == SHEAF_BF16 || s->dtype == SHEAF_F16;
    if (s->ndim == 2 && floats && sheaf__ends_with(s->name, ".weight"))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' in 4 or 8 bits", s->name);
    return sheaf_found(
        sheaf_expected(st, "a matrix called X.weight, in float32, bfloat16 or float16"),
        "%d ax%ss, %s", s->ndim, s->ndim == 1 ? "i" : "e", sheaf_dtype_name(s->dtype));
}

static sheaf_status *list_tensor(sheaf__bnb_writer *w, tensor *t, const sheaf__bnb_tensor *given)
{
    const sheaf_safetensors_spec *s = &given->spec;
    int64_t rows;
    t->is = *given;
    t->first = w->nspecs;
    if (!given->quantised)
        return add_spec(w, s->name, strlen(s->name), "", *s, false);
    sheaf_status *st = check_tensor(given);
    if (st != NULL)
        return st;
    sheaf__safetensors_view(&rows, &t->cols, s->ndim, s->shape);
    t->n = rows * t->cols;
    t->left = t->n;
    t->value = (int64_t)sheaf_dtype_bytes(s->dtype);
    t->block = is_8(&given->form) ? t->cols : given->form.block;
    t->blocks = t->block > 0 ? (t->n + t->block - 1) / t->block : 0;
    if (given->form.doubled && w->map == NULL) {
        if ((w->map = malloc(sizeof *w->map)) == NULL)
            return sheaf__no_memory(s->name);
        sheaf__map8_init(w->map, true);
    }
    return is_8(&given->form) ? add_8(w, t) : add_4(w, t);
}

sheaf_status *sheaf__bnb_new(sheaf__bnb_writer **out, const sheaf__bnb_tensor *given, int64_t count)
{
    const size_t n = (size_t)count;
    sheaf__bnb_writer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sheaf__no_memory("list of tensors");
    pthread_mutex_init(&w->lock, NULL);
    w->tensor = calloc(n + 1, sizeof *w->tensor);
    w->spec = calloc(PARTS * n + 1, sizeof *w->spec);
    w->late = calloc(PARTS * n + 1, sizeof *w->late);
    sheaf_status *st = w->tensor == NULL || w->spec == NULL || w->late == NULL
                           ? sheaf__no_memory("list of tensors")
                           : NULL;
    for (; st == NULL && w->count < count; w->count++)
        st = list_tensor(w, &w->tensor[w->count], &given[w->count]);
    if (st == NULL)
        *out = w;
    else
        sheaf__bnb_free(w);
    return st;
}

void sheaf__bnb_free(sheaf__bnb_writer *w)
{
    if (w == NULL)
        return;
    for (int64_t i = 0; i < w->count; i++) {
        for (int64_t e = 0; e < w->tensor[i].edges; e++)
            free(w->tensor[i].edge[e].values);
        free(w->tensor[i].edge);
        free(w->tensor[i].scales);
    }
    for (int64_t i = 0; i < w->nspecs; i++)
        free((char *)w->spec[i].name);
    pthread_mutex_destroy(&w->lock);
    free(w->tensor);
    free(w->spec);
    free(w->late);
    free(w->map);
    free(w);
}

const sheaf_safetensors_spec *sheaf__bnb_specs(int64_t *count, const bool **late,
                                               const sheaf__bnb_writer *w)
{
    *count = w->nspecs;
    *late = w->any_late ? w->late : NULL;
    return w->spec;
}

const sheaf__quant *sheaf__bnb_form(const sheaf__bnb_writer *w, int64_t i)
{
    return i < w->count && w->tensor[i].is.quantised ? &w->tensor[i].is.form : NULL;
}

int64_t sheaf__bnb_bytes(const sheaf__bnb_writer *w)
{
    int64_t all = 0, bytes = 0;
    for (int64_t i = 0; i < w->nspecs; i++) {
        sheaf_status_free(sheaf__safetensors_bytes(&bytes, &w->spec[i]));
        all += w->late[i] ? 0 : bytes;
    }
    return all;
}

/* ---- writing ---- */

/* All of part `part` of a tensor, dense. */
static sheaf_status *put_part(const sheaf__bnb_writer *w, const tensor *t, int part,
                              const void *src)
{
    const sheaf_safetensors_spec *s = &w->spec[t->first + part];
    int64_t rows, cols;
    sheaf__safetensors_view(&rows, &cols, s->ndim, s->shape);
    return sheaf__folder_write(w->folder, t->first + part, 0, rows, 0, cols, src);
}

static sheaf_status *put_tables(const sheaf__bnb_writer *w, const tensor *t)
{
    float map[16], nested[256];
    char *text = NULL;
    if (is_8(&t->is.form))
        return put_part(w, t, FORMAT, "");
    for (uint32_t i = 0; i < 16; i++)
        map[i] = sheaf__code_value(t->is.form.codes, i);
    sheaf_status *st = put_part(w, t, MAP, map);
    if (t->is.form.doubled) {
        sheaf__dynamic_map(nested, true);
        return TRY(st, put_part(w, t, NESTED_MAP, nested));
    }
    TRY(st, state_text(&text, &t->is, 0));
    TRY(st, put_part(w, t, NESTED, text)); /* without nested ones the state is there */
    free(text);
    return st;
}

/* The scales, once all of them are known; the tensor is complete then. */
static sheaf_status *put_scales(sheaf__bnb_writer *w, tensor *t)
{
    const int64_t groups = (t->blocks + NESTED_BLOCK - 1) / NESTED_BLOCK;
    sheaf_status *st = NULL;
    if (!t->is.form.doubled) {
        st = t->blocks > 0 ? put_part(w, t, SCALES, t->scales) : NULL;
    } else {
        float *nested = malloc((size_t)groups * sizeof *nested + (size_t)t->blocks + 1), offset = 0;
        uint8_t *codes = (uint8_t *)(nested + groups);
        char *text = NULL;
        if (nested == NULL)
            return sheaf__no_memory(t->is.spec.name);
        sheaf__double_scales(codes, nested, &offset, t->scales, t->blocks, w->map);
        st = put_part(w, t, SCALES, codes);
        TRY(st, put_part(w, t, NESTED, nested));
        TRY(st, state_text(&text, &t->is, offset));
        TRY(st, sheaf__folder_late(w->folder, t->first + STATE_JSON, text, (int64_t)strlen(text)));
        free(text);
        free(nested);
    }
    free(t->scales);
    t->scales = NULL;
    return st;
}

sheaf_status *sheaf__bnb_begin(sheaf__bnb_writer *w, sheaf_folder *folder)
{
    sheaf_status *st = NULL;
    w->folder = folder;
    for (int64_t i = 0; i < w->count && st == NULL; i++) {
        tensor *t = &w->tensor[i];
        if (!t->is.quantised)
            continue;
        st = put_tables(w, t);
        if (t->n == 0) /* nothing will come */
            TRY(st, put_scales(w, t));
    }
    return st;
}

static sheaf_status *not_finite(const tensor *t, int64_t block)
{
    const int64_t at = block * t->block;
    sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "'%s', near row %" PRId64 ", column %" PRId64,
                                  t->is.spec.name, at / t->cols, at % t->cols);
    sheaf_expected(st, is_8(&t->is.form) ? "finite numbers of at most 65504, for 8 bits"
                                         : "finite numbers, for 4 bits");
    sheaf_found(st, is_8(&t->is.form) ? "NaN, infinity or a larger number" : "NaN or infinity");
    return sheaf_try_this(st, "sheaf verify counts NaN and infinity; load the model's files again");
}

/* Values of whole blocks, or of the tensor's last one. */
static sheaf_status *put_blocks(sheaf__bnb_writer *w, tensor *t, int64_t block, const void *values,
                                int64_t n)
{
    const sheaf__bnb_tensor *g = &t->is;
    const int64_t blocks = (n + t->block - 1) / t->block;
    float *scales = t->scales + block;
    uint8_t *codes = malloc((size_t)n + (size_t)(n + 1) / 2), *packed = codes + n;
    sheaf_status *st = codes == NULL ? sheaf__no_memory(g->spec.name) : NULL;
    if (st == NULL && is_8(&g->form)) {
        sheaf__quantise_rows(codes, scales, values, g->spec.dtype, blocks, t->cols);
        st = sheaf__folder_write(w->folder, t->first, block, blocks, 0, t->cols, codes);
    } else if (st == NULL) {
        sheaf__quantise4(codes, scales, values, g->spec.dtype, n, t->block, g->form.codes);
        sheaf__pack4(packed, codes, n, g->form.codes);
        st = sheaf__folder_write(w->folder, t->first, block * t->block / 2, (n + 1) / 2, 0, 1,
                                 packed);
    }
    free(codes);
    for (int64_t b = 0; b < blocks && st == NULL; b++)
        if (!isfinite(scales[b]))
            st = not_finite(t, block + b);
    return st != NULL || atomic_fetch_sub(&t->left, n) != n ? st : put_scales(w, t);
}

/* ---- blocks that come in several boxes ---- */

/* Adds values to a block; *full is it once it is complete, and taken from the list. */
static sheaf_status *add_edge(edge *full, tensor *t, int64_t at, const void *values, int64_t n)
{
    const int64_t block = at / t->block, inside = at % t->block,
                  whole = t->n - block * t->block < t->block ? t->n - block * t->block : t->block;
    int64_t i = t->edges - 1;
    while (i >= 0 && t->edge[i].block != block)
        i--;
    if (i < 0) {
        char *room = malloc((size_t)(whole * t->value));
        if (room == NULL || !SHEAF_GROW(&t->edge, &t->edges_capacity, t->edges + 1)) {
            free(room);
            return sheaf__no_memory(t->is.spec.name);
        }
        i = t->edges++;
        t->edge[i] = (edge){ block, 0, room };
    }
    memcpy(t->edge[i].values + inside * t->value, values, (size_t)(n * t->value));
    t->edge[i].have += n;
    if (t->edge[i].have == whole) {
        *full = t->edge[i];
        t->edge[i] = t->edge[--t->edges];
    }
    return NULL;
}

static sheaf_status *put_edge(sheaf__bnb_writer *w, tensor *t, int64_t at, const void *values,
                              int64_t n)
{
    edge full = { 0 };
    pthread_mutex_lock(&w->lock);
    sheaf_status *st = add_edge(&full, t, at, values, n);
    pthread_mutex_unlock(&w->lock);
    TRY(st, full.values != NULL ? put_blocks(w, t, full.block, full.values, full.have) : NULL);
    free(full.values);
    return st;
}

/* Neighbours of the tensor, row after row, from element `at`. */
static sheaf_status *put_run(sheaf__bnb_writer *w, tensor *t, int64_t at, const char *values,
                             int64_t n)
{
    const int64_t before = at % t->block == 0 ? 0 : t->block - at % t->block;
    const int64_t head = before < n ? before : n;
    const int64_t rest = n - head, behind = at + n == t->n ? 0 : rest % t->block;
    sheaf_status *st = head > 0 ? put_edge(w, t, at, values, head) : NULL;
    if (rest > behind)
        TRY(st, put_blocks(w, t, (at + head) / t->block, values + head * t->value, rest - behind));
    if (behind > 0)
        TRY(st, put_edge(w, t, at + n - behind, values + (n - behind) * t->value, behind));
    return st;
}

static sheaf_status *need_scales(sheaf__bnb_writer *w, tensor *t)
{
    pthread_mutex_lock(&w->lock);
    if (t->scales == NULL)
        t->scales = calloc((size_t)t->blocks + 1, sizeof *t->scales);
    const bool there = t->scales != NULL;
    pthread_mutex_unlock(&w->lock);
    return there ? NULL : sheaf__no_memory(t->is.spec.name);
}

sheaf_status *sheaf__bnb_put(void *writer, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                             int64_t cols, const void *src)
{
    sheaf__bnb_writer *w = writer;
    tensor *t = &w->tensor[index];
    if (!t->is.quantised)
        return sheaf__folder_write(w->folder, t->first, row0, rows, col0, cols, src);
    sheaf_status *st = need_scales(w, t);
    if (cols == t->cols)
        return TRY(st, put_run(w, t, row0 * cols, src, rows * cols));
    for (int64_t r = 0; r < rows && st == NULL; r++)
        st = put_run(w, t, (row0 + r) * t->cols + col0, (const char *)src + r * cols * t->value,
                     cols);
    return st;
}

/* ---- the config ---- */

sheaf_status *sheaf__bnb_config(char **out, const sheaf__quant *q, sheaf_dtype compute,
                                const char *skip)
{
    const bool four = !is_8(q);
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\n    \"_load_in_4bit\": %s,\n    \"_load_in_8bit\": %s,\n",
                    four ? "true" : "false", four ? "false" : "true");
    /* In 8 bits what transformers has for 4 stands there with its defaults. */
    sheaf__text_add(&text,
                    "    \"bnb_4bit_compute_dtype\": \"%s\",\n"
                    "    \"bnb_4bit_quant_storage\": \"uint8\",\n"
                    "    \"bnb_4bit_quant_type\": \"%s\",\n"
                    "    \"bnb_4bit_use_double_quant\": %s,\n",
                    four ? sheaf_dtype_torch_name(compute) : "float32", four ? type_name(q) : "fp4",
                    q->doubled ? "true" : "false");
    sheaf__text_add(&text,
                    "    \"llm_int8_enable_fp32_cpu_offload\": false,\n"
                    "    \"llm_int8_has_fp16_weight\": false,\n"
                    "    \"llm_int8_skip_modules\": %s,\n    \"llm_int8_threshold\": 6.0,\n"
                    "    \"load_in_4bit\": %s,\n    \"load_in_8bit\": %s,\n"
                    "    \"quant_method\": \"bitsandbytes\"\n  }",
                    skip != NULL ? skip : "null", four ? "true" : "false", four ? "false" : "true");
    return sheaf__text_take(out, &text);
}
