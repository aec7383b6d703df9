/* What another process has used so far, from /proc. */
#ifndef PROCESS_H
#define PROCESS_H
#include <stdint.h>

struct usage {
    uint64_t cpu_ns;    /* of all its threads, from schedstat: exact, not sampled by ticks */
    long memory_kb;     /* resident */
    int threads;
};

struct usage usage_of(int pid);

#endif
