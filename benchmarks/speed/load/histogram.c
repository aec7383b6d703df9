#include "histogram.h"

#define NS_PER_US_D 1000.0

static unsigned bucket_of(uint64_t ns)
{
    if (ns < 1u << BUCKET_BITS) return (unsigned)ns;
    unsigned power = 63u - (unsigned)__builtin_clzll(ns);
    unsigned within = (unsigned)(ns >> (power - BUCKET_BITS)) & ((1u << BUCKET_BITS) - 1);
    return ((power - BUCKET_BITS + 1) << BUCKET_BITS) + within;
}

/* The middle of a bucket. */
static uint64_t duration_of(unsigned bucket)
{
    if (bucket < 1u << BUCKET_BITS) return bucket;
    unsigned power = (bucket >> BUCKET_BITS) + BUCKET_BITS - 1;
    uint64_t within = bucket & ((1u << BUCKET_BITS) - 1), width = 1ull << (power - BUCKET_BITS);
    return (1ull << power) + within * width + width / 2;
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    histogram->count++;
    histogram->sum_ns += ns;
    if (ns > histogram->longest_ns) histogram->longest_ns = ns;
    histogram->buckets[bucket_of(ns)]++;
}

double histogram_quantile_us(const struct histogram *histogram, double share)
{
    uint64_t wanted = (uint64_t)(share * (double)histogram->count), passed = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++) {
        passed += histogram->buckets[bucket];
        if (passed <= wanted) continue;
        uint64_t ns = duration_of(bucket);
        return (double)(ns > histogram->longest_ns ? histogram->longest_ns : ns) / NS_PER_US_D;
    }
    return (double)histogram->longest_ns / NS_PER_US_D;
}
