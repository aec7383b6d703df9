/* What all parts of the load generator share: the clock, chance, buffers, and how it gives up. */
#ifndef COMMON_H
#define COMMON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_WRONG_REPLIES = 1, EXIT_COULD_NOT_RUN = 2 };

#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull
#define NS_PER_US 1000ull

/* Say why on stderr, and end with EXIT_COULD_NOT_RUN. */
__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

/* calloc that never fails: zeroed room for `count` things of `size` bytes. */
void *allocate(size_t count, size_t size);

uint64_t now_ns(void);          /* monotonic */
uint64_t next_random(void);     /* the same row of numbers in each run (xorshift64) */

/* Bytes that are appended at `tail` and used up at `head`. */
struct buffer {
    char *start;
    size_t head, tail, room;
};

void buffer_reserve(struct buffer *buffer, size_t more);
void buffer_add(struct buffer *buffer, const void *bytes, size_t size);
void buffer_add_text(struct buffer *buffer, const char *text);
void buffer_add_number(struct buffer *buffer, uint64_t number);

#endif
