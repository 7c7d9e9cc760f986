/* manifest.c - see manifest.h. */
#include "checkpoint/store/manifest.h"

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/version.h"

#define FORMAT "sheaf checkpoint"
#define SELF "\"self\": \"" /* begins the last line */

static bool hash_parse(sheaf_hash *out, const char *text)
{
    return text != NULL && strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32 &&
           sscanf(text, "%16" SCNx64 "%16" SCNx64, &out->high, &out->low) == 2;
}

/* ---- the struct ---- */

sheaf_status *sheaf__manifest_new(sheaf_manifest **out, int slices, int64_t count)
{
    sheaf_manifest *m = calloc(1, sizeof *m);
    if (m != NULL) {
        m->slices = slices;
        m->bytes = calloc((size_t)slices + 1, sizeof *m->bytes);
        m->tensor = calloc((size_t)count + 1, sizeof *m->tensor); /* never of size 0 */
        m->count = count;
        for (int64_t i = 0; m->tensor != NULL && i < count; i++)
            m->tensor[i].dtype = SHEAF_F32;
    }
    if (m == NULL || m->bytes == NULL || m->tensor == NULL) {
        if (m != NULL)
            m->count = m->tensor == NULL ? 0 : count;
        sheaf__manifest_free(m);
        return sheaf__no_memory("out of memory for the manifest");
    }
    *out = m;
    return NULL;
}

void sheaf__manifest_free(sheaf_manifest *m)
{
    if (m == NULL)
        return;
    for (int64_t i = 0; i < m->count; i++) {
        free(m->tensor[i].name);
        free(m->tensor[i].slice);
    }
    free(m->tensor);
    free(m->bytes);
    free(m->progress);
    free(m);
}

sheaf_status *sheaf__manifest_set(sheaf_manifest *m, int64_t i, const char *name, sheaf_dtype dtype,
                                  int ndim, const int64_t *shape, const sheaf_cut *cut)
{
    sheaf_manifest_tensor *t = &m->tensor[i];
    const bool is_cut = cut != NULL && cut->nparts > 0;
    t->name = strdup(name);
    t->dtype = dtype;
    t->ndim = ndim;
    t->shape[1] = 1;
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    if (is_cut) {
        t->cut = *cut;
        t->slice = calloc((size_t)m->slices, sizeof *t->slice);
    }
    return t->name == NULL || (is_cut && t->slice == NULL)
               ? sheaf__no_memory("out of memory for the manifest")
               : NULL;
}

sheaf_hash sheaf__manifest_joined(const sheaf_manifest *m, int64_t i)
{
    unsigned char bytes[SHEAF_MAX_SLICES][16];
    for (int s = 0; s < m->slices; s++)
        sheaf__hash_bytes(bytes[s], m->tensor[i].slice[s]);
    return sheaf__hash(bytes, (size_t)m->slices * sizeof *bytes);
}

void sheaf__manifest_join(sheaf_manifest *m)
{
    for (int64_t i = 0; i < m->count; i++)
        if (m->tensor[i].cut.nparts > 0)
            m->tensor[i].hash = sheaf__manifest_joined(m, i);
}

const sheaf_manifest_tensor *sheaf__manifest_find(const sheaf_manifest *m, const char *name)
{
    return SHEAF_FIND(const sheaf_manifest_tensor, name, m->tensor, m->count, name);
}

const char *sheaf__manifest_file(char buffer[32], int slices, int slice)
{
    if (slice == slices)
        return strcpy(buffer, "replicated.safetensors");
    snprintf(buffer, 32, "slice_%03d.safetensors", slice);
    return buffer;
}

/* Shape of a tensor's part in `slice`. Of more than two axes all but the last are merged. */
static void box_of(int64_t shape[2], const sheaf_manifest_tensor *tensor, int slice)
{
    sheaf__safetensors_view(&shape[0], &shape[1], tensor->ndim, tensor->shape);
    if (tensor->cut.nparts > 0)
        shape[tensor->cut.axis] = sheaf_cut_slice_rows(&tensor->cut, slice);
}

int64_t sheaf__manifest_bytes(const sheaf_manifest_tensor *t, int slice)
{
    int64_t shape[2];
    box_of(shape, t, slice);
    return shape[0] * shape[1] * (int64_t)sheaf_dtype_bytes(t->dtype);
}

sheaf_hash *sheaf__manifest_hash(const sheaf_manifest_tensor *t, int slice)
{
    return t->cut.nparts > 0 ? &t->slice[slice] : (sheaf_hash *)&t->hash;
}

