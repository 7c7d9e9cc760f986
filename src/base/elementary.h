/* elementary.h - exp, log, pow, sin and cos in double, the same on every machine.
 *
 * For what is computed once and then used everywhere: rotary tables, schedules,
 * bias corrections, random normals. libm's bits vary between versions, so these
 * are ours: additions, products, quotients and fma() in a fixed order. Largest
 * errors measured against long double stand behind each; elementary_test.c
 * holds them. Denormal inputs count as zero and denormal results are zero, so
 * the answer does not depend on the thread's DAZ and FTZ flags. */
#pragma once

double sheaf__exp_d(double x);           /* 0.63 ulp; below -708.39: 0 */
double sheaf__log_d(double x);           /* 0.51 ulp; 0 -> -inf, x < 0 -> NaN */
double sheaf__pow_d(double x, double y); /* 0.64 ulp; x >= 0, x < 0 -> NaN */
double sheaf__cos_d(double x);           /* 0.75 ulp; |x| > 1e9 -> NaN: never a wrong digit */
double sheaf__sin_d(double x);           /* 0.75 ulp; |x| > 1e9 -> NaN */
