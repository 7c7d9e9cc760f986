/* pickled.h - the tensors of a .safetensors file as torch.save() writes a dict of them. */
#pragma once

#include "tests/check.h"

#include "formats/safetensors.h"
#include "formats/torch.h"

/* `before` is put before each name. */
static inline void pickle_file_as(const char *to, const char *from, const char *before)
{
    sheaf_safetensors *file = NULL;
    sheaf_pickle_doc *doc = NULL;
    sheaf_torch_writer *w = NULL;
    CHECK_OK(sheaf__safetensors_open(&file, from));
    CHECK_OK(sheaf__pickle_new(&doc));
    sheaf_pickle *root = sheaf__pickle_make(doc, SHEAF_PICKLE_DICT);
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        char name[600];
        snprintf(name, sizeof name, "%s%s", before, e->name);
        sheaf__pickle_set(doc, root, name,
                          sheaf__pickle_make_tensor(doc, e->dtype, e->ndim, e->shape));
    }
    CHECK_OK(sheaf__pickle_made(doc, root));
    CHECK_OK(sheaf__torch_begin(&w, to, doc));
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        char *bytes = malloc((size_t)e->bytes + 1);
        assert_non_null(bytes);
        CHECK_OK(sheaf__safetensors_read(file, e, 0, bytes, e->bytes));
        CHECK_OK(sheaf__torch_write(w, i, 0, bytes, e->bytes));
        free(bytes);
    }
    CHECK_OK(sheaf__torch_finish(w));
    sheaf__pickle_free(doc);
    sheaf__safetensors_close(file);
}

static inline void pickle_file(const char *to, const char *from)
{
    pickle_file_as(to, from, "");
}

/* The folder `to`, made here, with the adapter of `from`: its config, and its tensors pickled. */
static inline void pickle_adapter(const char *to, const char *from)
{
    char a[2048], b[2048], *text = NULL;
    size_t size;
    CHECK_OK(sheaf__make_dirs(to));
    snprintf(a, sizeof a, "%s/adapter_model.safetensors", from);
    snprintf(b, sizeof b, "%s/adapter_model.bin", to);
    pickle_file(b, a);
    snprintf(a, sizeof a, "%s/adapter_config.json", from);
    snprintf(b, sizeof b, "%s/adapter_config.json", to);
    CHECK_OK(sheaf__file_read_all(&text, &size, a, 1 << 20));
    CHECK_OK(sheaf__file_write_whole(b, text, size));
    free(text);
}
