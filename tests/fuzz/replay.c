/* Runs a fuzzer without libFuzzer: replay MUTATIONS FOLDER feeds it every file of the folder and that many variants of
 * each, the same ones every time. Files named broken-* have to be refused, all others to open. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/exercise.h"

#define MAX_SIZE ((size_t)1 << 20)

/* xorshift64 */
static uint64_t random_state = 88172645463325252u;

static size_t random_below(size_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return limit ? (size_t)(random_state % limit) : 0;
}

/* One change in place; returns the new size. data has room for MAX_SIZE bytes. */
static size_t mutate(uint8_t *data, size_t size)
{
    static const uint64_t values[] = {0,      1,          0x7f,       0x80,       0xff,       0x7fff,
                                      0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 62, ~0ull};
    if (size < 16)
        return size;
    size_t at = random_below(size), n = 1 + random_below(size - at < 64 ? size - at : 64), to = random_below(size - n);
    switch (random_below(7)) {
    case 0:
        data[at] ^= (uint8_t)(1u << random_below(8));
        return size;
    case 1:
        data[at] = (uint8_t)random_below(256);
        return size;
    case 2: { /* a number that is likely to hurt, in 1, 2, 4 or 8 bytes */
        uint64_t value = values[random_below(sizeof values / sizeof values[0])];
        n = (size_t)1 << random_below(4);
        at = random_below(size - n);
        for (size_t i = 0; i < n; i++)
            data[at + i] = (uint8_t)(value >> 8 * i);
        return size;
    }
    case 3: /* copy a piece over another */
        memmove(data + to, data + at, n);
        return size;
    case 4: /* take a piece out */
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 5: /* put a piece in */
        if (size + n > MAX_SIZE)
            return size;
        memmove(data + at + n, data + at, size - at);
        return size + n;
    default: /* cut */
        return random_below(8) == 0 ? at : size;
    }
}

/* Each input in memory of its exact size, so that a sanitizer sees any read beyond it. */
static void feed(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv)
{
    static uint8_t original[MAX_SIZE], data[MAX_SIZE];
    struct dirent **entries;
    if (argc != 3) {
        fprintf(stderr, "usage: %s MUTATIONS FOLDER\n", argv[0]);
        return 2;
    }
    unsigned long mutations = strtoul(argv[1], NULL, 10);
    int count = scandir(argv[2], &entries, visible, alphasort);
    if (count <= 0) {
        fprintf(stderr, "%s: no files to replay\n", argv[2]);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[2], entries[i]->d_name);
        size_t expected = exercise_opened + (strncmp(entries[i]->d_name, "broken-", 7) != 0);
        free(entries[i]);
        FILE *f = fopen(path, "rb");
        if (!f) {
            perror(path);
            return 1;
        }
        size_t size = fread(original, 1, sizeof original, f);
        fclose(f);
        feed(original, size);
        if (exercise_opened != expected) {
            fprintf(stderr, "%s: should %s\n", path, exercise_opened > expected ? "be refused" : "open");
            return 1;
        }
        for (unsigned long m = 0; m < mutations; m++) {
            size_t n = size;
            memcpy(data, original, size);
            for (size_t changes = 1 + random_below(3); changes > 0; changes--)
                n = mutate(data, n);
            feed(data, n);
        }
    }
    free(entries);
    printf("%s: %d files, %lu variants of each; %zu opened\n", argv[2], count, mutations, exercise_opened);
    return 0;
}
