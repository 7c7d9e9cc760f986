/* read.c - tensors of GGUF files as pieces of Hugging Face's; see read.h.
 *
 * In llama.cpp's files
 *   - matrices may be in blocks of 4 to 8 bits: they are read as float32, as ggml dequantises them,
 *     or as codes;
 *   - norms, biases and routers are float32, whatever the model was trained in: beside matrices of
 *     16 bits they are read in that type where that loses none of them;
 *   - rows of q and k of some architectures have another order, and Gemma's norms are one more;
 *   - experts of a layer are one tensor.
 * A model of several files, NAME-00001-of-00003.gguf, is refused: check_alone(). */
#include "dialects/gguf/read.h"

#include "base/file.h"
#include "dialects/common/model.h"
#include "ops/math/round.h"

typedef struct reading {
    sheaf_catalog *c;
    const sheaf__gguf_form *form;
    int64_t heads, kv_heads, experts;
    sheaf_dtype dtype; /* of the model */
    bool narrow;       /* float32 is read as `dtype` */
} reading;

/* ---- the type of the model ---- */

static bool is_16_bits(const sheaf__gguf_tensor *t)
{
    return t->type == SHEAF__GGML_F16 || t->type == SHEAF__GGML_BF16;
}

/* Of its matrices: one of 16 bits, where all have it, else float32. */
static sheaf_dtype dtype_of(const sheaf__gguf *file)
{
    int type = -1;
    for (int64_t i = 0; i < file->ntensors; i++) {
        const sheaf__gguf_tensor *t = &file->tensor[i];
        if (t->ndim < 2 || (t->type == SHEAF__GGML_F32 && type != SHEAF__GGML_F32 &&
                            sheaf__ends_with(t->name, ".ffn_gate_inp.weight")))
            continue;
        if (!is_16_bits(t) || (type >= 0 && type != (int)t->type))
            return SHEAF_F32;
        type = t->type;
    }
    return type < 0 ? SHEAF_F32 : sheaf__gguf_type_at(type)->dtype;
}

/* Is every number of a float32 tensor, without the 1 that was added, one of the 16-bit type? */
static sheaf_status *fits(bool *all, const sheaf__gguf *file, const sheaf__gguf_tensor *t,
                          bool plus_one, sheaf_dtype dtype)
{
    enum { SOME = 4096 };
    float value[SOME];
    sheaf_status *st = NULL;
    for (int64_t at = 0; st == NULL && *all && at < t->bytes; at += (int64_t)sizeof value) {
        const int64_t left = t->bytes - at,
                      bytes = left < (int64_t)sizeof value ? left : (int64_t)sizeof value;
        st = sheaf__file_read_at(file->fd, value, (size_t)bytes, t->offset + at, file->path);
        for (int64_t i = 0; st == NULL && i < bytes / 4; i++) {
            const float x = value[i] - (plus_one ? 1.0f : 0.0f);
            *all = *all && sheaf__rounded(x, dtype) == x;
        }
    }
    return st;
}

static bool is_plus_one(const reading *r, const sheaf__gguf_tensor *t)
{
    return r->form->norms_plus_one && sheaf__ends_with(t->name, "_norm.weight");
}

static sheaf_status *find_narrow(reading *r, const sheaf__gguf *file)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && r->narrow && i < file->ntensors; i++)
        if (file->tensor[i].type == SHEAF__GGML_F32 &&
            strncmp(file->tensor[i].name, "rope_", 5) != 0)
            st = fits(&r->narrow, file, &file->tensor[i], is_plus_one(r, &file->tensor[i]),
                      r->dtype);
    return st;
}

/* ---- pieces ---- */

/* As `t` lies in the file, from its row `row` on. */
static sheaf_piece piece_of(const reading *r, int file, const sheaf__gguf_tensor *t,
                            sheaf_dtype dtype, int ndim, const int64_t *shape, int64_t row)
{
    const int64_t width = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
    sheaf_piece p = sheaf__piece_dense(file, -1, dtype, t->offset, ndim, shape);
    p.stored = t->type;
    p.plus_one = is_plus_one(r, t);
    p.converted = p.plus_one || sheaf__gguf_type_at(t->type)->dtype != dtype ||
                  sheaf__gguf_type_block(t->type) > 1;
    p.offset += row * width / sheaf__gguf_type_block(t->type) * sheaf__gguf_type_bytes(t->type);
    return p;
}

