/* launch_elements.c - launches of ops/tensor/elements.c and trained.c. */
#include "ops/devices/gpu/kernels/trained.h"
#include "ops/devices/gpu/launch.h"
#include "ops/quant/quantise.h"
#include "ops/tensor/elements.h"
#include "ops/tensor/trained.h"

static void convert(sheaf__gpu *gpu, const sheaf__pair *p)
{
    sheaf__gpu_each(gpu, SHEAF__TYPED(convert, p->to),
                    sheaf__gpu_threads(p->n, sheaf__gpu_narrow(p->to, p->from)), p, sizeof *p);
}

bool sheaf__gpu_op_convert_list(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__conversions *c = call->arguments;
    int64_t most = 0;
    for (int32_t i = 0; i < c->count; i++)
        most = c->each[i].n > most ? c->each[i].n : most;
    const int64_t threads = sheaf__gpu_threads(most, sheaf__gpu_narrow(c->to, c->from));
    sheaf__gpu_launch(gpu, &(sheaf__launch){ .kernel = SHEAF__TYPED(convert_list, c->to),
                                             .blocks = { (threads + 255) / 256, c->count },
                                             .threads = 256,
                                             .arguments = c,
                                             .bytes = sizeof *c });
    return true;
}

/* All that is written before the next number to be read may be written at once, which is half of
 * what is left; when that fits, the rest goes by way of scratch. */
bool sheaf__gpu_op_widen(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { REST = 1 << 15 };
    _Static_assert(REST * sizeof(uint16_t) <= SHEAF__GPU_SCRATCH, "");
    const sheaf__widening *w = call->arguments;
    const size_t size = sheaf_dtype_bytes(w->dtype);
    const char *narrow = (const char *)w->wide + (size_t)w->n * (sizeof(float) - size);
    int64_t i = 0;
    for (int64_t m; w->n - i > REST; i += m) {
        m = (w->n - i) / 2;
        convert(gpu, &(sheaf__pair){ .dst = w->wide + i,
                                     .src = narrow + (size_t)i * size,
                                     .to = SHEAF_F32,
                                     .from = w->dtype,
                                     .n = m });
    }
    const int64_t left = w->n - i;
    void *scratch = sheaf__gpu_scratch(gpu);
    convert(gpu, &(sheaf__pair){ .dst = scratch,
                                 .src = narrow + (size_t)i * size,
                                 .to = w->dtype,
                                 .from = w->dtype,
                                 .n = left });
    convert(gpu,
            &(sheaf__pair){
                .dst = w->wide + i, .src = scratch, .to = SHEAF_F32, .from = w->dtype, .n = left });
    return true;
}

/* ---- the optimizer ---- */

bool sheaf__gpu_op_adamw(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__update *u = call->arguments;
    const adamw_arguments a = { u->master, u->moment1, u->moment2,
                                u->grad,   u->n,       sheaf__adamw_prepare(&u->how) };
    sheaf__gpu_each(gpu, "adamw", sheaf__gpu_threads(u->n, SHEAF_F32), &a, sizeof a);
    return true;
}

bool sheaf__gpu_op_adamw8(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__update8 *u = call->arguments;
    adamw8_arguments a = { u->master,  u->moment1, u->moment2, u->absmax1,
                           u->absmax2, u->grad,    u->n,       sheaf__adamw_prepare(&u->how) };
    for (int k = 0; k < 2; k++)
        memcpy(a.map[k], u->map[k].value, sizeof a.map[k]);
    sheaf__gpu_launch(
        gpu, &(sheaf__launch){ .kernel = "adamw8",
                               .blocks = { (u->n + SHEAF__ADAMW8_BLOCK - 1) / SHEAF__ADAMW8_BLOCK },
                               .threads = SHEAF__ADAMW8_BLOCK,
                               .shared = ADAMW8_SHARED,
                               .arguments = &a,
                               .bytes = sizeof a });
    return true;
}
