/* byte_level.h - private: the alphabet of 256 characters that stand for bytes, and UTF-8 of bytes
 * that may be none. */
#pragma once

#include "base/base.h"

/* sheaf__byte_char - the character that stands for `byte`: itself where it can be seen, else one
 * from U+0100 on, in order. */
uint32_t sheaf__byte_char(unsigned char byte);
/* sheaf__text_lossy - appends `bytes` as Rust's from_utf8_lossy() reads them: U+FFFD for the
 * longest beginning of a character that is not gone on with, else for each byte that is no part of
 * UTF-8. Unless this is the `end`, what may yet become a character is left. The bytes read. */
size_t sheaf__text_lossy(sheaf_text *text, const char *bytes, size_t size, bool end);
