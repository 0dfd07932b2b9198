#include "server/http/tls.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#define TLS_CHAIN_MAX 16
#define TLS_ID_MAX 64

/* What was read once. It stays as long as the server, because a handshake may be using it. */
struct tls_pair {
    struct tls_pair *older;
    gnutls_pcert_st chain[TLS_CHAIN_MAX];
    unsigned count;
    gnutls_privkey_t key;
    uint8_t id[TLS_ID_MAX]; /* of the certificate itself (SHA-256), to see whether it is another one */
    size_t id_size;
};

struct tls {
    char certificate[1024], key[1024];
    pthread_mutex_t lock;
    struct tls_pair *current; /* under the lock */
};

static _Atomic(struct tls *) tls_current; /* GnuTLS's callback has no argument of ours */

static void tls_free_pair(struct tls_pair *pair)
{
    for (unsigned i = 0; i < pair->count; i++)
        gnutls_pcert_deinit(&pair->chain[i]);
    if (pair->key)
        gnutls_privkey_deinit(pair->key);
    free(pair);
}

static enum error_code tls_load(gnutls_datum_t *out, const char *key, const char *path, struct error *err)
{
    const int failed = gnutls_load_file(path, out);
    if (!failed)
        return OK;
    return error_set(err, errno == ENOENT || errno == ENOTDIR ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s: %s", key, path,
                     errno ? strerror(errno) : gnutls_strerror(failed));
}

static enum error_code tls_read_certificate(struct tls *tls, struct tls_pair *pair, struct error *err)
{
    gnutls_datum_t file;
    errno = 0;
    enum error_code code = tls_load(&file, "tls_cert", tls->certificate, err);
    if (code)
        return code;
    unsigned count = TLS_CHAIN_MAX;
    const int failed =
        gnutls_pcert_list_import_x509_raw(pair->chain, &count, &file, GNUTLS_X509_FMT_PEM, GNUTLS_X509_CRT_LIST_SORT);
    gnutls_free(file.data);
    if (failed || !count)
        return error_set(err, ERROR_INVALID, "tls_cert: %s holds no certificate in PEM form (%s)", tls->certificate,
                         failed ? gnutls_strerror(failed) : "it is empty");
    pair->count = count;
    return OK;
}

static enum error_code tls_read_key(struct tls *tls, struct tls_pair *pair, struct error *err)
{
    gnutls_datum_t file;
    struct stat status;
    errno = 0;
    enum error_code code = tls_load(&file, "tls_key", tls->key, err);
    if (code)
        return code;
    if (!stat(tls->key, &status) && status.st_mode & S_IRWXO)
        log_event(LOG_WARN, "tls", "file=\"%s\" text=\"everybody on this machine may open the key; chmod o= it\"",
                  tls->key);
    int failed = gnutls_privkey_init(&pair->key);
    if (!failed)
        failed = gnutls_privkey_import_x509_raw(pair->key, &file, GNUTLS_X509_FMT_PEM, NULL, 0);
    explicit_bzero(file.data, file.size);
    gnutls_free(file.data);
    if (failed == GNUTLS_E_DECRYPTION_FAILED)
        return error_set(err, ERROR_INVALID, "tls_key: %s is encrypted; the server takes keys without a password",
                         tls->key);
    if (failed)
        return error_set(err, ERROR_INVALID, "tls_key: %s holds no private key in PEM form (%s)", tls->key,
                         gnutls_strerror(failed));
    return OK;
}

/* Whether the key is that of the certificate. */
static enum error_code tls_compare(const struct tls *tls, struct tls_pair *pair, struct error *err)
{
    uint8_t one[TLS_ID_MAX], other[TLS_ID_MAX];
    size_t one_size = sizeof one, other_size = sizeof other;
    gnutls_pubkey_t public;
    int failed = gnutls_pubkey_init(&public);
    if (failed)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the certificate");
    failed = gnutls_pubkey_import_privkey(public, pair->key, 0, 0);
    if (!failed)
        failed = gnutls_pubkey_get_key_id(public, GNUTLS_KEYID_USE_SHA256, one, &one_size);
    if (!failed)
        failed = gnutls_pubkey_get_key_id(pair->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, other, &other_size);
    gnutls_pubkey_deinit(public);
    if (failed)
        return error_set(err, ERROR_INVALID, "tls_key: %s cannot be used (%s)", tls->key, gnutls_strerror(failed));
    if (one_size != other_size || memcmp(one, other, one_size) != 0)
        return error_set(err, ERROR_INVALID,
                         "tls_key: %s is not the key of the certificate in %s; the first certificate there must be the "
                         "server's own",
                         tls->key, tls->certificate);
    return OK;
}

