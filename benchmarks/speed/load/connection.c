#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plan.h"

enum {
    EVENTS = 512,
    READ_BYTES = 1 << 16,
    MAX_WRONG = 100,        /* Beyond that, figures mean nothing. */
};

struct tally tally;
uint64_t in_flight;
bool has_to_stop;
uint64_t *preloaded, n_preloaded;
bool keeps_ids;
static uint64_t room_for_ids, next_preloaded;
static int poller = -1;

void begin_polling(void)
{
    poller = epoll_create1(0);
}

static int dial(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)plan.port)};
    if (inet_pton(AF_INET, plan.host, &address.sin_addr) != 1) die("--host takes a.b.c.d");
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("cannot connect to %s:%d: %s", plan.host, plan.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void want(struct connection *connection, int operation, bool to_write)
{
    struct epoll_event event = {.events = EPOLLIN | (to_write ? EPOLLOUT : 0)};
    event.data.ptr = connection;
    if (epoll_ctl(poller, operation, connection->socket, &event)) die("epoll_ctl");
    connection->wants_to_write = to_write;
}

struct connection *connect_to_server(enum role role, const struct script *script, uint32_t tokens)
{
    struct connection *made = allocate(1, sizeof *made);
    made->socket = dial();
    made->role = role;
    made->script = script;
    made->tokens = allocate(tokens, sizeof *made->tokens);
    made->idle = allocate(tokens, sizeof *made->idle);
    for (made->n_idle = 0; made->n_idle < tokens; made->n_idle++)
        made->idle[made->n_idle] = made->n_idle;
    uint32_t flights = 1;
    while (flights < tokens) flights *= 2;
    made->flights = allocate(flights, sizeof *made->flights);
    made->flight_mask = flights - 1;
    want(made, EPOLL_CTL_ADD, false);
    return made;
}

void hang_up(struct connection *connection)
{
    close(connection->socket);
    free(connection->in.start);
    free(connection->out.start);
    free(connection->tokens);
    free(connection->idle);
    free(connection->flights);
    free(connection);
}

static void write_out(struct connection *connection)
{
    struct buffer *out = &connection->out;
    while (out->head < out->tail) {
        ssize_t sent = write(connection->socket, out->start + out->head, out->tail - out->head);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno == EAGAIN) break;
        if (sent < 0) die("write: %s", strerror(errno));
        out->head += (size_t)sent;
    }
    bool is_left = out->head < out->tail;
    if (!is_left) out->head = out->tail = 0;
    if (is_left != connection->wants_to_write) want(connection, EPOLL_CTL_MOD, is_left);
}

/* Whether a token may begin another cycle; if so, it has. */
static bool may_begin(enum role role)
{
    if (role == WORKER || role == PROBE) return true;
    if (has_to_stop || tally.cycles_begun >= plan.count) return false;
    if (role == PRODUCER && tally.puts_begun - tally.reserved >= plan.backlog) return false;
    tally.cycles_begun++;
    return true;
}

static void send_step(struct connection *connection, uint32_t index, uint64_t time_ns)
{
    struct token *token = &connection->tokens[index];
    enum op op = connection->script->ops[token->step];
    uint64_t number = token->id;
    if (op == PUT) tally.puts_begun++;
    if (op == DELETE_PRELOADED) number = preloaded[next_preloaded++];
    write_command(&connection->out, op, number);
    uint32_t slot = connection->next_flight++ & connection->flight_mask;
    connection->flights[slot] = (struct flight){op, index, time_ns};
    if (connection->role != PROBE) in_flight++;
}

void resume(struct connection *connection)
{
    uint64_t time_ns = now_ns();
    uint32_t before = connection->n_idle;
    while (connection->n_idle && may_begin(connection->role))
        send_step(connection, connection->idle[--connection->n_idle], time_ns);
    if (connection->n_idle < before) write_out(connection);
}

/* The last step of a token has been answered: do the next one. */
static void advance(struct connection *connection, uint32_t index, uint64_t time_ns)
{
    struct token *token = &connection->tokens[index];
    if (++token->step == connection->script->length) {
        token->step = 0;
        if (connection->role == CYCLER || connection->role == PRODUCER) tally.cycles_ended++;
        /* The probe is sent again by the clock. */
        if (connection->role == PROBE || !may_begin(connection->role)) {
            connection->idle[connection->n_idle++] = index;
            return;
        }
    }
    send_step(connection, index, time_ns);
}

