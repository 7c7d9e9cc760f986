/* math.h - our own elementary functions, because libm's bits vary between machines.
 *
 * Scalar definitions (plain C, fmaf where fusion is meant); vector kernels give
 * the same bits. Largest error in ulp stands at each definition and is tested. */
#ifndef SHEAF_OPS_MATH_H
#define SHEAF_OPS_MATH_H

#include <stdint.h>

float sheaf__exp(float x);     /* denormal results are 0; NaN -> NaN, +inf -> +inf */
double sheaf__exp_d(double x); /* for tables and schedules; same on every machine */
double sheaf__log_d(double x);
double sheaf__pow_d(double x, double y); /* x > 0 */
double sheaf__cos_d(double x); /* |x| up to 1e9, for rotary tables and the cosine schedule */
double sheaf__sin_d(double x);
float sheaf__log(float x);
float sheaf__tanh(float x);
float sheaf__erf(float x);

/* 16 virtual lanes: lane i takes elements i, i+16, ...; lanes are joined by adding
 * 8 apart, 4 apart, 2 apart, 1 apart. */
float sheaf__lanes_sum(const float *x, int64_t n);
float sheaf__lanes_dot(const float *x, const float *y, int64_t n); /* lane = fma(x, y, lane) */

#endif
