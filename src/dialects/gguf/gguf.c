/* gguf.c - llama.cpp's files as dialects: models, adapters of LoRA, and towers for pictures. */
#include "base/base.h"
#include "dialects/common/dialects.h"
#include "dialects/gguf/read.h"

static bool gguf_is(const char *path)
{
    char at[SHEAF_PATH_SIZE];
    return sheaf__gguf_at(at, path) != NULL;
}

static bool is_never(const char *path)
{
    return false;
}

static sheaf_status *read_none(sheaf_catalog *catalog, const char *path,
                               const sheaf_dialect_hints *hints)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                          "a dialect that is read: this one is only written");
}

const sheaf_dialect sheaf__dialect_gguf = {
    .name = "gguf",
    .title = "GGUF",
    .is = gguf_is,
    .read = sheaf__gguf_read,
    .writes = SHEAF_WRITES_MODEL | SHEAF_WRITES_BLOCKS,
    .whole = true,
    .hf_config = true,
};

const sheaf_dialect sheaf__dialect_gguf_lora = {
    .name = "gguf-lora",
    .title = "GGUF with LoRA",
    .is = is_never,
    .read = read_none,
    .writes = SHEAF_WRITES_ADAPTER | SHEAF_WRITES_BLOCKS,
    .adapter = true,
    .whole = true,
};

const sheaf_dialect sheaf__dialect_gguf_mmproj = {
    .name = "gguf-mmproj",
    .title = "GGUF with a tower for pictures",
    .is = is_never,
    .read = read_none,
    .writes = SHEAF_WRITES_MODEL | SHEAF_WRITES_BLOCKS,
    .whole = true,
};
