/* A library for LD_PRELOAD that disturbs one call for a file below a folder: the call fails, is cut short, finds the end of
   the file, or the process is killed before, during or after it. The calls of Python and of Arrow go through it alike.

   tests/faults/single_calls/shim.py builds it, arms it in a forked child and reads its counts. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* In the order of OPERATIONS and ACTIONS in shim.py. */
enum operation { OPEN, READ, WRITE, SYNC, RENAME, LINK, UNLINK, MKDIR, LOCK, TRUNCATE, CLOSE, STAT, MAP, LIST, OPERATIONS };
enum action { FAIL, FAIL_ALWAYS, SHORT, END, LOSE, KILL_BEFORE, KILL_AMID, KILL_AFTER, NONE };

enum { TRACED = 32768, NAME = 124, DESCRIPTORS = 4096 };

/* Read by the parent process after the child has ended. */
struct seen {
    uint64_t counts[OPERATIONS];
    uint32_t struck; /* calls that were disturbed */
    char where[NAME]; /* the path of the first of them, relative to the folder */
    uint32_t traced;
    struct {
        uint32_t operation;
        char name[NAME];
    } trace[TRACED];
};

static struct seen *seen;
static struct {
    int on;
    enum operation operation;
    uint64_t number;
    enum action action;
    int error;
} plan;
static char folder[PATH_MAX];
static size_t folder_length;
static off_t synced[DESCRIPTORS]; /* size of the file when it was opened or last synced */

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* --- what Python calls --- */

struct seen *shim_seen(void) {
    if (!seen) {
        void *shared = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared != MAP_FAILED) seen = shared;
    }
    return seen;
}

/* From now on: count the calls for files below the folder. With a number, disturb the call with that number. */
void shim_arm(const char *below, int operation, uint64_t number, int action, int error) {
    memset(shim_seen(), 0, sizeof *seen);
    folder_length = strlen(below);
    memcpy(folder, below, folder_length + 1);
    plan.operation = operation;
    plan.number = number;
    plan.action = action;
    plan.error = error;
    plan.on = 1;
}

void shim_disarm(void) { plan.on = 0; }

/* --- which file a call is about --- */

static int is_below(const char *path) {
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static int descriptor_is_below(int fd, char *path) {
    char link[40];
    if (!plan.on || fd < 0) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

static int path_is_below(int at, const char *name, char *path) {
    if (!plan.on || !name) return 0;
    if (!*name) return descriptor_is_below(at, path);
    int before = errno;
    size_t used = 0;
    const char *descriptors = "/proc/self/fd/";
    if (!strncmp(name, descriptors, strlen(descriptors)))
        return descriptor_is_below(atoi(name + strlen(descriptors)), path);
    if (*name != '/') {
        char link[40];
        if (at == AT_FDCWD) strcpy(link, "/proc/self/cwd");
        else snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, path, PATH_MAX - 2);
        errno = before;
        if (length < 0) return 0;
        used = (size_t)length;
        path[used++] = '/';
    }
    if (used + strlen(name) >= PATH_MAX) return 0;
    strcpy(path + used, name);
    return is_below(path);
}

/* --- what happens to it --- */

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

static enum action passes(enum operation operation, const char *path) {
    const char *name = path + folder_length + (path[folder_length] == '/');
    uint64_t number = __atomic_add_fetch(&seen->counts[operation], 1, __ATOMIC_SEQ_CST);
    if (!plan.number) {
        uint32_t place = __atomic_fetch_add(&seen->traced, 1, __ATOMIC_SEQ_CST);
        if (place < TRACED) {
            seen->trace[place].operation = operation;
            strncpy(seen->trace[place].name, name, NAME - 1);
        }
        return NONE;
    }
    int always = plan.action == FAIL_ALWAYS;
    if (operation != plan.operation || (always ? number < plan.number : number != plan.number)) return NONE;
    if (!__atomic_fetch_add(&seen->struck, 1, __ATOMIC_SEQ_CST)) strncpy(seen->where, name, NAME - 1);
    if (plan.action == KILL_BEFORE) die();
    if (plan.action == FAIL || always) errno = plan.error;
    return plan.action;
}

static int fails(enum action action) { return action == FAIL || action == FAIL_ALWAYS; }

/* A call that happens or not. */
#define DISTURBED(operation, matches, call, failure) \
    do { \
        char path[PATH_MAX]; \
        if (!(matches)) return call; \
        enum action action = passes(operation, path); \
        if (fails(action)) return failure; \
        __typeof__(call) result = call; \
        if (action == KILL_AFTER) die(); \
        return result; \
    } while (0)

/* --- opening and closing --- */

static int opened(int fd) {
    int before = errno;
    struct stat facts;
    if (plan.on && fd >= 0 && fd < DESCRIPTORS && !syscall(SYS_fstat, fd, &facts)) synced[fd] = facts.st_size;
    errno = before;
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, mode_t); \
        va_end(more); \
    }

