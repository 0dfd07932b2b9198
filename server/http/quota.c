#include "server/http/quota.h"

#include <math.h>
#include <stdio.h>

enum reply quota_take_pixels(struct request *request, uint64_t pixels, int *seconds, struct error *err)
{
    const struct auth_identity *identity = &request->identity;
    if (identity->megapixels <= 0)
        return REPLY_OK;
    const double megapixels = (double)pixels / 1e6;
    const double wait = rate_take(request->server->pixels, identity->name, megapixels, identity->megapixels, job_now());
    if (wait <= 0) {
        request->charged += megapixels;
        return REPLY_OK;
    }
    *seconds = (int)fmin(ceil(wait), 86400);
    metrics_rejected(request->server->metrics, REJECTED_RATE);
    error_set(err, ERROR_BUSY, "the token \"%s\" may send %g megapixels a minute, and has", identity->name,
              identity->megapixels);
    return REPLY_RATE_LIMITED;
}

void quota_give_back(struct request *request)
{
    if (request->charged > 0)
        rate_give(request->server->pixels, request->identity.name, request->charged, request->identity.megapixels,
                  job_now());
    request->charged = 0;
}

enum reply quota_take_request(struct request *request, int *seconds, struct error *err)
{
    const double most = (double)request->server->config->requests_per_minute;
    char key[RATE_KEY_MAX];
    if (most <= 0 || !rate_key(request->client, key))
        return REPLY_OK;
    const double wait = rate_take(request->server->visits, key, 1, most, job_now());
    if (wait <= 0)
        return REPLY_OK;
    *seconds = (int)fmin(ceil(wait), 86400);
    metrics_rejected(request->server->metrics, REJECTED_RATE);
    error_set(err, ERROR_BUSY, "this address may send %.0f requests a minute, and has", most);
    return REPLY_RATE_LIMITED;
}

void quota_client(const struct request *request, char out[72])
{
    char key[RATE_KEY_MAX];
    if (*request->identity.name)
        snprintf(out, 72, "token %s", request->identity.name);
    else
        snprintf(out, 72, "address %s", rate_key(request->client, key) ? key : request->client);
}

enum reply quota_allows_job(struct request *request, size_t waiting, struct error *err)
{
    return !request->identity.jobs || waiting < request->identity.jobs ? REPLY_OK : quota_too_many_jobs(request, err);
}

enum reply quota_too_many_jobs(struct request *request, struct error *err)
{
    const struct auth_identity *identity = &request->identity;
    metrics_rejected(request->server->metrics, REJECTED_JOBS);
    error_set(err, ERROR_BUSY, "the token \"%s\" may have %u jobs wait at once, and has", identity->name,
              identity->jobs);
    return REPLY_TOO_MANY_JOBS;
}