static sheaf_safetensors_spec spec_of(const sheaf_manifest_tensor *t, int slice)
{
    sheaf_safetensors_spec s = { .name = t->name, .dtype = t->dtype, .ndim = t->ndim };
    if (t->ndim <= 2)
        box_of(s.shape, t, slice);
    else
        memcpy(s.shape, t->shape, sizeof s.shape);
    return s;
}

bool sheaf__manifest_holds(const sheaf_manifest *m, const sheaf_manifest_tensor *t, int slice)
{
    return (t->cut.nparts > 0) == (slice < m->slices);
}

sheaf_status *sheaf__manifest_specs(sheaf_safetensors_spec **out, int64_t *count,
                                    const sheaf_manifest *m, int slice)
{
    *count = 0;
    *out = calloc((size_t)m->count + 1, sizeof **out);
    for (int64_t i = 0; *out != NULL && i < m->count; i++)
        if (sheaf__manifest_holds(m, &m->tensor[i], slice))
            (*out)[(*count)++] = spec_of(&m->tensor[i], slice);
    return *out != NULL ? NULL : sheaf__no_memory("out of memory for the list of tensors");
}

sheaf_status *sheaf__manifest_begin(sheaf_safetensors_writer **out, sheaf_manifest *m, int slice,
                                    const char *dir)
{
    char name[32], path[SHEAF_PATH_SIZE];
    sheaf_safetensors_spec *specs = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__manifest_specs(&specs, &n, m, slice);
    sheaf__path_in(path, dir, sheaf__manifest_file(name, m->slices, slice));
    TRY(st, sheaf__safetensors_begin(out, path, specs, n, NULL, 0));
    if (st == NULL)
        m->bytes[slice] = sheaf__safetensors_size(*out);
    free(specs);
    return st;
}

bool sheaf__manifest_agrees(const sheaf_manifest_tensor *t, const sheaf_safetensors_entry *e,
                            int slice)
{
    const sheaf_safetensors_spec s = spec_of(t, slice);
    return e != NULL && e->dtype == s.dtype &&
           sheaf__same_shape(e->ndim, e->shape, s.ndim, s.shape);
}

/* ---- writing ---- */

static sheaf_status *write_progress(sheaf_text *text, const char *progress)
{
    json_t *object = NULL;
    char *line = NULL;
    sheaf_status *st = sheaf__json_parse(&object, progress, strlen(progress));
    TRY(st, sheaf__json_text(&line, object, JSON_SORT_KEYS | JSON_ENSURE_ASCII));
    json_decref(object);
    if (st != NULL)
        return sheaf_in(st, "progress");
    sheaf__text_add(text, "\"progress\": %s,\n", line);
    free(line);
    return NULL;
}

static void write_tensor(sheaf_text *text, const sheaf_manifest *m, const sheaf_manifest_tensor *t)
{
    char hash[33];
    sheaf__text_json(text, t->name);
    sheaf__text_add(text, ": {\"dtype\": \"%s\", \"shape\": [", sheaf_dtype_name(t->dtype));
    for (int i = 0; i < t->ndim; i++)
        sheaf__text_add(text, "%s%" PRId64, i > 0 ? ", " : "", t->shape[i]);
    sheaf__text_add(text, "], \"hash\": \"%s\"", sheaf__hash_text(hash, t->hash));
    if (t->cut.nparts > 0) {
        sheaf__text_add(text, ", \"axis\": %d, \"parts\": [", t->cut.axis);
        for (int i = 0; i < t->cut.nparts; i++)
            sheaf__text_add(text, "%s[%" PRId64 ", %" PRId64 "]", i == 0 ? "" : ", ",
                            t->cut.part[i].units, t->cut.part[i].rows_per_unit);
        sheaf__text_add(text, "], \"slices\": [");
        for (int s = 0; s < m->slices; s++)
            sheaf__text_add(text, "%s\"%s\"", s == 0 ? "" : ", ",
                            sheaf__hash_text(hash, t->slice[s]));
        sheaf__text_add(text, "]");
    }
    sheaf__text_add(text, "}");
}