int open(const char *name, int flags, ...) {
    MODE(flags) REAL(open);
    DISTURBED(OPEN, path_is_below(AT_FDCWD, name, path), opened(real(name, flags, mode)), -1);
}
int open64(const char *name, int flags, ...) {
    MODE(flags) REAL(open64);
    DISTURBED(OPEN, path_is_below(AT_FDCWD, name, path), opened(real(name, flags, mode)), -1);
}
int openat(int at, const char *name, int flags, ...) {
    MODE(flags) REAL(openat);
    DISTURBED(OPEN, path_is_below(at, name, path), opened(real(at, name, flags, mode)), -1);
}
int openat64(int at, const char *name, int flags, ...) {
    MODE(flags) REAL(openat64);
    DISTURBED(OPEN, path_is_below(at, name, path), opened(real(at, name, flags, mode)), -1);
}
int creat(const char *name, mode_t mode) {
    REAL(creat);
    DISTURBED(OPEN, path_is_below(AT_FDCWD, name, path), opened(real(name, mode)), -1);
}
int creat64(const char *name, mode_t mode) {
    REAL(creat64);
    DISTURBED(OPEN, path_is_below(AT_FDCWD, name, path), opened(real(name, mode)), -1);
}
FILE *fopen(const char *name, const char *mode) {
    REAL(fopen);
    DISTURBED(OPEN, path_is_below(AT_FDCWD, name, path), real(name, mode), NULL);
}
FILE *fopen64(const char *name, const char *mode) {
    REAL(fopen64);
    DISTURBED(OPEN, path_is_below(AT_FDCWD, name, path), real(name, mode), NULL);
}

/* A close that fails has closed the descriptor all the same. */
int close(int fd) {
    REAL(close);
    char path[PATH_MAX];
    if (!descriptor_is_below(fd, path)) return real(fd);
    enum action action = passes(CLOSE, path);
    int result = real(fd);
    if (action == KILL_AFTER) die();
    if (!fails(action)) return result;
    errno = plan.error;
    return -1;
}

/* --- reading --- */

#define HALVED(size) ((size) > 1 ? (size) / 2 : (size))

#define READS(fd, whole, half) \
    do { \
        char path[PATH_MAX]; \
        if (!descriptor_is_below(fd, path)) return whole; \
        enum action action = passes(READ, path); \
        if (fails(action)) return -1; \
        if (action == END) return 0; \
        ssize_t result = action == SHORT ? half : whole; \
        if (action == KILL_AFTER) die(); \
        return result; \
    } while (0)

static struct iovec half_of(const struct iovec *parts) {
    return (struct iovec){parts->iov_base, HALVED(parts->iov_len)};
}

