/* tile_unit.h - the tiles of AMX as all code of ours has them: 16 rows of 64 bytes each. */
#pragma once

#include <stdint.h>

/* For _tile_loadconfig(). Constant: the compiler does not know that the instruction reads all of
 * it. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} sheaf__whole_tiles = { .palette = 1,
                         .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                         .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
