#include "process.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "common.h"

static uint64_t thread_cpu_ns(int pid, const char *thread)
{
    char path[400];
    unsigned long long ns = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", pid, thread);
    FILE *file = fopen(path, "r");
    if (!file) return 0; /* The thread has just ended. */
    if (fscanf(file, "%llu", &ns) != 1) ns = 0;
    fclose(file);
    return ns;
}

static long memory_kb_of(int pid)
{
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

struct usage usage_of(int pid)
{
    struct usage found = {.memory_kb = memory_kb_of(pid)};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    if (!threads) die("the server, process %d, is gone", pid);
    for (struct dirent *each; (each = readdir(threads));) {
        if (each->d_name[0] == '.') continue;
        found.cpu_ns += thread_cpu_ns(pid, each->d_name);
        found.threads++;
    }
    closedir(threads);
    return found;
}