ssize_t read(int fd, void *into, size_t size) {
    REAL(read);
    READS(fd, real(fd, into, size), real(fd, into, HALVED(size)));
}
ssize_t pread(int fd, void *into, size_t size, off_t from) {
    REAL(pread);
    READS(fd, real(fd, into, size, from), real(fd, into, HALVED(size), from));
}
ssize_t pread64(int fd, void *into, size_t size, off64_t from) {
    REAL(pread64);
    READS(fd, real(fd, into, size, from), real(fd, into, HALVED(size), from));
}
ssize_t readv(int fd, const struct iovec *into, int parts) {
    REAL(readv);
    struct iovec half = half_of(into);
    READS(fd, real(fd, into, parts), real(fd, &half, 1));
}
ssize_t preadv(int fd, const struct iovec *into, int parts, off_t from) {
    REAL(preadv);
    struct iovec half = half_of(into);
    READS(fd, real(fd, into, parts, from), real(fd, &half, 1, from));
}
ssize_t preadv64(int fd, const struct iovec *into, int parts, off64_t from) {
    REAL(preadv64);
    struct iovec half = half_of(into);
    READS(fd, real(fd, into, parts, from), real(fd, &half, 1, from));
}
ssize_t preadv2(int fd, const struct iovec *into, int parts, off_t from, int flags) {
    REAL(preadv2);
    struct iovec half = half_of(into);
    READS(fd, real(fd, into, parts, from, flags), real(fd, &half, 1, from, flags));
}
ssize_t preadv64v2(int fd, const struct iovec *into, int parts, off64_t from, int flags) {
    REAL(preadv64v2);
    struct iovec half = half_of(into);
    READS(fd, real(fd, into, parts, from, flags), real(fd, &half, 1, from, flags));
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    REAL(sendfile);
    READS(from, real(to, from, offset, size), real(to, from, offset, HALVED(size)));
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    REAL(sendfile64);
    READS(from, real(to, from, offset, size), real(to, from, offset, HALVED(size)));
}
ssize_t copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t size, unsigned flags) {
    REAL(copy_file_range);
    READS(from, real(from, in, to, out, size, flags), real(from, in, to, out, HALVED(size), flags));
}

/* --- writing --- */

#define WRITES(fd, whole, half) \
    do { \
        char path[PATH_MAX]; \
        if (!descriptor_is_below(fd, path)) return whole; \
        enum action action = passes(WRITE, path); \
        if (fails(action)) return -1; \
        ssize_t result = action == SHORT || action == KILL_AMID ? half : whole; \
        if (action == KILL_AMID || action == KILL_AFTER) die(); \
        return result; \
    } while (0)

ssize_t write(int fd, const void *from, size_t size) {
    REAL(write);
    WRITES(fd, real(fd, from, size), real(fd, from, HALVED(size)));
}
ssize_t pwrite(int fd, const void *from, size_t size, off_t to) {
    REAL(pwrite);
    WRITES(fd, real(fd, from, size, to), real(fd, from, HALVED(size), to));
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t to) {
    REAL(pwrite64);
    WRITES(fd, real(fd, from, size, to), real(fd, from, HALVED(size), to));
}
ssize_t writev(int fd, const struct iovec *from, int parts) {
    REAL(writev);
    struct iovec half = half_of(from);
    WRITES(fd, real(fd, from, parts), real(fd, &half, 1));
}
ssize_t pwritev(int fd, const struct iovec *from, int parts, off_t to) {
    REAL(pwritev);
    struct iovec half = half_of(from);
    WRITES(fd, real(fd, from, parts, to), real(fd, &half, 1, to));
}
ssize_t pwritev64(int fd, const struct iovec *from, int parts, off64_t to) {
    REAL(pwritev64);
    struct iovec half = half_of(from);
    WRITES(fd, real(fd, from, parts, to), real(fd, &half, 1, to));
}
ssize_t pwritev64v2(int fd, const struct iovec *from, int parts, off64_t to, int flags) {
    REAL(pwritev64v2);
    struct iovec half = half_of(from);
    WRITES(fd, real(fd, from, parts, to, flags), real(fd, &half, 1, to, flags));
}
int posix_fallocate64(int fd, off64_t from, off64_t size) {
    REAL(posix_fallocate64);
    DISTURBED(WRITE, descriptor_is_below(fd, path), real(fd, from, size), plan.error);
}

