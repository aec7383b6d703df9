/* What is to be done, as the command line says it. */
#ifndef PLAN_H
#define PLAN_H
#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

struct plan {
    /* Whom */
    const char *host;
    int port, pid;
    bool is_redis;
    /* Before the clock runs */
    uint64_t preload;       /* jobs to put */
    bool bury;              /* and to bury */
    uint64_t tubes;         /* that an idle connection keeps alive */
    uint64_t spread;        /* tubes with one job each, all watched by each measured connection */
    uint64_t own_tubes;     /* that each measured connection watches and no other does */
    uint64_t warmup_ms;
    /* While it runs */
    struct script script;   /* a cycle: what one token does again and again */
    int connections;
    uint32_t depth;         /* tokens of a connection: commands in flight at a time */
    uint64_t count;         /* cycles at most */
    uint64_t milliseconds;  /* no cycle begins later; 0: no limit */
    int workers;            /* then `connections` put, and so many others reserve and delete */
    uint64_t backlog;       /* jobs that producers may be ahead of workers */
    uint64_t probe_us;      /* one more connection asks something small so often; 0: none */
    int memory_samples;     /* how often the server's memory is looked at, evenly over `count` */
    /* The jobs */
    uint64_t body_bytes;
    bool random_bytes, random_priorities;
    uint64_t timeout_s;     /* give up then */
};

extern struct plan plan;

/* Fill in `plan`, or say what is wrong and end. */
void read_plan(int count, char **words);

#endif
