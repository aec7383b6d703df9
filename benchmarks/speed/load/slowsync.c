/* A slower disk, the same for every server: preloaded (LD_PRELOAD), fsync and fdatasync take
 * SLOWSYNC_US microseconds longer. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_first(void)
{
    const char *microseconds = getenv("SLOWSYNC_US");
    long us = microseconds ? atol(microseconds) : 0;
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

int fsync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_first();
    return next(fd);
}

int fdatasync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_first();
    return next(fd);
}
