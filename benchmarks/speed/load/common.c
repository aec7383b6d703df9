#include "common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIRST_ROOM = 1 << 14 };

void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(EXIT_COULD_NOT_RUN);
}

void *allocate(size_t count, size_t size)
{
    void *room = calloc(count ? count : 1, size);
    if (!room) die("no memory for %zu things of %zu bytes", count, size);
    return room;
}

uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

uint64_t next_random(void)
{
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

void buffer_reserve(struct buffer *buffer, size_t more)
{
    if (buffer->room - buffer->tail >= more) return;
    if (buffer->head) {
        memmove(buffer->start, buffer->start + buffer->head, buffer->tail - buffer->head);
        buffer->tail -= buffer->head;
        buffer->head = 0;
    }
    if (buffer->room - buffer->tail >= more) return;
    if (!buffer->room) buffer->room = FIRST_ROOM;
    while (buffer->room - buffer->tail < more) buffer->room *= 2;
    buffer->start = realloc(buffer->start, buffer->room);
    if (!buffer->start) die("no memory for a buffer of %zu bytes", buffer->room);
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t size)
{
    buffer_reserve(buffer, size);
    memcpy(buffer->start + buffer->tail, bytes, size);
    buffer->tail += size;
}

void buffer_add_text(struct buffer *buffer, const char *text)
{
    buffer_add(buffer, text, strlen(text));
}

void buffer_add_number(struct buffer *buffer, uint64_t number)
{
    char digits[20];
    size_t first = sizeof digits;
    do digits[--first] = (char)('0' + number % 10);
    while (number /= 10);
    buffer_add(buffer, digits + first, sizeof digits - first);
}
