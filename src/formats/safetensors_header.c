/* safetensors_header.c - the JSON of a header, checked as the official parser checks it. */
#include "base/base.h"
#include "base/json_scan.h"
#include "safetensors.h"

/* A tensor as the JSON gives it. */
typedef struct header_tensor {
    sheaf_safetensors_entry is; /* its place and bytes are set at the end */
    int64_t order;              /* of appearance: of two with one name the later counts */
    uint64_t begin, end;
    uint64_t bytes; /* by shape and dtype, unless overflow or not whole bytes: */
    bool overflow, torn;
    bool vast; /* no elements, but the other axes multiply beyond what can be counted */
} header_tensor;

typedef struct reading {
    sheaf_json_scan scan;
    header_tensor *tensor;
    int64_t count, capacity;
    sheaf_safetensors_pair *pair;
    int64_t npairs, pairs_capacity;
    bool has_metadata;
} reading;

static const char memory_for[] = "out of memory for the header";

/* ---- one tensor's object ---- */

static sheaf_status *take_dtype(sheaf_json_scan *scan, header_tensor *t)
{
    const sheaf_json_scan start = *scan;
    char *name = NULL;
    sheaf_status *st = sheaf__scan_string(scan, &name);
    if (st != NULL)
        return st;
    const int dtype = sheaf_dtype_from_name(name);
    free(name);
    if (dtype < 0) {
        st = sheaf__scan_fail(
            &start, "a dtype: BOOL F4 F6_E2M3 F6_E3M2 U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ "
                    "F8_E5M2FNUZ I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64");
        return sheaf_in(st, "dtype");
    }
    t->is.dtype = (sheaf_dtype)dtype;
    return NULL;
}

static sheaf_status *take_shape(sheaf_json_scan *scan, header_tensor *t)
{
    if (!sheaf__scan_take(scan, '['))
        return sheaf__scan_fail(scan, "shape, a list");
    uint64_t elements = 1;
    int64_t others = 1; /* the axes that have elements */
    for (bool first = true, more;; first = false) {
        uint64_t d = 0;
        sheaf_status *st = sheaf__scan_next_item(scan, first, &more);
        if (st == NULL && !more)
            break;
        TRY(st, sheaf__scan_count(scan, &d));
        if (st != NULL)
            return sheaf_in(st, "shape");
        t->overflow = __builtin_mul_overflow(elements, d, &elements) || t->overflow;
        if (t->is.ndim == SHEAF_SAFETENSORS_MAX_DIMS || d > INT64_MAX)
            return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "shape"),
                                  "at most %d axes, each below 2^63", SHEAF_SAFETENSORS_MAX_DIMS);
        t->vast = t->vast || __builtin_mul_overflow(others, d > 0 ? (int64_t)d : 1, &others) ||
                  others > INT64_MAX / 16;
        t->is.shape[t->is.ndim++] = (int64_t)d;
    }
    t->bytes = elements; /* times the dtype's size once all fields are read */
    return NULL;
}

static sheaf_status *take_offsets(sheaf_json_scan *scan, header_tensor *t)
{
    bool more = false;
    if (!sheaf__scan_take(scan, '['))
        return sheaf__scan_fail(scan, "data_offsets, a list of two numbers");
    sheaf_status *st = sheaf__scan_count(scan, &t->begin);
    TRY(st, sheaf__scan_next_item(scan, false, &more));
    TRY(st, more ? sheaf__scan_count(scan, &t->end) : sheaf__scan_fail(scan, "a second number"));
    TRY(st, !sheaf__scan_take(scan, ']') ? sheaf__scan_fail(scan, "']' after two numbers") : NULL);
    return sheaf_in(st, "data_offsets");
}

static sheaf_status *take_tensor(sheaf_json_scan *scan, header_tensor *t)
{
    static const char *const field[] = { "dtype", "shape", "data_offsets" };
    static sheaf_status *(*const take[])(
        sheaf_json_scan *, header_tensor *) = { take_dtype, take_shape, take_offsets };
    bool seen[3] = { false, false, false };
    if (!sheaf__scan_take(scan, '{'))
        return sheaf__scan_fail(scan, "an object with dtype, shape and data_offsets");
    for (bool first = true, more;; first = false) {
        char *key = NULL;
        sheaf_status *st = sheaf__scan_next_key(scan, first, &more, &key);
        if (st != NULL)
            return st;
        if (!more)
            break;
        int f = 0;
        while (f < 3 && strcmp(key, field[f]) != 0)
            f++;
        free(key);
        if (f < 3 && seen[f])
            return sheaf__scan_fail(scan, "each field once");
        st = f < 3 ? take[f](scan, t) : sheaf__scan_skip(scan, 2);
        if (st != NULL)
            return st;
        if (f < 3)
            seen[f] = true;
    }
    for (int f = 0; f < 3; f++)
        if (!seen[f])
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "field"), "%s", field[f]),
                               "no such field");
    uint64_t bits;
    t->overflow =
        __builtin_mul_overflow(t->bytes, (uint64_t)sheaf_dtype_bits(t->is.dtype), &bits) ||
        t->overflow;
    t->torn = !t->overflow && bits % 8 != 0;
    t->bytes = bits / 8;
    return NULL;
}

