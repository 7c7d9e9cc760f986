/* zip_write.c - the records of a zip file; see zip.h. */

#include "zip.h"
#include "base/base.h"

enum { UTF8_NAMES = 1 << 11, FIRST_DAY = 0x21 /* 1980-01-01 */, WITH_ZIP64 = 45 };

static bool is_wide(int64_t number)
{
    return number >= UINT32_MAX;
}

sheaf_status *sheaf__zip_place(sheaf_zip_entry *entry)
{
    const int64_t least = 30 + (int64_t)strlen(entry->name) + (is_wide(entry->bytes) ? 20 : 0) + 4;
    int64_t end;
    if (__builtin_add_overflow(entry->header, least + SHEAF_ZIP_ALIGNMENT, &entry->offset) ||
        __builtin_add_overflow(entry->offset, entry->bytes, &end))
        return sheaf_fail(SHEAF_E_ARG, "zip entry '%s': the file would be larger than 2^63 bytes",
                          entry->name);
    entry->offset = (entry->header + least + SHEAF_ZIP_ALIGNMENT - 1) / SHEAF_ZIP_ALIGNMENT *
                    SHEAF_ZIP_ALIGNMENT;
    return NULL;
}

/* From "version needed" to the sizes: the same in both records. */
static void put_common(sheaf_text *text, const sheaf_zip_entry *entry)
{
    sheaf__text_little(text, WITH_ZIP64, 2);
    sheaf__text_little(text, UTF8_NAMES, 2);
    sheaf__text_little(text, 0, 2); /* stored */
    sheaf__text_little(text, 0, 2);
    sheaf__text_little(text, FIRST_DAY, 2);
    sheaf__text_little(text, entry->crc, 4);
    sheaf__text_little(text, is_wide(entry->bytes) ? UINT32_MAX : (uint64_t)entry->bytes, 4);
    sheaf__text_little(text, is_wide(entry->bytes) ? UINT32_MAX : (uint64_t)entry->bytes, 4);
    sheaf__text_little(text, strlen(entry->name), 2);
}

sheaf_status *sheaf__zip_local(char **out, size_t *size, const sheaf_zip_entry *entry)
{
    sheaf_text text = { 0 };
    const size_t whole = (size_t)(entry->offset - entry->header);
    const size_t extra = whole - 30 - strlen(entry->name),
                 padding = extra - 4 - (is_wide(entry->bytes) ? 20 : 0);
    sheaf__text_bytes(&text, "PK\3\4", 4);
    put_common(&text, entry);
    sheaf__text_little(&text, extra, 2);
    sheaf__text_add(&text, "%s", entry->name);
    if (is_wide(entry->bytes)) {
        sheaf__text_little(&text, 1, 2);
        sheaf__text_little(&text, 16, 2);
        sheaf__text_little(&text, (uint64_t)entry->bytes, 8);
        sheaf__text_little(&text, (uint64_t)entry->bytes, 8);
    }
    sheaf__text_bytes(&text, "FB", 2);
    sheaf__text_little(&text, padding, 2);
    for (size_t i = 0; i < padding; i++)
        sheaf__text_bytes(&text, "Z", 1);
    *size = text.size;
    return sheaf__text_take(out, &text);
}

static void put_record(sheaf_text *text, const sheaf_zip_entry *entry)
{
    const bool wide = is_wide(entry->bytes), far = is_wide(entry->header);
    const uint64_t extra = (wide ? 16u : 0u) + (far ? 8u : 0u);
    sheaf__text_bytes(text, "PK\1\2", 4);
    sheaf__text_little(text, WITH_ZIP64, 2); /* made by */
    put_common(text, entry);
    sheaf__text_little(text, extra > 0 ? extra + 4 : 0, 2);
    sheaf__text_little(text, 0, 2); /* comment */
    sheaf__text_little(text, 0, 2); /* disk */
    sheaf__text_little(text, 0, 2);
    sheaf__text_little(text, 0, 4);
    sheaf__text_little(text, far ? UINT32_MAX : (uint64_t)entry->header, 4);
    sheaf__text_add(text, "%s", entry->name);
    if (extra > 0) {
        sheaf__text_little(text, 1, 2);
        sheaf__text_little(text, extra, 2);
    }
    for (int i = 0; wide && i < 2; i++)
        sheaf__text_little(text, (uint64_t)entry->bytes, 8);
    if (far)
        sheaf__text_little(text, (uint64_t)entry->header, 8);
}

sheaf_status *sheaf__zip_tail(char **out, size_t *size, const sheaf_zip_entry *entry, int64_t count,
                              int64_t at)
{
    sheaf_text text = { 0 };
    for (int64_t i = 0; i < count; i++)
        put_record(&text, &entry[i]);
    const uint64_t bytes = text.size, end64 = (uint64_t)at + bytes;
    sheaf__text_bytes(&text, "PK\6\6", 4);
    sheaf__text_little(&text, 44, 8); /* of this record, after this number */
    sheaf__text_little(&text, WITH_ZIP64, 2);
    sheaf__text_little(&text, WITH_ZIP64, 2);
    sheaf__text_little(&text, 0, 8); /* disks */
    sheaf__text_little(&text, (uint64_t)count, 8);
    sheaf__text_little(&text, (uint64_t)count, 8);
    sheaf__text_little(&text, bytes, 8);
    sheaf__text_little(&text, (uint64_t)at, 8);
    sheaf__text_bytes(&text, "PK\6\7", 4);
    sheaf__text_little(&text, 0, 4);
    sheaf__text_little(&text, end64, 8);
    sheaf__text_little(&text, 1, 4);
    sheaf__text_bytes(&text, "PK\5\6", 4);
    sheaf__text_little(&text, 0, 4);
    for (int i = 0; i < 2; i++)
        sheaf__text_little(&text, count < UINT16_MAX ? (uint64_t)count : UINT16_MAX, 2);
    sheaf__text_little(&text, bytes < UINT32_MAX ? bytes : UINT32_MAX, 4);
    sheaf__text_little(&text, at < UINT32_MAX ? (uint64_t)at : UINT32_MAX, 4);
    sheaf__text_little(&text, 0, 2);
    *size = text.size;
    return sheaf__text_take(out, &text);
}