/* Heads of a tensor of this name whose rows lie in pairs (form->neighbours); 0: none. */
static int64_t turned_heads(const reading *r, const sheaf__gguf_tensor *t)
{
    const char *part =
        r->form->neighbours && strncmp(t->name, "blk.", 4) == 0 ? strchr(t->name + 4, '.') : NULL;
    const bool q = part != NULL && strncmp(part, ".attn_q.", 8) == 0,
               k = part != NULL && strncmp(part, ".attn_k.", 8) == 0;
    const int64_t heads = q ? r->heads : k ? r->kv_heads : 0;
    return heads > 0 && t->ndim > 0 && t->shape[0] % (2 * heads) == 0 ? heads : 0;
}

/* Row 2 i + j of a head's d rows in the file is row i + j d / 2. */
static sheaf_status *add_turned(reading *r, int file, const sheaf__gguf_tensor *t, sheaf_logical *l,
                                int64_t heads)
{
    const int64_t rows = t->shape[0] / heads;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < 2 * heads; i++) {
        sheaf_piece p =
            piece_of(r, file, t, l->entry.dtype, t->ndim, t->shape, i / 2 * rows + i % 2);
        p.begin[0] = i * (rows / 2);
        p.size[0] = rows / 2;
        p.stride[0] *= 2;
        st = sheaf__catalog_piece(r->c, l, &p);
    }
    return st;
}

static sheaf_dtype read_as(const reading *r, const sheaf__gguf_tensor *t)
{
    return r->narrow && t->type == SHEAF__GGML_F32 ? r->dtype : sheaf__gguf_type_at(t->type)->dtype;
}

/* Experts of a layer, each a tensor; *is: it is one of them. */
static sheaf_status *add_experts(bool *is, reading *r, int file, const sheaf__gguf_tensor *t)
{
    char name[SHEAF__SPELLED];
    sheaf_logical *l;
    sheaf_status *st = NULL;
    *is = t->ndim == 3 && sheaf__gguf_name_back(name, r->form, t->name, 0);
    if (*is && t->shape[0] != r->experts) /* without elements a tensor may claim any number */
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", t->name),
                                          "%" PRId64 " experts, as the file's keys say",
                                          r->experts),
                           "%" PRId64, t->shape[0]);
    for (int64_t e = 0; *is && st == NULL && e < t->shape[0]; e++) {
        sheaf__gguf_name_back(name, r->form, t->name, e);
        st = sheaf__catalog_tensor(&l, r->c, name, read_as(r, t), 2, t->shape + 1);
        if (st != NULL)
            break;
        const sheaf_piece p =
            piece_of(r, file, t, l->entry.dtype, 2, t->shape + 1, e * t->shape[1]);
        st = sheaf__catalog_piece(r->c, l, &p);
    }
    return st;
}

static sheaf_status *add_tensor(reading *r, int file, const sheaf__gguf_tensor *t)
{
    char name[SHEAF__SPELLED];
    bool experts = false;
    sheaf_logical *l;
    if (strncmp(t->name, "rope_", 5) == 0) /* of which the config says as much */
        return NULL;
    sheaf_status *st = add_experts(&experts, r, file, t);
    if (st != NULL || experts)
        return st;
    if (!sheaf__gguf_name_back(name, r->form, t->name, -1))
        snprintf(name, sizeof name, "%s", t->name); /* it is reported as no tensor of the model */
    st = sheaf__catalog_tensor(&l, r->c, name, read_as(r, t), t->ndim, t->shape);
    const int64_t heads = turned_heads(r, t);
    if (st == NULL && heads > 0 && t->ndim == 1 && sheaf__gguf_type_block(t->type) > 1)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", t->name),
                                          "f32, f16 or bf16: llama.cpp stores no biases in blocks"),
                           "%s", sheaf__gguf_type_at(t->type)->name);
    if (st == NULL && l->npieces > 0)
        return sheaf__defect(r->c, "duplicate", r->c->file[file].path, name, "one tensor",
                             "use a complete copy of the model", "two of this name");
    if (st == NULL && heads > 0)
        return add_turned(r, file, t, l, heads);
    if (st == NULL) {
        const sheaf_piece p = piece_of(r, file, t, l->entry.dtype, t->ndim, t->shape, 0);
        st = sheaf__catalog_piece(r->c, l, &p);
    }
    return st;
}

static sheaf_status *add_file(reading *r, const sheaf__gguf *file)
{
    int number = 0;
    sheaf_status *st = sheaf__catalog_file(&number, r->c, file->path, &file->mark);
    for (int64_t i = 0; st == NULL && i < file->ntensors; i++)
        st = sheaf__catalog_defect(r->c, file->path, add_tensor(r, number, &file->tensor[i]));
    return sheaf__catalog_defect(r->c, file->path, st);
}

