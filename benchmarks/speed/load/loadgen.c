/* loadgen: a load for servers that speak beanstalkd's protocol, and what it took them, as JSON.
 *
 * One thread with epoll; nothing is allocated while the clock runs, and all commands that may
 * leave after one read leave in one write.  `loadgen --help` tells the options. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common.h"
#include "connection.h"
#include "plan.h"
#include "process.h"

enum { PRELOAD_DEPTH = 128, TURN_MS = 100, MAX_SAMPLES = 1000 };

static const struct script put_script = {{PUT}, 1};
static const struct script bury_script = {{POLL, BURY_JOB}, 2};
static const struct script worker_script = {{RESERVE, DELETE}, 2};
static const struct script probe_script = {{ASK}, 1};

static struct connection **connections, *holder, *probe;
static int n_connections;
static uint64_t give_up_ns;

static struct {
    uint64_t jobs;
    long memory_kb;
} samples[MAX_SAMPLES];
static int n_samples;

/* Before the clock runs. */

static void check_time(void)
{
    if (now_ns() > give_up_ns)
        die("not ready after %llu s: %llu commands, %llu in flight, wrong: '%s'",
            (unsigned long long)plan.timeout_s, (unsigned long long)tally.commands,
            (unsigned long long)in_flight, tally.first_wrong);
}

/* Walk so many times through a script, on one connection with many commands in flight. */
static void prepare(const struct script *script, uint64_t cycles)
{
    uint64_t count = plan.count;
    plan.count = cycles;
    struct connection *connection = connect_to_server(CYCLER, script, PRELOAD_DEPTH);
    resume(connection);
    while (in_flight) {
        turn(TURN_MS);
        check_time();
    }
    hang_up(connection);
    if (tally.wrong) die("set-up: wrong reply to %s", tally.first_wrong);
    memset(&tally, 0, sizeof tally);
    plan.count = count;
}

static void shuffle_preloaded(void)
{
    for (uint64_t left = n_preloaded; left > 1; left--) {
        uint64_t other = next_random() % left, id = preloaded[left - 1];
        preloaded[left - 1] = preloaded[other];
        preloaded[other] = id;
    }
}

static void prepare_jobs(void)
{
    keeps_ids = plan.script.length && plan.script.ops[0] == DELETE_PRELOADED;
    if (plan.preload) prepare(&put_script, plan.preload);
    keeps_ids = false;
    shuffle_preloaded();
    if (plan.bury) prepare(&bury_script, plan.preload);
}

static void prepare_tubes(void)
{
    if (!plan.tubes && !plan.spread) return;
    holder = connect_to_server(CYCLER, &put_script, 1);
    /* The last one is used: of ours a connection watches 10,000 at most, and `default` is one. */
    for (uint64_t tube = 0; tube + 1 < plan.tubes; tube++) ask_and_wait(holder, WATCH, tube);
    if (plan.tubes) ask_and_wait(holder, USE, plan.tubes - 1);
    for (uint64_t tube = 0; tube < plan.spread; tube++) {
        ask_and_wait(holder, USE, tube);
        ask_and_wait(holder, PUT, 0);
    }
}

/* Tubes are numbered: first those that all watch, then each connection's own. */
static void watch_tubes(int i)
{
    uint64_t first = plan.tubes + plan.spread + (uint64_t)i * plan.own_tubes;
    for (uint64_t tube = 0; tube < plan.spread; tube++) ask_and_wait(connections[i], WATCH, tube);
    for (uint64_t tube = first; tube < first + plan.own_tubes; tube++)
        ask_and_wait(connections[i], WATCH, tube);
}

static void open_connections(void)
{
    const struct script *script = plan.workers ? &put_script : &plan.script;
    n_connections = plan.connections + plan.workers;
    connections = allocate((size_t)n_connections, sizeof *connections);
    for (int i = 0; i < plan.connections; i++)
        connections[i] = connect_to_server(plan.workers ? PRODUCER : CYCLER, script, plan.depth);
    for (int i = plan.connections; i < n_connections; i++)
        connections[i] = connect_to_server(WORKER, &worker_script, 1);
    for (int i = 0; i < n_connections; i++) watch_tubes(i);
    if (plan.probe_us) probe = connect_to_server(PROBE, &probe_script, 1);
}

/* While it runs. */

static bool is_over(void)
{
    if (!has_to_stop && tally.cycles_begun < plan.count) return false;
    if (!plan.workers) return !in_flight;
    /* The reserves of workers stay in flight; that is how they wait. */
    return tally.puts_ended == tally.puts_begun && tally.deleted == tally.puts_ended;
}

static void probe_if_due(uint64_t time_ns)
{
    static uint64_t due_ns;
    if (!probe || !probe->n_idle || time_ns < due_ns) return;
    due_ns = time_ns + plan.probe_us * NS_PER_US;
    resume(probe);
}

