/* Durations, counted in buckets that are about 3 % wide: 32 for each power of two. */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H
#include <stdint.h>

enum { BUCKET_BITS = 5, BUCKETS = 64 << BUCKET_BITS };

struct histogram {
    uint64_t count, sum_ns, longest_ns, buckets[BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t ns);

/* The duration that `share` (0 to 1) of all do not exceed, in microseconds; 0 if there are none. */
double histogram_quantile_us(const struct histogram *histogram, double share);

#endif
