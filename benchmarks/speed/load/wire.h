/* Commands out, replies in: beanstalkd's protocol, and Redis lists as a yardstick. */
#ifndef WIRE_H
#define WIRE_H
#include <stddef.h>
#include <stdint.h>

#include "common.h"

enum { MAX_OPS = 16 };

enum op {
    PUT, RESERVE, POLL, DELETE, RELEASE, BURY_JOB, TOUCH, ASK, KICK, DELETE_PRELOADED,
    USE, WATCH, N_OPS
};

/* What a token does, one after the other. */
struct script {
    enum op ops[MAX_OPS];
    int length;
};

/* A reader of bytes has three answers. */
enum answer { REPLY_IS_RIGHT, REPLY_IS_NOT_YET_HERE, REPLY_IS_WRONG };

struct reply {
    enum answer answer;
    size_t size;        /* of the whole, if it is here */
    uint64_t id;        /* of the job, if it tells one; else 0 */
};

extern const char *const op_names[N_OPS];

/* Find an op by its name, or end. */
enum op op_named(const char *name);

/* Make the body that every job has; before anything else here. */
void make_body(void);

/* Append a command.  `number` is the job's id, or the number of the tube for USE and WATCH. */
void write_command(struct buffer *out, enum op op, uint64_t number);

/* Read one reply to `op` from `size` bytes at `start`. */
struct reply read_reply(const char *start, size_t size, enum op op);

void write_redis_command(struct buffer *out, enum op op);
struct reply read_redis_reply(const char *start, size_t size, enum op op);

/* Whether a body of so many bytes at `start` is the one that was put. */
bool is_body(const char *start, uint64_t size);
void add_body(struct buffer *out);

#endif