static void sample_if_due(void)
{
    uint64_t step = plan.memory_samples ? plan.count / (uint64_t)plan.memory_samples : 0;
    if (!step || n_samples == MAX_SAMPLES) return;
    if (tally.cycles_ended < step * (uint64_t)(n_samples + 1)) return;
    samples[n_samples].jobs = tally.puts_ended;
    samples[n_samples++].memory_kb = usage_of(plan.pid).memory_kb;
}

/* Load the server until the cycles or the time are used up, and all is answered. */
static void run(uint64_t milliseconds)
{
    uint64_t stop_ns = milliseconds ? now_ns() + milliseconds * NS_PER_MS : UINT64_MAX;
    has_to_stop = false;
    /* Workers first: they are to wait when the first job comes. */
    for (int i = n_connections; i-- > 0;) resume(connections[i]);
    while (!is_over()) {
        turn(probe ? 1 : TURN_MS);
        uint64_t time_ns = now_ns();
        if (time_ns > stop_ns) has_to_stop = true;
        probe_if_due(time_ns);
        sample_if_due();
        for (int i = 0; plan.workers && i < plan.connections; i++) resume(connections[i]);
        check_time();
    }
    while (probe && !probe->n_idle) turn(TURN_MS);
}

static void warm_up(void)
{
    if (!plan.warmup_ms) return;
    run(plan.warmup_ms);
    if (tally.wrong) die("warm-up: wrong reply to %s", tally.first_wrong);
    memset(&tally, 0, sizeof tally);
}

/* What came out. */

static void print_histogram(const char *name, const struct histogram *histogram)
{
    if (!histogram->count) return;
    printf(",\n    \"%s\": {\"count\": %llu, \"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, "
           "\"p99\": %.1f, \"p999\": %.1f, \"longest\": %.1f}",
           name, (unsigned long long)histogram->count,
           (double)histogram->sum_ns / 1e3 / (double)histogram->count,
           histogram_quantile_us(histogram, .5), histogram_quantile_us(histogram, .9),
           histogram_quantile_us(histogram, .99), histogram_quantile_us(histogram, .999),
           (double)histogram->longest_ns / 1e3);
}

static void print_latencies(void)
{
    printf("  \"latency_us\": {\"unit\": \"us\"");
    print_histogram("all", &tally.all);
    print_histogram("probe", &tally.probe);
    for (int op = 0; op < N_OPS; op++) print_histogram(op_names[op], &tally.ops[op]);
    printf("\n  },\n");
}

static void print_samples(void)
{
    printf("  \"memory_kb\": [");
    for (int i = 0; i < n_samples; i++)
        printf("%s[%llu, %ld]", i ? ", " : "", (unsigned long long)samples[i].jobs,
               samples[i].memory_kb);
    printf("],\n");
}

static void print_first_wrong(void)
{
    printf("  \"first_wrong\": \"");
    for (const char *at = tally.first_wrong; *at; at++)
        if (*at >= ' ' && *at < 127 && *at != '"' && *at != '\\') putchar(*at);
    printf("\"\n}\n");
}

static double own_cpu_s(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void measure_and_print(void)
{
    struct usage before = usage_of(plan.pid);
    double own_before_s = own_cpu_s();
    uint64_t began_ns = now_ns();
    run(plan.milliseconds);
    double wall_s = (double)(now_ns() - began_ns) / 1e9, own_s = own_cpu_s() - own_before_s;
    struct usage after = usage_of(plan.pid);
    double cpu_s = (double)(after.cpu_ns - before.cpu_ns) / 1e9;
    double commands = tally.commands ? (double)tally.commands : 1;
    printf("{\n  \"commands\": %llu, \"cycles\": %llu, \"puts\": %llu, \"wrong\": %llu,\n",
           (unsigned long long)tally.commands, (unsigned long long)tally.cycles_ended,
           (unsigned long long)tally.puts_ended, (unsigned long long)tally.wrong);
    printf("  \"wall_s\": %.6f, \"commands_per_s\": %.1f,\n", wall_s, commands / wall_s);
    printf("  \"server\": {\"cpu_s\": %.6f, \"cpu_us_per_command\": %.3f, \"cpu_share\": %.3f, "
           "\"memory_kb_before\": %ld, \"memory_kb_after\": %ld, \"threads\": %d},\n",
           cpu_s, cpu_s * 1e6 / commands, cpu_s / wall_s, before.memory_kb, after.memory_kb,
           after.threads);
    printf("  \"client\": {\"cpu_s\": %.6f, \"cpu_share\": %.3f},\n", own_s, own_s / wall_s);
    print_latencies();
    print_samples();
    print_first_wrong();
}

int main(int count, char **words)
{
    signal(SIGPIPE, SIG_IGN);
    read_plan(count, words);
    give_up_ns = now_ns() + plan.timeout_s * NS_PER_S;
    make_body();
    begin_polling();
    prepare_jobs();
    prepare_tubes();
    open_connections();
    warm_up();
    measure_and_print();
    return tally.wrong ? EXIT_WRONG_REPLIES : 0;
}
