#include "runtime/base/spill.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/base/mem.h"

#define SPILL_BLOCKS 64                /* at a time; more are from malloc */
#define SPILL_STEP ((size_t)256 << 20) /* by which a growing block's file grows */
#define SPILL_PAGE ((size_t)4096)      /* or a part of one */
#define SPILL_TMPFS 0x01021994         /* f_type: files there are memory, too */
#define SPILL_RAMFS ((long)0x858458f6)

struct spill_block {
    uint8_t *data; /* NULL: free */
    size_t size;
    int fd;
};

static struct {
    pthread_mutex_t lock;
    char folder[1024];
    struct spill_block blocks[SPILL_BLOCKS];
    atomic_int count;
} spill = {.lock = PTHREAD_MUTEX_INITIALIZER};

void spill_into(const char *folder)
{
    struct statfs about;
    pthread_mutex_lock(&spill.lock);
    *spill.folder = '\0';
    if (strlen(folder) < sizeof spill.folder && !statfs(folder, &about) && about.f_type != SPILL_TMPFS &&
        (long)about.f_type != SPILL_RAMFS)
        snprintf(spill.folder, sizeof spill.folder, "%s", folder);
    pthread_mutex_unlock(&spill.lock);
}

/* Under the lock: the block with this byte. */
static struct spill_block *spill_find(const void *byte)
{
    for (int i = 0; i < SPILL_BLOCKS; i++)
        if (spill.blocks[i].data && (uintptr_t)byte - (uintptr_t)spill.blocks[i].data < spill.blocks[i].size)
            return &spill.blocks[i];
    return NULL;
}

/* Under the lock: a file without a name, or -1. */
static int spill_file(void)
{
    char path[sizeof spill.folder + 16];
    if (!*spill.folder)
        return -1;
    const int fd = open(spill.folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    snprintf(path, sizeof path, "%s/.spill-XXXXXX", spill.folder); /* not every file system has such files */
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0)
        unlink(path);
    return named;
}

/* Under the lock. The disk's room is taken now: where it ended later, a write into the block would end the process. */
static void *spill_map(size_t size)
{
    int i = 0;
    while (i < SPILL_BLOCKS && spill.blocks[i].data)
        i++;
    const int fd = i < SPILL_BLOCKS ? spill_file() : -1;
    void *data = MAP_FAILED;
    if (fd >= 0 && size <= INT64_MAX && !fallocate(fd, 0, 0, (off_t)size))
        data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    spill.blocks[i] = (struct spill_block){data, size, fd};
    atomic_fetch_add(&spill.count, 1);
    return data;
}

void *spill_alloc(size_t count, size_t size)
{
    size_t bytes;
    void *data = NULL;
    if (!mem_mul(count, size, &bytes))
        return NULL;
    if (bytes >= SPILL_LEAST) {
        pthread_mutex_lock(&spill.lock);
        data = spill_map(bytes);
        pthread_mutex_unlock(&spill.lock);
    }
    return data ? data : mem_alloc(count, size);
}

void *spill_grow(void *block, size_t used, size_t size)
{
    if (size < SPILL_LEAST)
        return realloc(block, size);
    const size_t whole = size <= SIZE_MAX - SPILL_STEP ? (size + SPILL_STEP - 1) / SPILL_STEP * SPILL_STEP : size;
    pthread_mutex_lock(&spill.lock);
    struct spill_block *old = block ? spill_find(block) : NULL;
    void *data = NULL;
    if (old && old->size >= size) {
        data = block;
    } else if (old && whole <= INT64_MAX && !fallocate(old->fd, 0, 0, (off_t)whole)) {
        data = mremap(old->data, old->size, whole, MREMAP_MAYMOVE);
        data = data == MAP_FAILED ? NULL : data;
        if (data)
            *old = (struct spill_block){data, whole, old->fd};
    } else if (!old) {
        data = spill_map(whole);
    }
    pthread_mutex_unlock(&spill.lock);
    if (old)
        return data;
    if (!data)
        return realloc(block, size);
    memcpy(data, block, used);
    free(block);
    return data;
}

void spill_free(void *block)
{
    struct spill_block old = {0};
    if (block && atomic_load(&spill.count)) {
        pthread_mutex_lock(&spill.lock);
        struct spill_block *found = spill_find(block);
        if (found) {
            old = *found;
            found->data = NULL;
            atomic_fetch_sub(&spill.count, 1);
        }
        pthread_mutex_unlock(&spill.lock);
    }
    if (!old.data) {
        free(block);
        return;
    }
    munmap(old.data, old.size);
    close(old.fd);
}

void spill_passed(const void *bytes, size_t size)
{
    if (!atomic_load(&spill.count) || !spill_is(bytes))
        return;
    /* the first page was not passed by others: it is read in again, which is cheap */
    const uintptr_t begin = (uintptr_t)bytes / SPILL_PAGE * SPILL_PAGE, end = (uintptr_t)bytes + size;
    const int ignored = madvise((void *)begin, end / SPILL_PAGE * SPILL_PAGE - begin, MADV_DONTNEED);
    (void)ignored;
}

uint64_t spill_share(uint64_t size)
{
    pthread_mutex_lock(&spill.lock);
    const bool files = *spill.folder != '\0';
    pthread_mutex_unlock(&spill.lock);
    return files && size > SPILL_LEAST ? SPILL_LEAST : size;
}

bool spill_is(const void *bytes)
{
    if (!atomic_load(&spill.count))
        return false;
    pthread_mutex_lock(&spill.lock);
    const bool found = spill_find(bytes) != NULL;
    pthread_mutex_unlock(&spill.lock);
    return found;
}
