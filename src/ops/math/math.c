/* math.c - see math.h. */
#include "ops/math/math.h"

#include "ops/math/elementary.h"

float sheaf__exp(float x)
{
    return sheaf__exp_of(x);
}

float sheaf__log(float x)
{
    return sheaf__log_of(x);
}

float sheaf__tanh(float x)
{
    return sheaf__tanh_of(x);
}

float sheaf__lanes_join(const float lane[16])
{
    float sum[8];
    for (int i = 0; i < 8; i++)
        sum[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        sum[i] += sum[i + 4];
    for (int i = 0; i < 2; i++)
        sum[i] += sum[i + 2];
    return sheaf__one_nan(sum[0] + sum[1]);
}

double sheaf__lanes_join_d(const double lane[16])
{
    double sum[8];
    for (int i = 0; i < 8; i++)
        sum[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++)
        sum[i] += sum[i + 4];
    for (int i = 0; i < 2; i++)
        sum[i] += sum[i + 2];
    const double all = sum[0] + sum[1];
    return all == all ? all : (double)sheaf__float(SHEAF__NAN_BITS);
}

float sheaf__lanes_dot(const float *x, const float *y, int64_t n)
{
    float lane[16] = { 0 };
    for (int64_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], y[i], lane[i % 16]);
    return sheaf__lanes_join(lane);
}