/* ---- the whole ---- */

/* Of a model of several files each has a part. */
static sheaf_status *check_alone(const sheaf__gguf *file)
{
    bool ok = true;
    const int64_t parts = sheaf__gguf_integer(sheaf__gguf_find(file, "split.count"), 0, &ok);
    if (!ok || parts < 2)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "split.count");
    sheaf_found(sheaf_expected(st, "a model in one file"), "one of %" PRId64, parts);
    return sheaf_try_this(st, "llama-gguf-split --merge FIRST.gguf WHOLE.gguf of llama.cpp");
}

static sheaf_status *take_config(reading *r, const sheaf__gguf *file,
                                 const sheaf_dialect_hints *hints)
{
    const sheaf__family *family = NULL;
    char *made = NULL;
    sheaf_config config = { 0 };
    sheaf_status *st = check_alone(file);
    TRY(st, sheaf__gguf_config(&made, &family, file, r->dtype));
    TRY(st, sheaf_config_parse(&config, made, strlen(made)));
    if (st != NULL) {
        free(made);
        return st;
    }
    r->form = family->gguf;
    r->heads = config.heads;
    r->kv_heads = config.kv_heads;
    r->experts = config.num_experts;
    sheaf_config_release(&config);
    if (hints->config == NULL) {
        r->c->config = made;
        return NULL;
    }
    free(made);
    return sheaf__catalog_take_config(r->c, hints->config);
}

/* "8 of 14 tensors in blocks (q8_0 8): ..." */
static sheaf_status *note_blocks(sheaf_catalog *c, const sheaf__gguf *file)
{
    int64_t of[SHEAF__GGML_TYPES] = { 0 }, all = 0;
    sheaf_text types = { 0 };
    for (int64_t i = 0; i < file->ntensors; i++) {
        const bool blocks = sheaf__gguf_type_block(file->tensor[i].type) > 1;
        of[file->tensor[i].type] += blocks;
        all += blocks;
    }
    if (all == 0)
        return NULL;
    for (int k = 0; k < SHEAF__GGML_TYPES; k++)
        if (of[k] > 0)
            sheaf__text_add(&types, "%s%s %" PRId64, types.size > 0 ? ", " : "",
                            sheaf__gguf_type_at(k)->name, of[k]);
    sheaf_status *st =
        types.failed
            ? sheaf__no_memory(c->root)
            : sheaf__note(c, "dtype", file->path, "", "", "",
                          "%" PRId64 " of %" PRId64 " tensors are stored in blocks (%s): linear "
                          "layers stay codes in memory, unless they are trained or, of Q4_0 "
                          "and Q3_K, answer",
                          all, file->ntensors, types.at);
    sheaf__text_release(&types);
    return st;
}

typedef struct fault_context {
    sheaf_catalog *c;
    const char *path;
} fault_context;

static sheaf_status *take_fault(void *self, sheaf_status *fault)
{
    const fault_context *of = self;
    return sheaf__catalog_defect(of->c, of->path, fault);
}

sheaf_status *sheaf__gguf_read(sheaf_catalog *c, const char *path, const sheaf_dialect_hints *hints)
{
    char at[SHEAF_PATH_SIZE];
    sheaf__gguf *file = NULL;
    reading r = { .c = c };
    bool known = false;
    const char *found;
    sheaf_status *st = sheaf__gguf_alone(&found, at, path);
    if (st != NULL)
        return st;
    if (found == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "%s", path), "a GGUF file");
    fault_context of = { c, at };
    st = sheaf__gguf_open_sound(&file, at, &(sheaf__gguf_faults){ take_fault, &of });
    if (st != NULL)
        return sheaf__catalog_defect(c, at, st);
    r.dtype = dtype_of(file);
    st = take_config(&r, file, hints);
    known = st == NULL;
    if (!known)
        st = sheaf__catalog_defect(c, at, st);
    TRY(st, known ? note_blocks(c, file) : NULL);
    r.narrow = r.dtype != SHEAF_F32;
    if (known && !hints->config_only) {
        TRY(st, find_narrow(&r, file));
        TRY(st, add_file(&r, file));
        TRY(st, sheaf__catalog_check_model(c, sheaf__catalog_defects(c) > 0));
    }
    sheaf__gguf_close(file);
    return st;
}
