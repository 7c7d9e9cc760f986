/* init_values.c - what each number of a new model is; see init.h. */
#include "base/random.h"
#include "checkpoint/tools/init.h"
#include "schema/family.h"

void sheaf__init_values(float *out, const sheaf_tensor *t, const sheaf_config *c, uint64_t seed,
                        int64_t first, int64_t n)
{
    const float range = (float)c->initializer_range;
    const uint64_t key = sheaf__name_key(t->name);
    const bool zero = t->bias || t->zero, constant = zero || sheaf__is_norm(t->role);
    const float value = zero ? 0 : 1;
    const sheaf__family *family = sheaf__family_for(c);
    for (int64_t i = 0; i < n; i++) {
        if (t->buffer)
            out[i] = family->buffer(t, c, first + i);
        else
            out[i] =
                constant ? value : sheaf__random_normal(seed, key, (uint64_t)(first + i)) * range;
    }
}