static void keep_id(uint64_t id)
{
    if (n_preloaded == room_for_ids) {
        room_for_ids = room_for_ids ? room_for_ids * 2 : 4096;
        preloaded = realloc(preloaded, room_for_ids * sizeof *preloaded);
        if (!preloaded) die("no memory for %llu ids", (unsigned long long)room_for_ids);
    }
    preloaded[n_preloaded++] = id;
}

static void count_wrong(enum op op, const char *reply, size_t size)
{
    if (!tally.wrong++)
        snprintf(tally.first_wrong, sizeof tally.first_wrong, "%s: %.*s", op_names[op],
                 (int)(size < 80 ? size : 80), reply);
    if (tally.wrong > MAX_WRONG) {
        fprintf(stderr, "loadgen: wrong replies, the first to %s\n", tally.first_wrong);
        exit(EXIT_WRONG_REPLIES);
    }
}

static void count(enum role role, enum op op, uint64_t took_ns, uint64_t id)
{
    tally.commands++;
    histogram_add(role == PROBE ? &tally.probe : &tally.all, took_ns);
    if (role != PROBE) histogram_add(&tally.ops[op], took_ns);
    if (op == PUT) tally.puts_ended++;
    if (op == PUT && keeps_ids) keep_id(id);
    if (op == RESERVE || op == POLL) tally.reserved++;
    if (op == DELETE || op == DELETE_PRELOADED) tally.deleted++;
}

/* Act on the first reply that has come in; false if there is none yet. */
static bool take_reply(struct connection *connection, uint64_t time_ns)
{
    struct buffer *in = &connection->in;
    if (in->head == in->tail) return false;
    if (connection->first_flight == connection->next_flight)
        die("a reply to nothing: %.*s", (int)(in->tail - in->head), in->start + in->head);
    struct flight *flight = &connection->flights[connection->first_flight & connection->flight_mask];
    const char *start = in->start + in->head;
    struct reply reply = read_reply(start, in->tail - in->head, flight->op);
    if (reply.answer == REPLY_IS_NOT_YET_HERE) return false;
    if (reply.answer == REPLY_IS_WRONG) count_wrong(flight->op, start, reply.size);
    in->head += reply.size;
    connection->first_flight++;
    if (connection->role != PROBE) in_flight--;
    if (reply.id) connection->tokens[flight->token].id = reply.id;
    count(connection->role, flight->op, time_ns - flight->sent_ns, reply.id);
    advance(connection, flight->token, time_ns);
    return true;
}

/* Read what is there; false if nothing more will be for now. */
static bool read_in(struct connection *connection)
{
    struct buffer *in = &connection->in;
    buffer_reserve(in, READ_BYTES);
    size_t room = in->room - in->tail;
    ssize_t got = read(connection->socket, in->start + in->tail, room);
    if (got == 0) die("the server has hung up");
    if (got < 0 && errno != EAGAIN && errno != EINTR) die("read: %s", strerror(errno));
    if (got > 0) in->tail += (size_t)got;
    return got > 0 && (size_t)got == room;
}

static void read_replies(struct connection *connection)
{
    bool is_more;
    do {
        is_more = read_in(connection);
        uint64_t time_ns = now_ns();
        while (take_reply(connection, time_ns)) continue;
        if (connection->in.head == connection->in.tail)
            connection->in.head = connection->in.tail = 0;
        write_out(connection);
    } while (is_more);
}

void turn(int milliseconds)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(poller, events, EVENTS, milliseconds);
    if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
    for (int i = 0; i < n; i++) {
        struct connection *connection = events[i].data.ptr;
        if (events[i].events & EPOLLOUT) write_out(connection);
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_replies(connection);
    }
}

void ask_and_wait(struct connection *connection, enum op op, uint64_t number)
{
    struct buffer *in = &connection->in;
    write_command(&connection->out, op, number);
    fcntl(connection->socket, F_SETFL, 0);
    write_out(connection);
    struct reply reply;
    do {
        read_in(connection);
        reply = read_reply(in->start + in->head, in->tail - in->head, op);
    } while (reply.answer == REPLY_IS_NOT_YET_HERE);
    if (reply.answer == REPLY_IS_WRONG) die("set-up: wrong reply to %s", op_names[op]);
    in->head += reply.size;
    fcntl(connection->socket, F_SETFL, O_NONBLOCK);
}
