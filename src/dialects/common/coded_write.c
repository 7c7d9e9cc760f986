/* coded_write.c - see coded_write.h. */
#include "dialects/common/coded_write.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/json_write.h"
#include "catalog/packing.h"
#include "ops/quant/quantise.h"

enum { NESTED_BLOCK = 256, STATE = 512 };
enum { MAP = SHEAF__FURTHER_PARTS, STATE_JSON, NESTED_MAP, FORMAT = MAP };

/* A block of which not all values have come. */
typedef struct edge {
    int64_t block, have;
    char *values;
} edge;

typedef struct tensor {
    sheaf__coded_tensor is;
    int64_t at[SHEAF__PARTS];              /* of the folder's tensors; a plain one is the first */
    int64_t cols, n, block, blocks, value; /* elements; bytes of a value */
    _Atomic int64_t left;                  /* elements whose codes are not written */
    float *scales;                         /* [blocks] from the first put to the last, */
    uint8_t *zeros, *words;                /* [blocks] and, of turned ones, all codes behind them */
    edge *edge;
    int64_t edges, edges_capacity;
} tensor;

struct sheaf__packer {
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

bool sheaf__bnb_writes(const sheaf__quant *q)
{
    return sheaf__quant_of_rows(q) ? q->grouping == SHEAF__GROUPS_OF_ROW
                                   : (q->codes == SHEAF__NF4 || q->codes == SHEAF__FP4) &&
                                         q->grouping == SHEAF__GROUPS_FLAT && !q->zeros;
}

static const char *type_name(const sheaf__quant *q)
{
    return q->codes == SHEAF__FP4 ? "fp4" : "nf4";
}

/* The state of a tensor as Python's json writes it; of doubled scales with their offset. */
static sheaf_status *state_text(char **out, const sheaf__coded_tensor *t, float offset)
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

static sheaf_status *add_spec(sheaf__packer *w, tensor *t, int part, bool late,
                              sheaf_safetensors_spec spec)
{
    const char *name = t->is.spec.name;
    const bool plain = t->is.packing == NULL;
    const int stem = (int)(strlen(name) - (plain ? 0 : strlen(".weight")));
    char *whole = NULL;
    if (asprintf(&whole, "%.*s%s", stem, name, plain ? "" : t->is.packing->suffix[part]) < 0)
        return sheaf__no_memory(name);
    spec.name = whole;
    w->late[w->nspecs] = late;
    w->any_late |= late;
    t->at[part] = w->nspecs;
    w->spec[w->nspecs++] = spec;
    return NULL;
}

#define SPEC(TYPE, N, ...) ((sheaf_safetensors_spec){ NULL, TYPE, N, { __VA_ARGS__ } })

static sheaf_status *add_flat(sheaf__packer *w, tensor *t)
{
    const bool doubled = t->is.form.doubled;
    const int64_t nested = (t->blocks + NESTED_BLOCK - 1) / NESTED_BLOCK;
    char *text = NULL;
    sheaf_status *st =
        add_spec(w, t, SHEAF__CODES_PART, false, SPEC(SHEAF_U8, 2, (t->n + 1) / 2, 1));
    TRY(st, add_spec(w, t, SHEAF__SCALES_PART, false,
                     SPEC(doubled ? SHEAF_U8 : SHEAF_F32, 1, t->blocks)));
    TRY(st, add_spec(w, t, MAP, false, SPEC(SHEAF_F32, 1, 16)));
    if (doubled) {
        TRY(st, add_spec(w, t, SHEAF__NESTED_PART, false, SPEC(SHEAF_F32, 1, nested)));
        TRY(st, add_spec(w, t, NESTED_MAP, false, SPEC(SHEAF_F32, 1, 256)));
    } else
        TRY(st, state_text(&text, &t->is, 0));
    const int64_t size = text != NULL ? (int64_t)strlen(text) : STATE;
    TRY(st, add_spec(w, t, STATE_JSON, doubled, SPEC(SHEAF_U8, 1, size)));
    free(text);
    return st;
}

static sheaf_status *add_rows(sheaf__packer *w, tensor *t)
{
    const int64_t rows = t->is.spec.shape[0];
    sheaf_status *st = add_spec(w, t, SHEAF__CODES_PART, false, SPEC(SHEAF_I8, 2, rows, t->cols));
    TRY(st, add_spec(w, t, SHEAF__SCALES_PART, false, SPEC(SHEAF_F32, 1, rows)));
    return TRY(st, add_spec(w, t, FORMAT, false, SPEC(SHEAF_U8, 0, 0)));
}

static sheaf_status *add_planes(sheaf__packer *w, tensor *t)
{
    const sheaf__packing *p = t->is.packing;
    sheaf_status *st = NULL;
    for (int part = 0; st == NULL && part <= SHEAF__ZEROS_PART; part++) {
        sheaf_safetensors_spec spec =
            SPEC(part == SHEAF__SCALES_PART ? SHEAF_F16 : SHEAF_I32, 2, 0);
        sheaf__plane_shape(spec.shape, &p->plane[part], t->is.spec.shape[0],
                           part == SHEAF__CODES_PART ? t->cols : t->cols / t->block);
        st = add_spec(w, t, part, false, spec);
    }
    return st == NULL && p->suffix[SHEAF__INDEX_PART] != NULL
               ? add_spec(w, t, SHEAF__INDEX_PART, false, SPEC(SHEAF_I32, 1, t->cols))
               : st;
}

/* Groups that fill a row, and rows that fill words. */
static sheaf_status *check_groups(const tensor *t)
{
    const int64_t rows = t->is.spec.shape[0];
    if (t->cols % t->block == 0 && rows % 8 == 0)
        return NULL;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' in groups of %" PRId64, t->is.spec.name, t->block);
    sheaf_expected(st, "rows that groups divide, and a multiple of 8 of them");
    sheaf_found(st, "%" PRId64 " rows of %" PRId64, rows, t->cols);
    const int64_t fits = t->cols % 64 == 0 ? 64 : 32;
    return rows % 8 == 0 && t->cols % fits == 0
               ? sheaf_try_this(st, "`group-size %" PRId64 "`", fits)
               : sheaf_try_this(st, "`quantize nf4`");
}

static sheaf_status *check_tensor(const sheaf__coded_tensor *t)
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

static sheaf_status *list_tensor(sheaf__packer *w, tensor *t, const sheaf__coded_tensor *given)
{
    const sheaf_safetensors_spec *s = &given->spec;
    const bool by_rows = sheaf__quant_of_rows(&given->form);
    int64_t rows;
    t->is = *given;
    if (given->packing == NULL)
        return add_spec(w, t, 0, false, *s);
    sheaf_status *st = check_tensor(given);
    if (st != NULL)
        return st;
    sheaf__safetensors_view(&rows, &t->cols, s->ndim, s->shape);
    t->n = rows * t->cols;
    t->left = t->n;
    t->value = (int64_t)sheaf_dtype_bytes(s->dtype);
    t->block = by_rows ? t->cols : given->form.block;
    t->blocks = t->block > 0 ? (t->n + t->block - 1) / t->block : 0;
    if (given->form.doubled && w->map == NULL) {
        if ((w->map = malloc(sizeof *w->map)) == NULL)
            return sheaf__no_memory(s->name);
        sheaf__map8_init(w->map, true);
    }
    if (given->form.grouping == SHEAF__GROUPS_FLAT)
        return add_flat(w, t);
    st = by_rows ? NULL : check_groups(t);
    return st != NULL ? st : by_rows ? add_rows(w, t) : add_planes(w, t);
}

sheaf_status *sheaf__packer_new(sheaf__packer **out, const sheaf__coded_tensor *given,
                                int64_t count)
{
    const size_t n = (size_t)count;
    sheaf__packer *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sheaf__no_memory("list of tensors");
    pthread_mutex_init(&w->lock, NULL);
    w->tensor = calloc(n + 1, sizeof *w->tensor);
    w->spec = calloc(SHEAF__PARTS * n + 1, sizeof *w->spec);
    w->late = calloc(SHEAF__PARTS * n + 1, sizeof *w->late);
    sheaf_status *st = w->tensor == NULL || w->spec == NULL || w->late == NULL
                           ? sheaf__no_memory("list of tensors")
                           : NULL;
    for (; st == NULL && w->count < count; w->count++)
        st = list_tensor(w, &w->tensor[w->count], &given[w->count]);
    if (st == NULL)
        *out = w;
    else
        sheaf__packer_free(w);
    return st;
}

void sheaf__packer_free(sheaf__packer *w)
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

const sheaf_safetensors_spec *sheaf__packer_specs(int64_t *count, const bool **late,
                                                  const sheaf__packer *w)
{
    *count = w->nspecs;
    *late = w->any_late ? w->late : NULL;
    return w->spec;
}

const sheaf__coded_tensor *sheaf__packer_tensor(const sheaf__packer *w, int64_t i)
{
    return i < w->count && w->tensor[i].is.packing != NULL ? &w->tensor[i].is : NULL;
}

int64_t sheaf__packer_bytes(const sheaf__packer *w)
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
static sheaf_status *put_part(const sheaf__packer *w, const tensor *t, int part, const void *src)
{
    const sheaf_safetensors_spec *s = &w->spec[t->at[part]];
    int64_t rows, cols;
    sheaf__safetensors_view(&rows, &cols, s->ndim, s->shape);
    return sheaf__folder_write(w->folder, t->at[part], 0, rows, 0, cols, src);
}

static sheaf_status *put_tables(const sheaf__packer *w, const tensor *t)
{
    float map[16], nested[256];
    char *text = NULL;
    if (sheaf__quant_of_rows(&t->is.form))
        return put_part(w, t, FORMAT, "");
    if (t->is.form.grouping != SHEAF__GROUPS_FLAT)
        return NULL;
    for (uint32_t i = 0; i < 16; i++)
        map[i] = sheaf__code_value(t->is.form.codes, i);
    sheaf_status *st = put_part(w, t, MAP, map);
    if (t->is.form.doubled) {
        sheaf__dynamic_map(nested, true);
        return TRY(st, put_part(w, t, NESTED_MAP, nested));
    }
    TRY(st, state_text(&text, &t->is, 0));
    TRY(st, put_part(w, t, STATE_JSON, text));
    free(text);
    return st;
}

/* Of a turned packing: codes, scales, zeros and groups of columns. */
static sheaf_status *put_planes(sheaf__packer *w, tensor *t)
{
    const sheaf__packing *p = t->is.packing;
    const int64_t rows = t->is.spec.shape[0], groups = t->cols / t->block;
    int32_t *index = calloc(1, (size_t)(4 * t->cols + 3 * t->blocks) + 1);
    uint16_t *half = (uint16_t *)(index + t->cols);
    uint8_t *zeros = (uint8_t *)(half + t->blocks);
    if (index == NULL)
        return sheaf__no_memory(t->is.spec.name);
    for (int64_t c = 0; c < t->cols; c++)
        index[c] = (int32_t)(c / t->block);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t g = 0; g < groups; g++)
            half[g * rows + r] = sheaf__f16(t->scales[r * groups + g]);
        sheaf__plane_put(zeros, &p->plane[SHEAF__ZEROS_PART], rows, groups, r, 0,
                         t->zeros + r * groups, groups);
    }
    sheaf_status *st = put_part(w, t, SHEAF__CODES_PART, t->words);
    TRY(st, put_part(w, t, SHEAF__SCALES_PART, half));
    TRY(st, put_part(w, t, SHEAF__ZEROS_PART, zeros));
    if (p->suffix[SHEAF__INDEX_PART] != NULL)
        TRY(st, put_part(w, t, SHEAF__INDEX_PART, index));
    free(index);
    return st;
}

