/* Time for a counted server: each look at a clock finds it a microsecond later, so that what the
 * server does depends on its input alone.  It starts far ahead of the kernel's clock, so that no
 * thread's wait with a deadline ends early.
 *
 *     gcc -shared -fPIC -o steady_clock.so steady_clock.c; LD_PRELOAD=./steady_clock.so python3 ...
 */

#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static long looks;
    long us = __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);

    now->tv_sec = (clock == CLOCK_REALTIME ? 2000000000 : 1000000000) + us / 1000000;
    now->tv_nsec = us % 1000000 * 1000;
    return 0;
}
