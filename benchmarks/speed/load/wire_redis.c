/* A queue on Redis lists, the usual way: RPOPLPUSH into a list of what is being done.  There are no
 * ids, priorities or times, so this is a yardstick for what a round trip costs, and no more. */
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "wire.h"

static void add_put(struct buffer *out)
{
    buffer_add_text(out, "*3\r\n$5\r\nLPUSH\r\n$1\r\nq\r\n$");
    buffer_add_number(out, plan.body_bytes);
    buffer_add_text(out, "\r\n");
    add_body(out);
}

void write_redis_command(struct buffer *out, enum op op)
{
    switch (op) {
    case PUT: add_put(out); break;
    case RESERVE: case POLL:
        buffer_add_text(out, "*3\r\n$9\r\nRPOPLPUSH\r\n$1\r\nq\r\n$1\r\np\r\n"); break;
    case DELETE: buffer_add_text(out, "*2\r\n$4\r\nRPOP\r\n$1\r\np\r\n"); break;
    case ASK: buffer_add_text(out, "*1\r\n$4\r\nPING\r\n"); break;
    default: die("Redis lists have no '%s'", op_names[op]);
    }
}

struct reply read_redis_reply(const char *start, size_t size, enum op op)
{
    struct reply reply = {REPLY_IS_NOT_YET_HERE, 0, 0};
    const char *end = memchr(start, '\n', size);
    if (!end) return reply;
    reply.size = (size_t)(end - start) + 1;
    bool has_body = *start == '$' && start[1] != '-';
    reply.answer = REPLY_IS_RIGHT;
    if (has_body != (op == RESERVE || op == POLL || op == DELETE) || *start == '-')
        reply.answer = REPLY_IS_WRONG;
    if (!has_body) return reply;
    uint64_t bytes = strtoull(start + 1, NULL, 10);
    if (size < reply.size + bytes + 2) return (struct reply){REPLY_IS_NOT_YET_HERE, 0, 0};
    if (!is_body(start + reply.size, bytes)) reply.answer = REPLY_IS_WRONG;
    reply.size += bytes + 2;
    return reply;
}
