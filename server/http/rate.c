#include "server/http/rate.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/base/mem.h"

#define RATE_BUCKETS 4096 /* a power of two */
#define RATE_WINDOW 16    /* where a key may be found */

struct rate {
    pthread_mutex_t lock;
    uint64_t seed; /* so that nobody can choose addresses that meet in one window */
    struct rate_bucket {
        char key[RATE_KEY_MAX]; /* "": empty */
        double share;           /* 1: full; negative: in debt */
        int64_t since_ns;
    } buckets[RATE_BUCKETS];
};

enum error_code rate_create(struct rate **out, struct error *err)
{
    struct rate *rate = *out = mem_calloc(1, sizeof *rate);
    if (!rate)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the limits of clients");
    pthread_mutex_init(&rate->lock, NULL);
    if (getrandom(&rate->seed, sizeof rate->seed, 0) < 0)
        rate->seed = (uint64_t)(uintptr_t)rate;
    return OK;
}

void rate_destroy(struct rate **rate)
{
    struct rate *old = *rate;
    *rate = NULL;
    if (!old)
        return;
    pthread_mutex_destroy(&old->lock);
    free(old);
}

/* Buckets fill in a minute whatever they hold. */
static double rate_share(const struct rate_bucket *bucket, int64_t now_ns)
{
    const double share = bucket->share + (double)(now_ns - bucket->since_ns) / 60e9;
    return !*bucket->key || share > 1 ? 1 : share;
}

/* The key's bucket; a new one takes the place of the fullest in its window. */
static struct rate_bucket *rate_find(struct rate *rate, const char *key, int64_t now_ns)
{
    uint64_t hash = rate->seed ^ UINT64_C(0xcbf29ce484222325); /* 64-bit FNV-1a */
    for (const char *at = key; *at; at++)
        hash = (hash ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
    hash ^= hash >> 32;
    struct rate_bucket *best = NULL;
    for (int i = 0; i < RATE_WINDOW; i++) {
        struct rate_bucket *bucket = &rate->buckets[(hash + (uint64_t)i) % RATE_BUCKETS];
        if (!strcmp(bucket->key, key))
            return bucket;
        if (!best || rate_share(bucket, now_ns) > rate_share(best, now_ns))
            best = bucket;
    }
    snprintf(best->key, sizeof best->key, "%s", key);
    best->share = 1;
    best->since_ns = now_ns;
    return best;
}

double rate_take(struct rate *rate, const char *key, double amount, double a_minute, int64_t now_ns)
{
    const double wanted = amount / a_minute, needed = wanted < 1 ? wanted : 1;
    double wait = 0;
    pthread_mutex_lock(&rate->lock);
    struct rate_bucket *bucket = rate_find(rate, key, now_ns);
    bucket->share = rate_share(bucket, now_ns);
    bucket->since_ns = now_ns;
    if (bucket->share >= needed)
        bucket->share -= wanted;
    else
        wait = (needed - bucket->share) * 60;
    pthread_mutex_unlock(&rate->lock);
    return wait;
}

void rate_give(struct rate *rate, const char *key, double amount, double a_minute, int64_t now_ns)
{
    pthread_mutex_lock(&rate->lock);
    struct rate_bucket *bucket = rate_find(rate, key, now_ns);
    const double share = rate_share(bucket, now_ns) + amount / a_minute;
    bucket->share = share < 1 ? share : 1;
    bucket->since_ns = now_ns;
    pthread_mutex_unlock(&rate->lock);
}

bool rate_key(const char *address, char out[RATE_KEY_MAX])
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, address, &four) == 1) {
        snprintf(out, RATE_KEY_MAX, "%s", address);
        return ntohl(four.s_addr) >> 24 != 127;
    }
    if (inet_pton(AF_INET6, address, &six) != 1 || IN6_IS_ADDR_LOOPBACK(&six))
        return false;
    memset(six.s6_addr + 8, 0, 8);
    return inet_ntop(AF_INET6, &six, out, RATE_KEY_MAX) != NULL;
}
