/* math.h - our own elementary functions, because libm's bits vary between machines.
 *
 * Scalar definitions (plain C, fmaf where fusion is meant); vector kernels give
 * the same bits. The largest error in ulp stands behind each; exp, tanh and
 * log, and erf of elementary.h with 1.14, were measured on every float, math_test.c holds them on a
 * sample. A NaN
 * result is always the quiet NaN 0x7fc00000 (docs/contract.md, section 2). */
#pragma once

#include <stdint.h>

#include "base/elementary.h" /* sheaf__exp_d, log_d, pow_d, cos_d, sin_d */

float sheaf__exp(float x);  /* 1.01 ulp; denormal results are 0; NaN -> NaN, +inf -> +inf */
float sheaf__log(float x);  /* 0.83 ulp; zero and denormals -> -inf, x < 0 -> NaN */
float sheaf__tanh(float x); /* 1.34 ulp */

/* 16 virtual lanes: lane i takes elements i, i+16, ... from +0; lanes are joined by
 * adding 8 apart, 4 apart, 2 apart, 1 apart. */
float sheaf__lanes_dot(const float *x, const float *y, int64_t n); /* lane = fma(x, y, lane) */
float sheaf__lanes_join(const float lane[16]);
double sheaf__lanes_join_d(const double lane[16]);
