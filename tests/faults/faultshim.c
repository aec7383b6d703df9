/*
 * A disk that fails when told to: preload it (LD_PRELOAD) into a process.
 *
 *   FAULTS_DIRECTORY  only calls on files below this directory, and on itself, are looked at
 *   FAULTS_RULES      file with the rules; looked at anew at each call, may be missing
 *   FAULTS_TRACE      file to which each call is appended, when it has ended
 *
 * A rule is a line "CALL FIRST COUNT ACTION NUMBER": from the FIRST-th call of this kind on (the
 * first is 1, counted since the file got its rules), for COUNT calls,
 *
 *   fail N   return the error with this errno, and do nothing
 *   short N  write, or read, no more than N bytes
 *   delay N  wait N milliseconds first
 *   hang 0   wait until the file has other rules, or is gone
 *   kill N   end the process by SIGKILL: before the call if N is 0, else behind it, and a write
 *            writes no more than N bytes
 *
 * CALL is open (for writing), read, write, sync, syncdir, allocate, truncate, rename or unlink.
 * "read" is pread, "write" each of the calls that write, "sync" is fsync and fdatasync of a file,
 * "syncdir" of a directory.  The file with the rules has to be replaced by a rename, so that it is
 * never half read.
 *
 * A line of the trace is "CALL SERIAL NAME RESULT ERRNO".  SERIAL numbers the files as they are
 * opened for writing: one that fails and its successor never share it, as they may a descriptor
 * or an inode.  It is 0 for calls without an open file.  NAME is the last part of its path.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MAX_RULES = 16, MAX_FD = 4096, POLL_US = 5000 };

struct rule {
    char call[16], action[8];
    long first, count, number;
    unsigned long long version; /* of the rules that it is of */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[MAX_RULES];
static long seen[MAX_RULES];
static int n_rules;
static unsigned long long rules_version;
static long serials[MAX_FD], last_serial;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Whether an absolute path is the directory itself or below it. */
static int is_watched(const char *path)
{
    const char *directory = getenv("FAULTS_DIRECTORY");
    size_t size = directory ? strlen(directory) : 0;
    if (!size || strncmp(path, directory, size)) return 0;
    return !path[size] || path[size] == '/';
}

static int path_of(int fd, char *path)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    path[size > 0 ? size : 0] = 0;
    return size > 0 && is_watched(path);
}

static unsigned long long version_of(const struct stat *s)
{
    return s->st_ino * 1000003ULL + s->st_mtim.tv_sec * 1000000000ULL + s->st_mtim.tv_nsec;
}

/* A number that changes with the rules; 0 when there are none. */
static unsigned long long newest_version(void)
{
    struct stat found;
    const char *path = getenv("FAULTS_RULES");
    return path && !stat(path, &found) ? version_of(&found) : 0;
}

static void load(void)
{
    unsigned long long version = newest_version();
    if (version == rules_version) return;
    struct stat found;
    struct rule r;
    FILE *file = version ? fopen(getenv("FAULTS_RULES"), "r") : NULL;
    /* Of the file that is read: another one may have taken its place since. */
    rules_version = file && !fstat(fileno(file), &found) ? version_of(&found) : 0;
    n_rules = 0;
    if (!file) return;
    while (n_rules < MAX_RULES && fscanf(file, "%15s %ld %ld %7s %ld", r.call, &r.first, &r.count,
                                         r.action, &r.number) == 5) {
        seen[n_rules] = 0;
        r.version = rules_version;
        rules[n_rules++] = r;
    }
    fclose(file);
}

