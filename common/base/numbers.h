/* Orders and medians of numbers.
 *
 * Memory: nothing is kept. Threads: any. */
#ifndef WAVETUNE_COMMON_BASE_NUMBERS_H
#define WAVETUNE_COMMON_BASE_NUMBERS_H

#include "common/base/base.h"

/* For qsort and bsearch: rising. No NaN. */
int compare_ordinals(const void *a, const void *b); /* uint64_t */
int compare_doubles(const void *a, const void *b);

/* Sorts the values and keeps each once, at the front; returns how many. */
size_t sort_unique(uint64_t *values, size_t n);

/* The value that comes k-th, from 0, of n > k in rising order. Reorders the values. */
double kth_of(double *values, size_t n, size_t k);

/* The middle one of n >= 1 values, or the mean of the middle two. Reorders the values. */
double median_of(double *values, size_t n);

#endif
