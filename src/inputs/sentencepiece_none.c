/* sentencepiece_none.c - sentencepiece.h in a build without the library: no model opens, so what
 * would read one is never called. */
#include "inputs/sentencepiece.h"

static sheaf_status *refuse(const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: this build has no sentencepiece", path);
    return sheaf_try_this(st, "build sheaf with -Dsentencepiece=enabled");
}

bool sheaf__sentencepiece_there(void)
{
    return false;
}

sheaf_status *sheaf__sentencepiece_open(sheaf__sentencepiece **out, const char *path)
{
    return refuse(path);
}

void sheaf__sentencepiece_close(sheaf__sentencepiece *model)
{
}

int64_t sheaf__sentencepiece_pieces(const sheaf__sentencepiece *model)
{
    return 0;
}

int32_t sheaf__sentencepiece_bos(const sheaf__sentencepiece *model)
{
    return -1;
}

int32_t sheaf__sentencepiece_eos(const sheaf__sentencepiece *model)
{
    return -1;
}

int32_t sheaf__sentencepiece_unk(const sheaf__sentencepiece *model)
{
    return -1;
}

int32_t sheaf__sentencepiece_pad(const sheaf__sentencepiece *model)
{
    return -1;
}

sheaf_status *sheaf__sentencepiece_encode(int32_t **ids, int64_t *count,
                                          const sheaf__sentencepiece *model, const char *text,
                                          size_t size)
{
    return refuse("tokenizer");
}

sheaf_status *sheaf__sentencepiece_decode(char **text, const sheaf__sentencepiece *model,
                                          const int32_t *ids, int64_t count)
{
    return refuse("tokenizer");
}
