/* A disk that ends at its n-th change: a library for LD_PRELOAD, on Linux.
 *
 *     CUT_AT=n      the change with which the cut comes: the opening for writing, half of a write, its rest, a sync, a rename or
 *                   a removal
 *     CUT=kill      after this change the process ends by SIGKILL, and the system keeps what was written
 *     CUT=power     it also loses what was not synced: the contents of a file, and the new name that a rename gave
 *     CUT=liar      as power, but no sync reaches the disk: the control, which the store cannot survive
 *     CUT=full      from this change on, the disk is full: no new file, no bytes, no other name
 *     CUT=readonly  from this change on, the disk is read-only
 *     CLOCK_S=s     the system's clock shows this number of seconds since 1970
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILES 64
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static struct { int open, copy, dirty; } files[FILES]; /* by descriptor: `copy` stays open until the end */
static char renamed[4096], before[4096];               /* the last rename that is not synced, and a link to what it replaced */
static long changes;

static int is(const char *mode) {
    const char *cut = getenv("CUT");
    return cut && !strcmp(cut, mode);
}

static void end(void) {
    if (!is("kill")) {
        for (int fd = 0; fd < FILES; fd++) {
            if (files[fd].dirty && ftruncate(files[fd].copy, 0) < 0) {
                _exit(3);
            }
        }
        if (*renamed && NEXT(rename)(before, renamed) < 0) {
            NEXT(unlink)(renamed); /* it replaced nothing */
        }
    }
    raise(SIGKILL);
}

/* Counts a change, before which a full or read-only disk refuses it. Returns -1 if it does. */
static int refused(void) {
    const char *at = getenv("CUT_AT");
    ++changes;
    if (at && changes >= atol(at) && (is("full") || is("readonly"))) {
        errno = is("full") ? ENOSPC : EROFS;
        return -1;
    }
    return 0;
}

static void changed(void) {
    const char *at = getenv("CUT_AT");
    if (at && changes == atol(at) && !is("full") && !is("readonly")) {
        end();
    }
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = va_arg(rest, mode_t);
    va_end(rest);
    const int writes = (flags & O_ACCMODE) != O_RDONLY, exists = access(path, F_OK) == 0;
    if (writes && refused() < 0 && !(exists && is("full"))) {
        return -1;
    }
    const int fd = NEXT(open64)(path, flags, mode);
    if (writes && fd >= 0 && fd < FILES) {
        files[fd].open = 1;
        files[fd].copy = fcntl(fd, F_DUPFD_CLOEXEC, FILES);
        files[fd].dirty = 0;
        changed();
    }
    return fd;
}

int close(int fd) {
    if (fd >= 0 && fd < FILES && files[fd].open && !files[fd].dirty) {
        files[fd].open = 0;
        NEXT(close)(files[fd].copy);
    }
    return NEXT(close)(fd);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    if (fd < 0 || fd >= FILES || !files[fd].open) {
        return NEXT(write)(fd, bytes, count);
    }
    files[fd].dirty = 1;
    ssize_t done = 0;
    for (int half = 0; half < 2; half++) {
        const size_t part = half ? count - done : count / 2;
        const ssize_t written = refused() < 0 ? -1 : NEXT(write)(fd, (const char *)bytes + done, part);
        if (written < 0) {
            return done ? done : -1;
        }
        done += written;
        changed();
    }
    return done;
}

int fsync(int fd) {
    struct stat is_what;
    if (refused() < 0 || fstat(fd, &is_what) < 0) {
        return -1;
    }
    if (!is("liar") && S_ISDIR(is_what.st_mode)) {
        NEXT(unlink)(before);
        *renamed = 0;
    } else if (!is("liar") && fd < FILES) {
        files[fd].dirty = 0;
    }
    const int done = is("liar") ? 0 : NEXT(fsync)(fd);
    changed();
    return done;
}

int rename(const char *from, const char *to) {
    if (refused() < 0) {
        return -1;
    }
    if (is("power") || is("liar")) {
        snprintf(renamed, sizeof renamed, "%s", to);
        snprintf(before, sizeof before, "%s.before", to);
        NEXT(unlink)(before);
        if (link(to, before) < 0 && errno != ENOENT) {
            _exit(3);
        }
    }
    const int done = NEXT(rename)(from, to);
    changed();
    return done;
}

int unlink(const char *path) {
    if (refused() < 0 && !is("full")) {
        return -1;
    }
    const int done = NEXT(unlink)(path);
    const int error = errno;
    changed();
    errno = error;
    return done;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    const char *fixed = getenv("CLOCK_S");
    if (fixed && clock == CLOCK_REALTIME) {
        now->tv_sec = atoll(fixed);
        now->tv_nsec = 0;
        return 0;
    }
    return NEXT(clock_gettime)(clock, now);
}