/* --- syncing --- */

/* Linux drops pages that it could not write and reports the fault once: a second sync succeeds, but the bytes are lost. */
static void lose_unsynced(int fd, const char *path) {
    struct stat facts;
    if (fd >= DESCRIPTORS || syscall(SYS_fstat, fd, &facts) || !S_ISREG(facts.st_mode)) return;
    long again = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY);
    for (off_t at = synced[fd]; again >= 0 && at < facts.st_size; at++) syscall(SYS_pwrite64, again, "", 1, at);
    if (again >= 0) syscall(SYS_close, again);
}

static int synced_by(int (*call)(int), int fd) {
    char path[PATH_MAX];
    if (!descriptor_is_below(fd, path)) return call(fd);
    enum action action = passes(SYNC, path);
    if (action == LOSE) {
        lose_unsynced(fd, path);
        errno = EIO;
    }
    if (fails(action) || action == LOSE) return -1;
    int result = call(fd);
    if (action == KILL_AFTER) die();
    if (!result) opened(fd);
    return result;
}
int fsync(int fd) {
    REAL(fsync);
    return synced_by(real, fd);
}
int fdatasync(int fd) {
    REAL(fdatasync);
    return synced_by(real, fd);
}

/* --- names --- */

int rename(const char *from, const char *to) {
    REAL(rename);
    DISTURBED(RENAME, path_is_below(AT_FDCWD, to, path), real(from, to), -1);
}
int renameat(int at, const char *from, int into, const char *to) {
    REAL(renameat);
    DISTURBED(RENAME, path_is_below(into, to, path), real(at, from, into, to), -1);
}
int renameat2(int at, const char *from, int into, const char *to, unsigned flags) {
    REAL(renameat2);
    DISTURBED(RENAME, path_is_below(into, to, path), real(at, from, into, to, flags), -1);
}
int link(const char *from, const char *to) {
    REAL(link);
    DISTURBED(LINK, path_is_below(AT_FDCWD, to, path), real(from, to), -1);
}
int linkat(int at, const char *from, int into, const char *to, int flags) {
    REAL(linkat);
    DISTURBED(LINK, path_is_below(into, to, path), real(at, from, into, to, flags), -1);
}
int symlink(const char *target, const char *name) {
    REAL(symlink);
    DISTURBED(LINK, path_is_below(AT_FDCWD, name, path), real(target, name), -1);
}
int unlink(const char *name) {
    REAL(unlink);
    DISTURBED(UNLINK, path_is_below(AT_FDCWD, name, path), real(name), -1);
}
int unlinkat(int at, const char *name, int flags) {
    REAL(unlinkat);
    DISTURBED(UNLINK, path_is_below(at, name, path), real(at, name, flags), -1);
}
int rmdir(const char *name) {
    REAL(rmdir);
    DISTURBED(UNLINK, path_is_below(AT_FDCWD, name, path), real(name), -1);
}
int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    DISTURBED(MKDIR, path_is_below(AT_FDCWD, name, path), real(name, mode), -1);
}
int mkdirat(int at, const char *name, mode_t mode) {
    REAL(mkdirat);
    DISTURBED(MKDIR, path_is_below(at, name, path), real(at, name, mode), -1);
}

/* --- locks, sizes, facts --- */

int flock(int fd, int how) {
    REAL(flock);
    DISTURBED(LOCK, descriptor_is_below(fd, path), real(fd, how), -1);
}

