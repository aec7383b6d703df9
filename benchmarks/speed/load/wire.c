#include "wire.h"

#include <string.h>

#include "plan.h"

enum {
    PRIORITY = 1024,
    TTR_S = 3600,           /* No job may come back by itself while it is measured. */
    MAX_LINE_BYTES = 256,
};

const char *const op_names[N_OPS] = {
    "put", "reserve", "poll", "delete", "release", "bury", "touch", "ask", "kick",
    "delete-preloaded", "use", "watch",
};

/* How the reply to each op begins, when all is well. */
static const char *const right[N_OPS] = {
    "INSERTED ", "RESERVED ", "RESERVED ", "DELETED\r\n", "RELEASED\r\n", "BURIED\r\n",
    "TOUCHED\r\n", "USING ", "KICKED ", "DELETED\r\n", "USING ", "WATCHING ",
};

static char *body; /* with its CR LF */

enum op op_named(const char *name)
{
    for (int op = 0; op < USE; op++)
        if (!strcmp(op_names[op], name)) return (enum op)op;
    die("there is no op '%s'; see --help", name);
}

void make_body(void)
{
    body = allocate(plan.body_bytes + 2, 1);
    for (uint64_t i = 0; i < plan.body_bytes; i++)
        body[i] = plan.random_bytes ? (char)next_random() : (char)('a' + i % 26);
    memcpy(body + plan.body_bytes, "\r\n", 2);
}

void add_body(struct buffer *out)
{
    buffer_add(out, body, plan.body_bytes + 2);
}

bool is_body(const char *start, uint64_t size)
{
    return size == plan.body_bytes && !memcmp(start, body, size + 2);
}

/* Append a word and a number. */
static void add(struct buffer *out, const char *word, uint64_t number)
{
    buffer_add_text(out, word);
    buffer_add_number(out, number);
}

static uint64_t priority(void)
{
    return plan.random_priorities ? (uint32_t)next_random() : (uint32_t)PRIORITY;
}

static void write_put(struct buffer *out)
{
    add(out, "put ", priority());
    add(out, " 0 ", TTR_S);
    add(out, " ", plan.body_bytes);
    buffer_add_text(out, "\r\n");
    add_body(out);
}

void write_command(struct buffer *out, enum op op, uint64_t number)
{
    if (plan.is_redis) {
        write_redis_command(out, op);
        return;
    }
    switch (op) {
    case PUT: write_put(out); return;
    case RESERVE: buffer_add_text(out, "reserve\r\n"); return;
    case POLL: buffer_add_text(out, "reserve-with-timeout 0\r\n"); return;
    case ASK: buffer_add_text(out, "list-tube-used\r\n"); return;
    case DELETE: case DELETE_PRELOADED: add(out, "delete ", number); break;
    case RELEASE: add(out, "release ", number); add(out, " ", priority());
        buffer_add_text(out, " 0"); break;
    case BURY_JOB: add(out, "bury ", number); add(out, " ", priority()); break;
    case TOUCH: add(out, "touch ", number); break;
    case KICK: add(out, "kick ", plan.preload); break;
    case USE: add(out, "use t", number); break;
    case WATCH: add(out, "watch t", number); break;
    case N_OPS: die("no op");
    }
    buffer_add_text(out, "\r\n");
}

/* Read digits up to `end`, and give where they end. */
static const char *read_number(const char *at, const char *end, uint64_t *number)
{
    *number = 0;
    while (at < end && *at >= '0' && *at <= '9') *number = *number * 10 + (uint64_t)(*at++ - '0');
    return at;
}

/* `at` is behind the word RESERVED. */
static struct reply read_job(const char *start, size_t size, const char *at, const char *end)
{
    struct reply reply = {REPLY_IS_WRONG, (size_t)(end - start) + 1, 0};
    uint64_t bytes;
    at = read_number(at, end, &reply.id);
    if (at == end || *at != ' ') return reply;
    read_number(at + 1, end, &bytes);
    if (size < reply.size + bytes + 2) {
        reply.answer = REPLY_IS_NOT_YET_HERE;
        return reply;
    }
    if (is_body(start + reply.size, bytes)) reply.answer = REPLY_IS_RIGHT;
    reply.size += bytes + 2;
    return reply;
}

struct reply read_reply(const char *start, size_t size, enum op op)
{
    if (plan.is_redis) return read_redis_reply(start, size, op);
    struct reply reply = {REPLY_IS_NOT_YET_HERE, 0, 0};
    const char *end = memchr(start, '\n', size < MAX_LINE_BYTES ? size : MAX_LINE_BYTES);
    if (!end && size < MAX_LINE_BYTES) return reply;
    if (!end) die("a reply without an end: %.60s", start);
    size_t line = (size_t)(end - start) + 1, expected = strlen(right[op]);
    reply = (struct reply){REPLY_IS_WRONG, line, 0};
    if (line < expected || memcmp(start, right[op], expected)) return reply;
    if (op == RESERVE || op == POLL) return read_job(start, size, start + expected, end);
    if (op == PUT) read_number(start + expected, end, &reply.id);
    uint64_t kicked;
    if (op == KICK && (read_number(start + expected, end, &kicked), kicked != plan.preload))
        return reply;
    reply.answer = REPLY_IS_RIGHT;
    return reply;
}
