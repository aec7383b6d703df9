#include "plan.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

struct plan plan = {
    .host = "127.0.0.1", .connections = 1, .depth = 1, .count = UINT64_MAX, .backlog = 2000,
    .body_bytes = 16, .timeout_s = 300,
};

static const char help[] =
"loadgen --port N --pid N [OPTION]...\n"
"\n"
"Puts a load on a server that speaks beanstalkd's protocol, and says as JSON what it took.\n"
"A connection has DEPTH tokens.  Each walks through the list of --ops, again and again; its next\n"
"command leaves when the reply to the last is in.  One such walk is a cycle.\n"
"\n"
"whom     --host ADDRESS (127.0.0.1)  --port N  --pid N (whose CPU and memory)  --redis\n"
"before   --preload JOBS  --bury (them)  --tubes N (kept alive by an idle connection)\n"
"         --spread N (tubes with a job each, which each connection watches)\n"
"         --own-tubes N (that each connection watches alone)  --warmup-ms MS\n"
"measured --ops A,B,C  --connections N (1)  --depth N (1)  --count CYCLES  --ms MS\n"
"         --workers N (so many reserve and delete; the --connections put)  --backlog JOBS (2000)\n"
"         --probe-us US (one more connection asks so often)  --memory-samples N\n"
"jobs     --body BYTES (16)  --random-bytes  --random-priorities\n"
"         --timeout S (300)\n"
"ops      put reserve poll delete release bury touch ask kick delete-preloaded\n"
"         poll: reserve-with-timeout 0; ask: list-tube-used; kick: all that was preloaded;\n"
"         delete-preloaded: in random order\n"
"\n"
"Ends with 0, with 1 if replies were wrong, or with 2 if it could not run.\n";

enum option_code {
    HOST = 1000, PORT, PID, REDIS, PRELOAD, BURY, TUBES, SPREAD, WARMUP, OPS, CONNECTIONS, DEPTH,
    OWN_TUBES, COUNT, MS, WORKERS, BACKLOG, PROBE, MEMORY, BODY, RANDOM_BYTES, RANDOM_PRIORITIES, TIMEOUT, HELP
};

static const struct option options[] = {
    {"host", 1, 0, HOST}, {"port", 1, 0, PORT}, {"pid", 1, 0, PID}, {"redis", 0, 0, REDIS},
    {"preload", 1, 0, PRELOAD}, {"bury", 0, 0, BURY}, {"tubes", 1, 0, TUBES},
    {"spread", 1, 0, SPREAD}, {"own-tubes", 1, 0, OWN_TUBES}, {"warmup-ms", 1, 0, WARMUP}, {"ops", 1, 0, OPS},
    {"connections", 1, 0, CONNECTIONS}, {"depth", 1, 0, DEPTH}, {"count", 1, 0, COUNT},
    {"ms", 1, 0, MS}, {"workers", 1, 0, WORKERS}, {"backlog", 1, 0, BACKLOG},
    {"probe-us", 1, 0, PROBE}, {"memory-samples", 1, 0, MEMORY}, {"body", 1, 0, BODY},
    {"random-bytes", 0, 0, RANDOM_BYTES}, {"random-priorities", 0, 0, RANDOM_PRIORITIES},
    {"timeout", 1, 0, TIMEOUT}, {"help", 0, 0, HELP}, {0, 0, 0, 0},
};

static uint64_t number_in(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end) die("not a number: '%s'; see --help", text);
    return number;
}

static void read_script(const char *text)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    plan.script.length = 0;
    for (char *name = strtok(copy, ","); name; name = strtok(NULL, ",")) {
        if (plan.script.length == MAX_OPS) die("more than %d --ops", MAX_OPS);
        plan.script.ops[plan.script.length++] = op_named(name);
    }
}

static void take(enum option_code code)
{
    switch (code) {
    case HOST: plan.host = optarg; break;
    case PORT: plan.port = (int)number_in(optarg); break;
    case PID: plan.pid = (int)number_in(optarg); break;
    case REDIS: plan.is_redis = true; break;
    case PRELOAD: plan.preload = number_in(optarg); break;
    case BURY: plan.bury = true; break;
    case TUBES: plan.tubes = number_in(optarg); break;
    case SPREAD: plan.spread = number_in(optarg); break;
    case OWN_TUBES: plan.own_tubes = number_in(optarg); break;
    case WARMUP: plan.warmup_ms = number_in(optarg); break;
    case OPS: read_script(optarg); break;
    case CONNECTIONS: plan.connections = (int)number_in(optarg); break;
    case DEPTH: plan.depth = (uint32_t)number_in(optarg); break;
    case COUNT: plan.count = number_in(optarg); break;
    case MS: plan.milliseconds = number_in(optarg); break;
    case WORKERS: plan.workers = (int)number_in(optarg); break;
    case BACKLOG: plan.backlog = number_in(optarg); break;
    case PROBE: plan.probe_us = number_in(optarg); break;
    case MEMORY: plan.memory_samples = (int)number_in(optarg); break;
    case BODY: plan.body_bytes = number_in(optarg); break;
    case RANDOM_BYTES: plan.random_bytes = true; break;
    case RANDOM_PRIORITIES: plan.random_priorities = true; break;
    case TIMEOUT: plan.timeout_s = number_in(optarg); break;
    case HELP: fputs(help, stdout); exit(0);
    default: exit(EXIT_COULD_NOT_RUN); /* getopt_long has said why. */
    }
}

void read_plan(int count, char **words)
{
    for (int code; (code = getopt_long(count, words, "", options, NULL)) != -1;) take(code);
    if (optind < count) die("what is '%s'? see --help", words[optind]);
    if (!plan.port || !plan.pid) die("--port and --pid are needed; see --help");
    if (!plan.script.length && !plan.workers) die("--ops or --workers is needed; see --help");
    if (plan.connections < 1 || plan.depth < 1 || !plan.count || !plan.backlog)
        die("--connections, --depth, --count and --backlog are 1 at least");
    if (plan.count == UINT64_MAX && !plan.milliseconds) die("--count or --ms is needed");
    if (plan.workers && plan.script.length) die("--workers goes without --ops");
}
