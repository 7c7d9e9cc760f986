/* spell.h - names of fields in texts, spelled as the caller writes them.
 *
 * A setting has a flag, a recipe key, a field of a struct, a keyword of Python. Texts of the
 * library name it by its field, in backquotes and with dashes, with a value where one belongs to
 * it:
 * "`lora-rank 8`, or leave `top-k` out". Each face spells them as a text leaves through it:
 *
 *     the command                      --lora-rank 8, or leave --top-k out
 *     HTTP: keys of requests           --lora-rank 8, or leave "top_k" out
 *     Python (python/sheaf/errors.py)  lora_rank=8, or leave top_k= out
 *     a C program, and JSON of facts   as it stands
 *
 * What stands in double quotes is left alone: records and files are quoted so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Is the name, with underscores and of `size` bytes, a key of the caller's? */
typedef bool sheaf__is_key(const char *name, size_t size);

/* sheaf__spell_fields - `text` with its fields spelled: as keys where is_key() says so, else, or
 * with NULL, as flags. malloc'd; NULL: no memory. */
char *sheaf__spell_fields(const char *text, sheaf__is_key *is_key);
