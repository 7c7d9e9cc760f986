/* grid.c - see grid.h. */
#include "schema/grid.h"

#include "base/elementary.h"

float sheaf__grid_angle(int64_t place, int64_t j, int64_t quarter)
{
    const float power = (float)sheaf__pow_d(10000.0, (double)((float)j / (float)quarter));
    return (float)place * (1.0f / power);
}

float sheaf__sincos(int64_t index, int64_t cols, int64_t width)
{
    const int64_t place = index / width, at = index % width, quarter = width / 4,
                  along = at < 2 * quarter ? place % cols : place / cols;
    const double angle = (double)sheaf__grid_angle(along, at % quarter, quarter);
    return (float)(at / quarter % 2 == 0 ? sheaf__sin_d(angle) : sheaf__cos_d(angle));
}
