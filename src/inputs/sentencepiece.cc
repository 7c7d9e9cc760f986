/* sentencepiece.cc - see sentencepiece.h. The only C++ of sheaf: libsentencepiece has no C
 * interface.
 *
 * Compiled by the C compiler's own driver (meson.build), so it keeps to what every C++17 compiler
 * takes. What can throw runs inside guarded(). */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <sentencepiece_processor.h>

extern "C" {
#include "base/text.h"
#include "inputs/sentencepiece.h"
#include "inputs/sentencepiece_file.h"
}

struct sheaf__sentencepiece {
    sentencepiece::SentencePieceProcessor processor;
    bool table; /* of characters that are rewritten */
};

static sheaf_status *library_failed(const char *what, const char *why)
{
    return sheaf_found(sheaf_fail(SHEAF_E_FORMAT, "%s", what), "%s", why);
}

/* Runs `work`; an exception becomes a status. */
template <typename Work> static sheaf_status *guarded(const char *what, const Work &work)
{
    try {
        return work();
    } catch (const std::bad_alloc &) {
        return sheaf_fail(SHEAF_E_MEMORY, "%s", what);
    } catch (const std::exception &e) {
        return library_failed(what, e.what());
    } catch (...) {
        return library_failed(what, "an unknown exception");
    }
}

static sheaf_status *load(sheaf__sentencepiece **out, const char *bytes, size_t size)
{
    auto model = std::make_unique<sheaf__sentencepiece>();
    const auto status = model->processor.LoadFromSerializedProto(std::string_view(bytes, size));
    if (!status.ok())
        return library_failed("sentencepiece model", status.error_message());
    *out = model.release();
    return nullptr;
}

extern "C" bool sheaf__sentencepiece_there(void)
{
    return true;
}

extern "C" sheaf_status *sheaf__sentencepiece_open(sheaf__sentencepiece **out, const char *path)
{
    char *bytes;
    size_t size;
    bool table;
    sheaf_status *st = sheaf__sentencepiece_read(&bytes, &size, &table, path);
    if (st != nullptr)
        return st;
    st = guarded("sentencepiece model", [&] { return load(out, bytes, size); });
    free(bytes);
    if (st == nullptr)
        (*out)->table = table;
    return sheaf_in(st, "%s", path);
}

extern "C" void sheaf__sentencepiece_close(sheaf__sentencepiece *model)
{
    delete model;
}

extern "C" int64_t sheaf__sentencepiece_pieces(const sheaf__sentencepiece *model)
{
    return model->processor.GetPieceSize();
}

extern "C" int32_t sheaf__sentencepiece_bos(const sheaf__sentencepiece *model)
{
    return model->processor.bos_id();
}
extern "C" int32_t sheaf__sentencepiece_eos(const sheaf__sentencepiece *model)
{
    return model->processor.eos_id();
}
extern "C" int32_t sheaf__sentencepiece_unk(const sheaf__sentencepiece *model)
{
    return model->processor.unk_id();
}
extern "C" int32_t sheaf__sentencepiece_pad(const sheaf__sentencepiece *model)
{
    return model->processor.pad_id();
}

static sheaf_status *check_text(const char *text, size_t size)
{
    if (size > SHEAF__TEXT_MAX)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "text"), "at most %d bytes",
                                          (int)SHEAF__TEXT_MAX),
                           "%zu", size);
    for (size_t i = 0; i < size;) {
        const size_t n = sheaf__utf8_length(text + i, size - i);
        if (n == 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "text"), "UTF-8"),
                               "byte 0x%02x at %zu", (unsigned char)text[i], i);
        i += n;
    }
    return nullptr;
}

static sheaf_status *encode(int32_t **ids, int64_t *count, const sheaf__sentencepiece *model,
                            std::string_view text)
{
    std::vector<int> found;
    const auto status = model->processor.Encode(text, &found);
    if (!status.ok())
        return library_failed("text", status.error_message());
    int32_t *result = (int32_t *)malloc((found.size() + 1) * sizeof *result);
    if (result == nullptr)
        return sheaf_fail(SHEAF_E_MEMORY, "token ids");
    std::copy(found.begin(), found.end(),
              result); /* never control pieces: the library finds none in text */
    *ids = result;
    *count = (int64_t)found.size();
    return nullptr;
}

extern "C" sheaf_status *sheaf__sentencepiece_encode(int32_t **ids, int64_t *count,
                                                     const sheaf__sentencepiece *model,
                                                     const char *text, size_t size)
{
    sheaf_status *st = check_text(text, size);
    if (st != nullptr)
        return st;
    if (model->table && memchr(text, 0, size) != nullptr) /* the table was not looked at for it */
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "text"),
                                          "no NUL, for a tokenizer that normalises"),
                           "one");
    return guarded("text", [&] { return encode(ids, count, model, std::string_view(text, size)); });
}

/* NUL inside would end the C string early. */
static sheaf_status *as_c_string(char **out, const std::string &text)
{
    sheaf_text copy = {};
    for (size_t i = 0; i < text.size();) {
        const size_t end = text.find('\0', i),
                     n = (end == std::string::npos ? text.size() : end) - i;
        sheaf__text_bytes(&copy, text.data() + i, n);
        if (end != std::string::npos)
            sheaf__text_bytes(&copy, "\xEF\xBF\xBD", 3);
        i += n + 1;
    }
    return sheaf__text_take(out, &copy);
}

static sheaf_status *decode(char **text, const sheaf__sentencepiece *model, const int32_t *ids,
                            int64_t count)
{
    const auto &processor = model->processor;
    std::vector<std::string> pieces;
    for (int64_t i = 0; i < count; i++) {
        if (ids[i] < 0)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "token id"), "0 or more"),
                               "%d", (int)ids[i]);
        if (ids[i] >= processor.GetPieceSize())
            pieces.emplace_back("\xEF\xBF\xBD");
        else if (!processor.IsControl(ids[i]) && !processor.IsUnknown(ids[i]))
            pieces.push_back(processor.IdToPiece(ids[i]));
    }
    std::string joined;
    const auto status = processor.Decode(pieces, &joined);
    if (!status.ok())
        return library_failed("token ids", status.error_message());
    return as_c_string(text, joined);
}

extern "C" sheaf_status *sheaf__sentencepiece_decode(char **text, const sheaf__sentencepiece *model,
                                                     const int32_t *ids, int64_t count)
{
    return guarded("token ids", [&] { return decode(text, model, ids, count); });
}