sheaf_status *sheaf__manifest_write(char **out, size_t *size, const sheaf_manifest *m)
{
    char name[32], hash[33];
    sheaf_text text = { 0 };
    sheaf__text_add(&text,
                    "{\"format\": \"" FORMAT "\",\n\"version\": %d,\n\"contract\": %d,\n"
                    "\"step\": %" PRId64 ",\n\"slices\": %d,\n",
                    SHEAF__MANIFEST_VERSION, SHEAF__CONTRACT, m->step, m->slices);
    sheaf_status *st = write_progress(&text, m->progress);
    if (st != NULL) {
        sheaf__text_release(&text);
        return st;
    }
    sheaf__text_add(&text, "\"bytes\": {");
    for (int s = 0; s <= m->slices; s++)
        sheaf__text_add(&text, "%s\"%s\": %" PRId64, s == 0 ? "" : ", ",
                        sheaf__manifest_file(name, m->slices, s), m->bytes[s]);
    sheaf__text_add(&text, "},\n\"tensors\": {");
    for (int64_t i = 0; i < m->count; i++) {
        sheaf__text_add(&text, i == 0 ? "\n" : ",\n");
        write_tensor(&text, m, &m->tensor[i]);
    }
    sheaf__text_add(&text, "\n},\n");
    if (!text.failed)
        sheaf__text_add(&text, SELF "%s\"}\n",
                        sheaf__hash_text(hash, sheaf__hash(text.at, text.size)));
    *size = text.size;
    return sheaf__text_take(out, &text);
}

/* ---- reading ---- */

/* The last line holds the hash of all before it. */
static sheaf_status *check_self(const char *text, size_t size)
{
    enum { LAST = sizeof SELF - 1 + 32 + 3 }; /* "self": "<32>"} and the end of the line */
    sheaf_hash want;
    char hex[33] = "", is[33];
    const char *last = size < LAST ? "" : text + size - LAST;
    if (size >= LAST)
        memcpy(hex, last + sizeof SELF - 1, 32);
    if (size < LAST || memcmp(last, SELF, sizeof SELF - 1) != 0 || !hash_parse(&want, hex) ||
        memcmp(text + size - 3, "\"}\n", 3) != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "the end is missing"),
                              "a last line with \"self\"");
    const sheaf_hash found = sheaf__hash(text, size - LAST);
    if (sheaf__hash_equal(want, found))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "damaged");
    sheaf_expected(st, "hash %s, as its last line says", hex);
    return sheaf_found(st, "%s", sheaf__hash_text(is, found));
}

static sheaf_status *bad(const char *what, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", what), "%s", expected);
}

/* Reads a list of whole numbers; the count, or -1. */
static int numbers(int64_t *out, int most, const json_t *list)
{
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > (size_t)most)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return -1;
        out[i] = json_integer_value(value);
    }
    return (int)n;
}

static sheaf_status *read_cut(sheaf_manifest_tensor *t, int slices, const json_t *object)
{
    const json_t *parts = json_object_get(object, "parts"),
                 *list = json_object_get(object, "slices");
    const json_t *axis = json_object_get(object, "axis");
    if (axis == NULL && parts == NULL && list == NULL)
        return NULL;
    const size_t nparts = json_array_size(parts);
    if (!json_is_integer(axis) || json_integer_value(axis) < 0 ||
        json_integer_value(axis) >= t->ndim || t->ndim > 2)
        return bad("'axis'", "an axis of the tensor");
    if (nparts < 1 || nparts > SHEAF_MAX_PARTS || json_array_size(list) != (size_t)slices)
        return bad("'parts', 'slices'", "one entry for each part and each slice");
    t->cut = (sheaf_cut){ .axis = (int)json_integer_value(axis),
                          .slices = slices,
                          .nparts = (int)nparts };
    for (size_t i = 0; i < nparts; i++) {
        int64_t pair[2];
        if (numbers(pair, 2, json_array_get(parts, i)) != 2)
            return bad("'parts'", "pairs [units, rows per unit]");
        t->cut.part[i] = (sheaf_part){ pair[0], pair[1] };
    }
    sheaf_status *st = sheaf_cut_check(&t->cut, t->shape[t->cut.axis]);
    if (st != NULL)
        return st;
    t->slice = calloc((size_t)slices, sizeof *t->slice);
    if (t->slice == NULL)
        return sheaf__no_memory("out of memory for the manifest");
    for (int s = 0; s < slices; s++)
        if (!hash_parse(&t->slice[s], json_string_value(json_array_get(list, (size_t)s))))
            return bad("'slices'", "hashes of 32 hex digits");
    return NULL;
}

/* Does the size fit a file? */
static bool shape_fits(const sheaf_manifest_tensor *t)
{
    int64_t elements = 1;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(elements, t->shape[i] > 0 ? t->shape[i] : 1, &elements))
            return false;
    return elements <= INT64_MAX / 16;
}

