/* One connection: its tokens, what is in flight, and what happens when replies come in. */
#ifndef CONNECTION_H
#define CONNECTION_H
#include <stdbool.h>
#include <stdint.h>

#include "common.h"
#include "histogram.h"
#include "wire.h"

enum role { CYCLER, PRODUCER, WORKER, PROBE };

struct token {
    uint64_t id;        /* of the job it has put or reserved last */
    int step;           /* of the script; the one that is in flight */
};

struct flight {
    enum op op;
    uint32_t token;
    uint64_t sent_ns;
};

struct connection {
    int socket;
    enum role role;
    const struct script *script;
    struct buffer in, out;
    struct token *tokens;
    uint32_t *idle, n_idle;                 /* tokens that may not begin a cycle yet */
    struct flight *flights;                 /* a ring */
    uint32_t first_flight, next_flight, flight_mask;
    bool wants_to_write;
};

/* What has happened since the clock was started. */
struct tally {
    uint64_t commands, wrong, cycles_begun, cycles_ended;
    uint64_t puts_begun, puts_ended, reserved, deleted;
    struct histogram all, probe, ops[N_OPS];
    char first_wrong[160];                  /* op and reply */
};

extern struct tally tally;
extern uint64_t in_flight;                  /* commands of all connections but the probe's */
extern bool has_to_stop;                    /* no cycle begins any more */
extern uint64_t *preloaded, n_preloaded;    /* ids, in the order they are to be deleted */
extern bool keeps_ids;                      /* whether those that are put are appended there */

void begin_polling(void);
struct connection *connect_to_server(enum role role, const struct script *script, uint32_t tokens);
void hang_up(struct connection *connection);

/* Let all idle tokens begin that may. */
void resume(struct connection *connection);

/* Wait for replies up to so many milliseconds, and act on them. */
void turn(int milliseconds);

/* Send one command, wait for its reply, and end if it is wrong.  For set-up only. */
void ask_and_wait(struct connection *connection, enum op op, uint64_t number);

#endif
