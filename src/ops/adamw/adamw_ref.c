/* adamw_ref.c - one step of AdamW on float32 masters.
 *
 * Source: Loshchilov and Hutter 2019, algorithm 2, in the order of torch's
 * single-tensor CPU code: param.mul_(1 - lr wd); exp_avg.lerp_(grad, 1 - beta1),
 * which goes from the nearer end; exp_avg_sq.mul_(beta2).addcmul_(grad, grad,
 * 1 - beta2); param.addcdiv_(exp_avg, sqrt(exp_avg_sq) / bias2_sqrt + eps,
 * -lr / bias1). No fusing. Constants are rounded to float32 once (adamw.h). */
#include "ops/columns.h"

#include "ops/adamw/adamw.h"

void sheaf__adamw_ref(float *p, float *m, float *v, const float *g, int64_t n,
                      const sheaf__adamw *how)
{
    const sheaf__adamw_constants k = sheaf__adamw_prepare(how);
    for (int64_t i = 0; i < n; i++)
        sheaf__adamw_one(&p[i], &m[i], &v[i], g[i], &k);
}
