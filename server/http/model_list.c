#include "server/http/model_list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/http/json.h"

#define NICE 15 /* of the thread that hashes, on Linux its own: workers that load the same files go before it */

struct model_list {
    struct model_store *store;
    pthread_t thread;
    pthread_mutex_t lock;
    char *text;
};

static char *render(const struct model_store *store)
{
    json_t *json = json_models(store);
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(json);
    return text;
}

static void *hash(void *argument)
{
    struct model_list *model_list = argument;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    model_store_hash(model_list->store); /* from here on this thread alone reads those fields */
    char *text = render(model_list->store);
    pthread_mutex_lock(&model_list->lock);
    char *old = model_list->text;
    model_list->text = text ? text : old;
    pthread_mutex_unlock(&model_list->lock);
    if (text)
        free(old);
    return NULL;
}

enum error_code model_list_create(struct model_list **out, struct model_store *store, struct error *err)
{
    *out = NULL;
    struct model_list *model_list = mem_calloc(1, sizeof *model_list);
    if (!model_list)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of models");
    model_list->store = store;
    model_list->text = render(store);
    pthread_mutex_init(&model_list->lock, NULL);
    if (!model_list->text || pthread_create(&model_list->thread, NULL, hash, model_list)) {
        free(model_list->text);
        free(model_list);
        return error_set(err, ERROR_NO_MEMORY, "the list of models could not be made");
    }
    *out = model_list;
    return OK;
}

void model_list_destroy(struct model_list **model_list)
{
    struct model_list *old = *model_list;
    *model_list = NULL;
    if (!old)
        return;
    pthread_join(old->thread, NULL);
    pthread_mutex_destroy(&old->lock);
    free(old->text);
    free(old);
}

char *model_list_text(struct model_list *model_list, size_t *size)
{
    pthread_mutex_lock(&model_list->lock);
    char *text = strdup(model_list->text);
    pthread_mutex_unlock(&model_list->lock);
    *size = text ? strlen(text) : 0;
    return text;
}