/* Count this call, and give the first rule that is for it; its action is empty if there is none. */
static struct rule rule_for(const char *call)
{
    struct rule found = {0};
    pthread_mutex_lock(&mutex);
    load();
    for (int i = 0; i < n_rules; i++) {
        if (strcmp(rules[i].call, call)) continue;
        long at = ++seen[i] - rules[i].first;
        if (at >= 0 && at < rules[i].count && !*found.action) found = rules[i];
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

static void trace(const char *call, long serial, const char *path, long result)
{
    int error = errno;
    char line[PATH_MAX + 100];
    const char *to = getenv("FAULTS_TRACE"), *slash = strrchr(path, '/');
    int size = snprintf(line, sizeof line, "%s %ld %s %ld %d\n", call, serial,
                        slash ? slash + 1 : path, result, result < 0 ? error : 0);
    int fd = to ? (int)syscall(SYS_openat, AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                               0666) : -1;
    if (fd >= 0) {
        if (syscall(SYS_write, fd, line, size) != size) abort();
        syscall(SYS_close, fd);
    }
    errno = error;
}

/* Do what a rule says before the call: 0, or -1 with errno when the call has failed. */
static int obey(const struct rule *rule)
{
    if (!strcmp(rule->action, "fail")) {
        errno = (int)rule->number;
        return -1;
    }
    if (!strcmp(rule->action, "delay")) usleep((useconds_t)rule->number * 1000);
    if (!strcmp(rule->action, "hang"))
        while (newest_version() == rule->version) usleep(POLL_US);
    if (!strcmp(rule->action, "kill") && !rule->number) kill(getpid(), SIGKILL);
    return 0;
}

/* Do what a rule says behind the call. */
static void end_call(const struct rule *rule, const char *call, long serial, const char *path,
                     long result)
{
    trace(call, serial, path, result);
    if (!strcmp(rule->action, "kill")) kill(getpid(), SIGKILL);
}

static long serial_of(int fd) { return fd >= 0 && fd < MAX_FD ? serials[fd] : 0; }

/* For a call on an open file: look whether it is watched, obey, do it, say so. */
#define ON_FILE(call, fd, failed, expression)                       \
    char path[PATH_MAX];                                            \
    struct rule rule = {0};                                         \
    if (!path_of(fd, path)) return expression;                      \
    rule = rule_for(call);                                          \
    long serial = serial_of(fd);                                    \
    __typeof__(expression) result = obey(&rule) ? (failed) : expression; \
    end_call(&rule, call, serial, path, result)

static int do_open(int at, const char *path, int flags, mode_t mode)
{
    int is_ours = is_watched(path) && flags & (O_WRONLY | O_RDWR);
    struct rule rule = {0};
    if (is_ours) rule = rule_for("open");
    int fd = obey(&rule) ? -1 : (int)syscall(SYS_openat, at, path, flags, mode), error = errno;
    if (fd >= 0 && fd < MAX_FD) {
        pthread_mutex_lock(&mutex);
        serials[fd] = is_ours ? ++last_serial : 0;
        pthread_mutex_unlock(&mutex);
    }
    errno = error;
    if (is_ours) end_call(&rule, "open", serial_of(fd), path, fd);
    return fd;
}

#define MODE                             \
    mode_t mode = 0;                     \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list more;                    \
        va_start(more, flags);           \
        mode = va_arg(more, mode_t);     \
        va_end(more);                    \
    }

int open(const char *path, int flags, ...) { MODE return do_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return do_open(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return do_open(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...)
{
    MODE return do_open(at, path, flags, mode);
}

static size_t shortened(const struct rule *rule, size_t size)
{
    int is_cut = !strcmp(rule->action, "short") || !strcmp(rule->action, "kill");
    return is_cut && (size_t)rule->number < size ? (size_t)rule->number : size;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    ON_FILE("write", fd, -1L, syscall(SYS_write, fd, bytes, shortened(&rule, size)));
    return result;
}

static ssize_t do_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    ON_FILE("write", fd, -1L, syscall(SYS_pwrite64, fd, bytes, shortened(&rule, size), offset));
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    return do_pwrite(fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    return do_pwrite(fd, bytes, size, offset);
}

static ssize_t do_pread(int fd, void *bytes, size_t size, off_t offset)
{
    ON_FILE("read", fd, -1L, syscall(SYS_pread64, fd, bytes, shortened(&rule, size), offset));
    return result;
}
ssize_t pread(int fd, void *bytes, size_t size, off_t offset)
{
    return do_pread(fd, bytes, size, offset);
}
ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset)
{
    return do_pread(fd, bytes, size, offset);
}

static ssize_t do_pwritev(int fd, const struct iovec *parts, int n, off_t offset)
{
    char path[PATH_MAX];
    if (!path_of(fd, path)) return NEXT(pwritev)(fd, parts, n, offset);
    /* As often as not all of it: the first part, which may be shortened. */
    return do_pwrite(fd, parts[0].iov_base, parts[0].iov_len, offset);
}
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset)
{
    return do_pwritev(fd, parts, n, offset);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t offset)
{
    return do_pwritev(fd, parts, n, offset);
}

static int do_sync(int fd, int number)
{
    struct stat found;
    const char *call = !fstat(fd, &found) && S_ISDIR(found.st_mode) ? "syncdir" : "sync";
    ON_FILE(call, fd, -1, (int)syscall(number, fd));
    return result;
}

int fsync(int fd) { return do_sync(fd, SYS_fsync); }
int fdatasync(int fd) { return do_sync(fd, SYS_fdatasync); }

/* These two return the error instead of setting errno. */
static int do_allocate(int fd, off_t offset, off_t size)
{
    ON_FILE("allocate", fd, -1, (int)syscall(SYS_fallocate, fd, 0, offset, size));
    return result ? errno : 0;
}
int posix_fallocate(int fd, off_t offset, off_t size)
{
    char path[PATH_MAX];
    if (!path_of(fd, path)) return NEXT(posix_fallocate)(fd, offset, size);
    return do_allocate(fd, offset, size);
}
int posix_fallocate64(int fd, off64_t offset, off64_t size)
{
    return posix_fallocate(fd, offset, size);
}

static int do_truncate(int fd, off_t size)
{
    ON_FILE("truncate", fd, -1, (int)syscall(SYS_ftruncate, fd, size));
    return result;
}
int ftruncate(int fd, off_t size) { return do_truncate(fd, size); }
int ftruncate64(int fd, off64_t size) { return do_truncate(fd, size); }

static int do_rename(int at, const char *old, int to, const char *new)
{
    int is_ours = is_watched(new);
    struct rule rule = {0};
    if (is_ours) rule = rule_for("rename");
    int result = obey(&rule) ? -1 : (int)syscall(SYS_renameat2, at, old, to, new, 0);
    if (is_ours) end_call(&rule, "rename", 0, new, result);
    return result;
}
int rename(const char *old, const char *new) { return do_rename(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int at, const char *old, int to, const char *new)
{
    return do_rename(at, old, to, new);
}

static int do_unlink(int at, const char *path, int flags)
{
    int is_ours = is_watched(path);
    struct rule rule = {0};
    if (is_ours) rule = rule_for("unlink");
    int result = obey(&rule) ? -1 : (int)syscall(SYS_unlinkat, at, path, flags);
    if (is_ours) end_call(&rule, "unlink", 0, path, result);
    return result;
}
int unlink(const char *path) { return do_unlink(AT_FDCWD, path, 0); }
int unlinkat(int at, const char *path, int flags) { return do_unlink(at, path, flags); }