/* The scales, once all of them are known; the tensor is complete then. */
static sheaf_status *put_scales(sheaf__packer *w, tensor *t)
{
    const int64_t groups = (t->blocks + NESTED_BLOCK - 1) / NESTED_BLOCK;
    sheaf_status *st = NULL;
    if (t->is.packing->plane[SHEAF__CODES_PART].turned) {
        st = t->n > 0 ? put_planes(w, t) : NULL;
    } else if (!t->is.form.doubled) {
        st = t->blocks > 0 ? put_part(w, t, SHEAF__SCALES_PART, t->scales) : NULL;
    } else {
        float *nested = malloc((size_t)groups * sizeof *nested + (size_t)t->blocks + 1), offset = 0;
        uint8_t *codes = (uint8_t *)(nested + groups);
        char *text = NULL;
        if (nested == NULL)
            return sheaf__no_memory(t->is.spec.name);
        sheaf__double_scales(codes, nested, &offset, t->scales, t->blocks, w->map);
        st = put_part(w, t, SHEAF__SCALES_PART, codes);
        TRY(st, put_part(w, t, SHEAF__NESTED_PART, nested));
        TRY(st, state_text(&text, &t->is, offset));
        TRY(st, sheaf__folder_late(w->folder, t->at[STATE_JSON], text, (int64_t)strlen(text)));
        free(text);
        free(nested);
    }
    free(t->scales);
    t->scales = NULL;
    return st;
}