static int locks(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}
#define CONTROLS(fd, command) \
    va_list more; \
    va_start(more, command); \
    void *argument = va_arg(more, void *); \
    va_end(more); \
    DISTURBED(LOCK, locks(command) && descriptor_is_below(fd, path), real(fd, command, argument), -1)

int fcntl(int fd, int command, ...) {
    REAL(fcntl);
    CONTROLS(fd, command);
}
int fcntl64(int fd, int command, ...) {
    REAL(fcntl64);
    CONTROLS(fd, command);
}

int ftruncate(int fd, off_t size) {
    REAL(ftruncate);
    DISTURBED(TRUNCATE, descriptor_is_below(fd, path), real(fd, size), -1);
}
int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    DISTURBED(TRUNCATE, descriptor_is_below(fd, path), real(fd, size), -1);
}
int truncate64(const char *name, off64_t size) {
    REAL(truncate64);
    DISTURBED(TRUNCATE, path_is_below(AT_FDCWD, name, path), real(name, size), -1);
}

int fstat(int fd, struct stat *facts) {
    REAL(fstat);
    DISTURBED(STAT, descriptor_is_below(fd, path), real(fd, facts), -1);
}
int fstat64(int fd, struct stat64 *facts) {
    REAL(fstat64);
    DISTURBED(STAT, descriptor_is_below(fd, path), real(fd, facts), -1);
}
int stat(const char *name, struct stat *facts) {
    REAL(stat);
    DISTURBED(STAT, path_is_below(AT_FDCWD, name, path), real(name, facts), -1);
}
int stat64(const char *name, struct stat64 *facts) {
    REAL(stat64);
    DISTURBED(STAT, path_is_below(AT_FDCWD, name, path), real(name, facts), -1);
}
int lstat(const char *name, struct stat *facts) {
    REAL(lstat);
    DISTURBED(STAT, path_is_below(AT_FDCWD, name, path), real(name, facts), -1);
}
int lstat64(const char *name, struct stat64 *facts) {
    REAL(lstat64);
    DISTURBED(STAT, path_is_below(AT_FDCWD, name, path), real(name, facts), -1);
}
int fstatat(int at, const char *name, struct stat *facts, int flags) {
    REAL(fstatat);
    DISTURBED(STAT, path_is_below(at, name, path), real(at, name, facts, flags), -1);
}
int fstatat64(int at, const char *name, struct stat64 *facts, int flags) {
    REAL(fstatat64);
    DISTURBED(STAT, path_is_below(at, name, path), real(at, name, facts, flags), -1);
}
int statx(int at, const char *name, int flags, unsigned mask, struct statx *facts) {
    REAL(statx);
    DISTURBED(STAT, path_is_below(at, name, path), real(at, name, flags, mask, facts), -1);
}
int access(const char *name, int mode) {
    REAL(access);
    DISTURBED(STAT, path_is_below(AT_FDCWD, name, path), real(name, mode), -1);
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t from) {
    REAL(mmap);
    DISTURBED(MAP, descriptor_is_below(fd, path), real(address, size, protection, flags, fd, from), MAP_FAILED);
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t from) {
    REAL(mmap64);
    DISTURBED(MAP, descriptor_is_below(fd, path), real(address, size, protection, flags, fd, from), MAP_FAILED);
}

DIR *opendir(const char *name) {
    REAL(opendir);
    DISTURBED(LIST, path_is_below(AT_FDCWD, name, path), real(name), NULL);
}
DIR *fdopendir(int fd) {
    REAL(fdopendir);
    DISTURBED(LIST, descriptor_is_below(fd, path), real(fd), NULL);
}
struct dirent *readdir(DIR *listed) {
    REAL(readdir);
    DISTURBED(LIST, descriptor_is_below(dirfd(listed), path), real(listed), NULL);
}
struct dirent64 *readdir64(DIR *listed) {
    REAL(readdir64);
    DISTURBED(LIST, descriptor_is_below(dirfd(listed), path), real(listed), NULL);
}
