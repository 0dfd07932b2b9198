/* The certificate and key of the HTTPS server where GnuTLS fails: each call that reads them fails once. What is wrong
 * with files is in tests/api/tls.test.mjs. */
#include <dlfcn.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "server/http/tls.h"

static char folder[64], certificate[96], key[96];
static const char *failing; /* the call that fails, */
static int passing;         /* after so many that do not: GnuTLS itself makes some */

static int fails(const char *name)
{
    return failing && !strcmp(failing, name) && passing-- <= 0 ? GNUTLS_E_MEMORY_ERROR : 0;
}

/* GnuTLS's functions come here first. */
#define REPLACED(name, parameters, arguments)                                                                          \
    int name parameters                                                                                                \
    {                                                                                                                  \
        static int(*real) parameters;                                                                                  \
        if (!real)                                                                                                     \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                 \
        const int failed = fails(#name);                                                                               \
        return failed ? failed : real arguments;                                                                       \
    }
REPLACED(gnutls_privkey_init, (gnutls_privkey_t * key_out), (key_out))
REPLACED(gnutls_pubkey_init, (gnutls_pubkey_t * public), (public))
REPLACED(gnutls_pubkey_import_privkey,
         (gnutls_pubkey_t public, gnutls_privkey_t private, unsigned usage, unsigned flags),
         (public, private, usage, flags))
REPLACED(gnutls_pubkey_get_key_id, (gnutls_pubkey_t public, unsigned flags, unsigned char *out, size_t *size),
         (public, flags, out, size))

static void put(const char *path, const gnutls_datum_t *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text->data, 1, text->size, file), text->size);
    assert_int_equal(fclose(file), 0);
}

static int start(void **state)
{
    (void)state;
    gnutls_x509_privkey_t private;
    gnutls_x509_crt_t own;
    gnutls_datum_t text;
    const time_t now = time(NULL);
    log_set_level(LOG_ERROR + 1); /* everybody may open the key */
    strcpy(folder, "/tmp/restored_tls_XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(certificate, sizeof certificate, "%s/own.crt", folder);
    snprintf(key, sizeof key, "%s/own.key", folder);
    assert_int_equal(gnutls_x509_privkey_init(&private), 0);
    assert_int_equal(gnutls_x509_privkey_generate(private, GNUTLS_PK_ECDSA, 256, 0), 0);
    assert_int_equal(gnutls_x509_privkey_export2(private, GNUTLS_X509_FMT_PEM, &text), 0);
    put(key, &text);
    gnutls_free(text.data);
    assert_int_equal(gnutls_x509_crt_init(&own), 0);
    assert_int_equal(gnutls_x509_crt_set_version(own, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(own, "\1", 1), 0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(own, now), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(own, now + 86400), 0);
    assert_int_equal(gnutls_x509_crt_set_dn(own, "CN=localhost", NULL), 0);
    assert_int_equal(gnutls_x509_crt_set_key(own, private), 0);
    assert_int_equal(gnutls_x509_crt_sign2(own, own, private, GNUTLS_DIG_SHA256, 0), 0);
    assert_int_equal(gnutls_x509_crt_export2(own, GNUTLS_X509_FMT_PEM, &text), 0);
    put(certificate, &text);
    gnutls_free(text.data);
    gnutls_x509_crt_deinit(own);
    gnutls_x509_privkey_deinit(private);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    return unlink(certificate) || unlink(key) || rmdir(folder);
}

static void a_pair_is_taken(void **state)
{
    (void)state;
    struct error err = ERROR_INIT;
    struct tls *tls;
    if (tls_create(&tls, certificate, key, &err))
        fail_msg("%s", err.text);
    assert_non_null(tls);
    tls_destroy(&tls);
}

static void what_gnutls_cannot_do_is_an_error(void **state)
{
    static const struct {
        const char *call;
        int passing;
        const char *says;
    } cases[] = {
        {"gnutls_privkey_init", 0, "holds no private key"},
        {"gnutls_pubkey_init", 1, "no memory for the certificate"},
        {"gnutls_pubkey_import_privkey", 0, "cannot be used"},
        {"gnutls_pubkey_get_key_id", 0, "cannot be used"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = ERROR_INIT;
        struct tls *tls;
        failing = cases[i].call;
        passing = cases[i].passing;
        const enum error_code code = tls_create(&tls, certificate, key, &err);
        failing = NULL;
        assert_int_not_equal(code, OK);
        assert_null(tls);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].call, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_is_taken),
        cmocka_unit_test(what_gnutls_cannot_do_is_an_error),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