/* ---- the whole object ---- */

static sheaf_status *take_metadata(reading *r)
{
    sheaf_json_scan *scan = &r->scan;
    if (r->has_metadata)
        return sheaf__scan_fail(scan, "__metadata__ once");
    r->has_metadata = true;
    if (sheaf__scan_peek(scan) == 'n')
        return sheaf__scan_skip(scan, 1); /* null is as good as none */
    if (!sheaf__scan_take(scan, '{'))
        return sheaf__scan_fail(scan, "an object of strings");
    for (bool first = true, more;; first = false) {
        sheaf_safetensors_pair pair = { NULL, NULL };
        sheaf_status *st = sheaf__scan_next_key(scan, first, &more, &pair.key);
        if (st != NULL || !more)
            return st;
        st = sheaf__scan_string(scan, &pair.value);
        if (st == NULL && !SHEAF_GROW(&r->pair, &r->pairs_capacity, r->npairs + 1))
            st = sheaf__no_memory(memory_for);
        if (st != NULL) {
            free(pair.key);
            free(pair.value);
            return st;
        }
        r->pair[r->npairs++] = pair;
    }
}

static sheaf_status *take_all(reading *r)
{
    sheaf_json_scan *scan = &r->scan;
    if (!sheaf__scan_take(scan, '{'))
        return sheaf__scan_fail(scan, "an object");
    for (bool first = true, more;; first = false) {
        char *name = NULL;
        sheaf_status *st = sheaf__scan_next_key(scan, first, &more, &name);
        if (st != NULL)
            return st;
        if (!more)
            return sheaf__scan_end(scan);
        if (strcmp(name, "__metadata__") == 0) {
            free(name);
            st = sheaf_in(take_metadata(r), "__metadata__");
        } else if (!SHEAF_GROW(&r->tensor, &r->capacity, r->count + 1)) {
            free(name);
            st = sheaf__no_memory(memory_for);
        } else {
            header_tensor *t = &r->tensor[r->count];
            *t = (header_tensor){ .is.name = name, .order = r->count };
            r->count++;
            st = sheaf_in(take_tensor(scan, t), "tensor '%.200s'", name);
        }
        if (st != NULL)
            return st;
    }
}

/* ---- duplicates, order, tiling ---- */

static int by_name_then_order(const void *pa, const void *pb)
{
    const header_tensor *a = pa, *b = pb;
    const int c = strcmp(a->is.name, b->is.name);
    return c != 0 ? c : a->order < b->order ? -1 : 1;
}

static int by_offset(const void *pa, const void *pb)
{
    const header_tensor *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->is.name, b->is.name); /* several empty tensors at one place */
}

/* A pair and its place among all: qsort() is not stable. */
typedef struct placed {
    sheaf_safetensors_pair pair;
    int64_t order;
} placed;

static int by_key(const void *a, const void *b)
{
    const placed *p = a, *q = b;
    const int order = strcmp(p->pair.key, q->pair.key);
    return order != 0 ? order : p->order < q->order ? -1 : 1;
}

/* Of tensors with one name the last counts. */
static void drop_duplicates(reading *r)
{
    int64_t kept = 0;
    if (r->count == 0)
        return;
    qsort(r->tensor, (size_t)r->count, sizeof *r->tensor, by_name_then_order);
    for (int64_t i = 0; i < r->count; i++)
        if (i + 1 < r->count && strcmp(r->tensor[i].is.name, r->tensor[i + 1].is.name) == 0)
            free((char *)r->tensor[i].is.name);
        else
            r->tensor[kept++] = r->tensor[i];
    r->count = kept;
    qsort(r->tensor, (size_t)r->count, sizeof *r->tensor, by_offset);
}