static sheaf_status *read_tensor(sheaf_manifest_tensor *t, int slices, const char *name,
                                 const json_t *object)
{
    t->shape[1] = 1;
    t->name = strdup(name);
    if (t->name == NULL)
        return sheaf__no_memory("out of memory for the manifest");
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    const int known = dtype == NULL ? -1 : sheaf_dtype_from_name(dtype);
    if (known < 0 || sheaf_dtype_bytes((sheaf_dtype)known) == 0)
        return bad("'dtype'", "a dtype of at least a byte");
    t->dtype = (sheaf_dtype)known;
    t->ndim = numbers(t->shape, SHEAF__MANIFEST_DIMS, json_object_get(object, "shape"));
    if (t->ndim < 0 || !shape_fits(t)) {
        t->ndim = 0;
        return bad("'shape'", "sizes of a tensor that a file can hold");
    }
    if (!hash_parse(&t->hash, json_string_value(json_object_get(object, "hash"))))
        return bad("'hash'", "32 hex digits");
    return read_cut(t, slices, object);
}

static sheaf_status *read_tensors(sheaf_manifest *m, json_t *tensors)
{
    const char *name;
    json_t *object;
    int64_t n = 0;
    json_object_foreach(tensors, name, object)
    {
        sheaf_status *st = read_tensor(&m->tensor[n++], m->slices, name, object);
        if (st != NULL)
            return sheaf_in(st, "'%s'", name);
    }
    qsort(m->tensor, (size_t)n, sizeof *m->tensor, sheaf__by_name);
    return NULL;
}

static sheaf_status *read_head(sheaf_manifest *m, const json_t *root)
{
    sheaf_json_reader r = { .object = root };
    m->step = sheaf__json_int(&r, "step", 0, INT64_MAX, SHEAF_JSON_NEEDED);
    const json_t *bytes = sheaf__json_object(&r, "bytes"),
                 *progress = sheaf__json_object(&r, "progress");
    if (r.st != NULL)
        return r.st;
    r = (sheaf_json_reader){ .object = bytes, .inside = "bytes." };
    for (int s = 0; s <= m->slices; s++) {
        char name[32];
        m->bytes[s] = sheaf__json_int(&r, sheaf__manifest_file(name, m->slices, s), 0, INT64_MAX,
                                      SHEAF_JSON_NEEDED);
    }
    if (r.st != NULL)
        return r.st;
    if (progress == NULL)
        return bad("'progress'", "an object");
    return sheaf__json_text(&m->progress, progress, JSON_SORT_KEYS | JSON_ENSURE_ASCII);
}

static sheaf_status *read_all(sheaf_manifest **out, const json_t *root)
{
    sheaf_json_reader r = { .object = root };
    const char *format = sheaf__json_string(&r, "format");
    const int64_t version = sheaf__json_int(&r, "version", 1, INT32_MAX, SHEAF_JSON_NEEDED),
                  contract = sheaf__json_int(&r, "contract", 1, INT32_MAX, SHEAF_JSON_NEEDED);
    const int64_t slices = sheaf__json_int(&r, "slices", 1, SHEAF_MAX_SLICES, SHEAF_JSON_NEEDED);
    if (r.st != NULL)
        return r.st;
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return bad("'format'", FORMAT);
    sheaf_status *st = sheaf__version_check("format", version, SHEAF__MANIFEST_VERSION);
    TRY(st, sheaf__version_check("numeric contract", contract, SHEAF__CONTRACT));
    if (st != NULL)
        return st;
    json_t *tensors = json_object_get(root, "tensors");
    if (!json_is_object(tensors))
        return bad("'tensors'", "an object");
    sheaf_manifest *m = NULL;
    st = sheaf__manifest_new(&m, (int)slices, (int64_t)json_object_size(tensors));
    TRY(st, read_head(m, root));
    TRY(st, read_tensors(m, tensors));
    if (st == NULL)
        *out = m;
    else
        sheaf__manifest_free(m);
    return st;
}

sheaf_status *sheaf__manifest_read(sheaf_manifest **out, const char *text, size_t size)
{
    sheaf_status *st = check_self(text, size);
    if (st != NULL)
        return st;
    json_t *root = NULL;
    st = sheaf__json_parse(&root, text, size);
    TRY(st, read_all(out, root));
    json_decref(root);
    return st;
}