sheaf_status *sheaf__packer_begin(sheaf__packer *w, sheaf_folder *folder)
{
    sheaf_status *st = NULL;
    w->folder = folder;
    for (int64_t i = 0; i < w->count && st == NULL; i++) {
        tensor *t = &w->tensor[i];
        if (t->is.packing == NULL)
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
    const bool by_rows = sheaf__quant_of_rows(&t->is.form),
               halves = t->is.packing->plane[SHEAF__CODES_PART].turned; /* scales in float16 */
    sheaf_expected(st, "finite numbers%s, for %d bits",
                   by_rows  ? " of at most 65504"
                   : halves ? " with scales of at most 65504"
                            : "",
                   sheaf__code_bits(t->is.form.codes));
    sheaf_found(st, by_rows || halves ? "NaN, infinity or a larger number" : "NaN or infinity");
    return sheaf_try_this(st, "sheaf verify counts NaN and infinity; load the model's files again");
}

/* Codes of whole blocks, to the file or to the words that are kept. */
static sheaf_status *put_codes(sheaf__packer *w, tensor *t, int64_t block, uint8_t *codes,
                               int64_t n)
{
    const sheaf__plane *p = &t->is.packing->plane[SHEAF__CODES_PART];
    const int64_t from = block * t->block, rows = t->is.spec.shape[0];
    if (p->per == 1)
        return sheaf__folder_write(w->folder, t->at[SHEAF__CODES_PART], block, n / t->block, 0,
                                   t->cols, codes);
    if (!p->turned) { /* words of the flat tensor */
        uint8_t *words = codes + n + 1;
        codes[n] = t->is.form.codes == SHEAF__NF4 ? 7 : 0; /* 0, which fills the last word */
        sheaf__plane_put(words, p, 1, n, 0, 0, codes, n + n % 2);
        return sheaf__folder_write(w->folder, t->at[SHEAF__CODES_PART], from / 2, (n + 1) / 2, 0, 1,
                                   words);
    }
    if (p->down) /* neighbours of a column have one word */
        pthread_mutex_lock(&w->lock);
    for (int64_t i = 0; i < n; i += t->block)
        sheaf__plane_put(t->words, p, rows, t->cols, (from + i) / t->cols, (from + i) % t->cols,
                         codes + i, t->block);
    if (p->down)
        pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Values of whole blocks, or of the tensor's last one. */
static sheaf_status *put_blocks(sheaf__packer *w, tensor *t, int64_t block, const void *values,
                                int64_t n)
{
    const sheaf__coded_tensor *g = &t->is;
    const int64_t blocks = (n + t->block - 1) / t->block;
    const bool symmetric = sheaf__is_gptq(g->packing->by);
    float *scales = t->scales + block;
    uint8_t *codes = malloc((size_t)(n + n / 2) + 2), *zeros = t->zeros + block;
    sheaf_status *st = codes == NULL ? sheaf__no_memory(g->spec.name) : NULL;
    if (st == NULL && sheaf__quant_of_rows(&g->form))
        sheaf__quantise_rows(codes, scales, values, g->spec.dtype, blocks, t->cols);
    else if (st == NULL && g->form.grouping == SHEAF__GROUPS_FLAT)
        sheaf__quantise4(codes, scales, values, g->spec.dtype, n, t->block, g->form.codes);
    else if (st == NULL)
        sheaf__quantise_groups(codes, scales, symmetric ? NULL : zeros, values, g->spec.dtype, n,
                               t->block, g->form.codes);
    if (symmetric) /* stored less one */
        memset(zeros, g->form.codes == SHEAF__INT8 ? 127 : 7, (size_t)blocks);
    for (int64_t b = 0; b < blocks && st == NULL; b++)
        if (!isfinite(scales[b]))
            st = not_finite(t, block + b);
    TRY(st, put_codes(w, t, block, codes, n));
    free(codes);
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

static sheaf_status *put_edge(sheaf__packer *w, tensor *t, int64_t at, const void *values,
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
static sheaf_status *put_run(sheaf__packer *w, tensor *t, int64_t at, const char *values, int64_t n)
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

static sheaf_status *need_scales(sheaf__packer *w, tensor *t)
{
    pthread_mutex_lock(&w->lock);
    if (t->scales == NULL) {
        const sheaf__plane *p = &t->is.packing->plane[SHEAF__CODES_PART];
        t->scales =
            calloc(1, (size_t)(5 * t->blocks + (p->turned ? t->n / p->per * p->word : 0)) + 1);
        if (t->scales != NULL) {
            t->zeros = (uint8_t *)(t->scales + t->blocks);
            t->words = t->zeros + t->blocks;
        }
    }
    const bool there = t->scales != NULL;
    pthread_mutex_unlock(&w->lock);
    return there ? NULL : sheaf__no_memory(t->is.spec.name);
}

sheaf_status *sheaf__packer_put(void *writer, int64_t index, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, const void *src)
{
    sheaf__packer *w = writer;
    tensor *t = &w->tensor[index];
    if (t->is.packing == NULL)
        return sheaf__folder_write(w->folder, t->at[0], row0, rows, col0, cols, src);
    sheaf_status *st = need_scales(w, t);
    if (cols == t->cols)
        return TRY(st, put_run(w, t, row0 * cols, src, rows * cols));
    for (int64_t r = 0; r < rows && st == NULL; r++)
        st = put_run(w, t, (row0 + r) * t->cols + col0, (const char *)src + r * cols * t->value,
                     cols);
    return st;
}