static sheaf_status *check_tensor(const header_tensor *t, uint64_t start)
{
    sheaf_status *st;
    if (t->begin != start) {
        st = sheaf_fail(SHEAF_E_FORMAT, "tensor '%.200s': data_offsets", t->is.name);
        sheaf_expected(st, "begin %" PRIu64 ", where the one before ends", start);
        return sheaf_found(st, "%" PRIu64 " (%s)", t->begin,
                           t->begin > start ? "a hole" : "an overlap");
    }
    if (t->end < t->begin) {
        st = sheaf_fail(SHEAF_E_FORMAT, "tensor '%.200s': data_offsets", t->is.name);
        return sheaf_found(sheaf_expected(st, "an end from %" PRIu64 " on", t->begin), "%" PRIu64,
                           t->end);
    }
    if (t->overflow)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "tensor '%.200s': shape", t->is.name),
                           "fewer than 2^64 bits"),
            "more");
    if (t->torn)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "tensor '%.200s': shape", t->is.name),
                           "whole bytes"),
            "a last element of %s within a byte", sheaf_dtype_name(t->is.dtype));
    if (t->end - t->begin != t->bytes) {
        st = sheaf_fail(SHEAF_E_FORMAT, "tensor '%.200s': data_offsets", t->is.name);
        sheaf_expected(st, "%" PRIu64 " bytes, by shape and dtype", t->bytes);
        return sheaf_found(st, "%" PRIu64, t->end - t->begin);
    }
    if (t->vast) {
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%.200s': shape", t->is.name);
        return sheaf_found(
            sheaf_expected(st,
                           "axes that multiply to less than 2^59, those without elements aside"),
            "more");
    }
    return NULL;
}

static sheaf_status *check_tiling(const reading *r, size_t size, int64_t file_size)
{
    const uint64_t capacity = (uint64_t)file_size - 8 - size;
    uint64_t start = 0;
    for (int64_t i = 0; i < r->count; i++) {
        sheaf_status *st = check_tensor(&r->tensor[i], start);
        if (st != NULL)
            return st;
        start = r->tensor[i].end;
    }
    if (start == capacity)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "file size");
    sheaf_expected(st, "%" PRIu64 " bytes of data after the header, as its tensors need", start);
    sheaf_found(st, "%" PRIu64 " bytes", capacity);
    if (capacity < start)
        sheaf_try_this(st, "the file was cut short: copy or download it again");
    return st;
}

/* Metadata: sorted, the last of equal keys. */
static sheaf_status *tidy_metadata(reading *r)
{
    int64_t kept = 0;
    placed *all = malloc(((size_t)r->npairs + 1) * sizeof *all);
    if (all == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < r->npairs; i++)
        all[i] = (placed){ r->pair[i], i };
    qsort(all, (size_t)r->npairs, sizeof *all, by_key);
    for (int64_t i = 0; i < r->npairs; i++) {
        if (i + 1 < r->npairs && strcmp(all[i].pair.key, all[i + 1].pair.key) == 0) {
            free(all[i].pair.key);
            free(all[i].pair.value);
        } else
            r->pair[kept++] = all[i].pair;
    }
    r->npairs = kept;
    free(all);
    return NULL;
}

/* ---- the result ---- */

static sheaf_status *hand_over(sheaf_safetensors_header *out, reading *r, size_t size)
{
    out->entry = calloc((size_t)r->count + 1, sizeof *out->entry);
    out->by_name = calloc((size_t)r->count + 1, sizeof *out->by_name);
    if (out->entry == NULL || out->by_name == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < r->count; i++) {
        sheaf_safetensors_entry *e = &out->entry[i];
        *e = r->tensor[i].is;
        e->offset = (int64_t)(8 + size + r->tensor[i].begin);
        e->bytes = (int64_t)r->tensor[i].bytes;
        out->by_name[i] = (sheaf__named){ e->name, i };
    }
    qsort(out->by_name, (size_t)r->count, sizeof *out->by_name, sheaf__by_name);
    out->count = r->count;
    out->pair = r->pair;
    out->npairs = r->npairs;
    r->pair = NULL;
    r->count = r->npairs = 0;
    return NULL;
}

static void pairs_free(sheaf_safetensors_pair *pair, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        free(pair[i].key);
        free(pair[i].value);
    }
    free(pair);
}

sheaf_status *sheaf__safetensors_parse(sheaf_safetensors_header *out, const char *text, size_t size,
                                       int64_t file_size)
{
    reading r = { 0 };
    *out = (sheaf_safetensors_header){ 0 };
    sheaf_status *st = sheaf__scan_init(&r.scan, text, size, false);
    TRY(st, take_all(&r));
    if (st == NULL) {
        drop_duplicates(&r);
        st = check_tiling(&r, size, file_size);
    }
    TRY(st, tidy_metadata(&r));
    TRY(st, hand_over(out, &r, size));
    for (int64_t i = 0; i < r.count; i++)
        free((char *)r.tensor[i].is.name);
    free(r.tensor);
    pairs_free(r.pair, r.npairs);
    if (st != NULL)
        sheaf__safetensors_header_release(out);
    return sheaf_in(st, "header");
}

void sheaf__safetensors_header_release(sheaf_safetensors_header *header)
{
    for (int64_t i = 0; i < header->count; i++)
        free((char *)header->entry[i].name);
    free(header->entry);
    free(header->by_name);
    pairs_free(header->pair, header->npairs);
    *header = (sheaf_safetensors_header){ 0 };
}