/* Logs until when it is valid. */
static void tls_tell(const struct tls *tls, struct tls_pair *pair)
{
    char until[32] = "";
    gnutls_x509_crt_t certificate;
    pair->id_size = sizeof pair->id;
    if (gnutls_x509_crt_init(&certificate))
        return;
    if (!gnutls_x509_crt_import(certificate, &pair->chain[0].cert, GNUTLS_X509_FMT_DER) &&
        !gnutls_x509_crt_get_fingerprint(certificate, GNUTLS_DIG_SHA256, pair->id, &pair->id_size)) {
        const time_t end = gnutls_x509_crt_get_expiration_time(certificate);
        struct tm utc;
        if (gmtime_r(&end, &utc))
            strftime(until, sizeof until, "%Y-%m-%dT%H:%M:%SZ", &utc);
        log_event(end < time(NULL) ? LOG_WARN : LOG_INFO, "tls", "certificate=\"%s\" until=%s%s", tls->certificate,
                  until, end < time(NULL) ? " text=\"it has expired\"" : "");
    }
    gnutls_x509_crt_deinit(certificate);
}

enum error_code tls_reload(struct tls *tls, struct error *err)
{
    if (!tls)
        return OK;
    struct tls_pair *pair = mem_calloc(1, sizeof *pair);
    if (!pair)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the certificate");
    enum error_code code = tls_read_certificate(tls, pair, err);
    if (!code)
        code = tls_read_key(tls, pair, err);
    if (!code)
        code = tls_compare(tls, pair, err);
    if (code) {
        tls_free_pair(pair);
        return code;
    }
    tls_tell(tls, pair);
    pthread_mutex_lock(&tls->lock);
    const struct tls_pair *now = tls->current;
    const bool same = now && pair->id_size == now->id_size && !memcmp(pair->id, now->id, now->id_size);
    if (!same) {
        pair->older = tls->current;
        tls->current = pair;
    }
    pthread_mutex_unlock(&tls->lock);
    if (same)
        tls_free_pair(pair);
    return OK;
}

enum error_code tls_create(struct tls **out, const char *certificate, const char *key, struct error *err)
{
    *out = NULL;
    if (!*certificate && !*key)
        return OK;
    if (!*certificate || !*key)
        return error_set(err, ERROR_INVALID, "tls_cert and tls_key: set both, or neither; %s is empty",
                         *certificate ? "tls_key" : "tls_cert");
    struct tls *tls = mem_calloc(1, sizeof *tls);
    if (!tls)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the certificate");
    pthread_mutex_init(&tls->lock, NULL);
    snprintf(tls->certificate, sizeof tls->certificate, "%s", certificate);
    snprintf(tls->key, sizeof tls->key, "%s", key);
    *out = tls;
    enum error_code code = tls_reload(tls, err);
    if (code)
        tls_destroy(out);
    else
        tls_current = tls;
    return code;
}

void tls_destroy(struct tls **tls)
{
    struct tls *old = *tls;
    *tls = NULL;
    if (!old)
        return;
    tls_current = NULL;
    for (struct tls_pair *pair = old->current, *older; pair; pair = older) {
        older = pair->older;
        tls_free_pair(pair);
    }
    pthread_mutex_destroy(&old->lock);
    free(old);
}

static int tls_retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                        const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **chain,
                        unsigned *count, gnutls_privkey_t *key)
{
    struct tls *tls = tls_current;
    (void)session, (void)authorities, (void)authority_count, (void)algorithms, (void)algorithm_count;
    if (!tls)
        return -1;
    pthread_mutex_lock(&tls->lock);
    *chain = tls->current->chain;
    *count = tls->current->count;
    *key = tls->current->key;
    pthread_mutex_unlock(&tls->lock);
    return 0;
}

void *tls_callback(void)
{
    gnutls_certificate_retrieve_function2 *const callback = tls_retrieve;
    void *out;
    memcpy(&out, &callback, sizeof out); /* ISO C has no cast for this */
    return out;
}

bool tls_send(void *session, const void *data, size_t size)
{
    return gnutls_record_send(session, data, size) == (ssize_t)size;
}
