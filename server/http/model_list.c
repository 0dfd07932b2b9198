#include "server/http/model_list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "server/http/json.h"

#define NICE 15 /* of the hashing thread (on Linux each has its own): workers that load the same files go before it */

struct model_list {
    struct model_store *store;
    pthread_mutex_t lock; /* of all below */
    char *text[2];        /* [0]: for clients on other machines */
    uint64_t generation;  /* of the store, when the texts were made */
    pthread_t thread;     /* while `hashing`: the thread that computes what they lack */
    bool hashing, done;
};

/* model: NULL where the name stands for the defaults. */
static void list_append(json_t *list, const char *name, const json_t *model)
{
    json_t *row =
        json_pack("{s:s, s:s, s:i, s:s}", "id", name, "object", "model", "created", 0, "owned_by", "restored");
    json_object_set(row, "licence", json_object_get(model, "licence"));
    json_object_set(row, "non_commercial", json_object_get(model, "non_commercial"));
    json_array_append_new(list, row);
}

void model_list_add_ids(json_t *json)
{
    json_t *list = json_array(), *row;
    size_t i;
    list_append(list, "restored", NULL);
    json_array_foreach(json_object_get(json, "models"), i, row)
    {
        const char *kind = json_string_value(json_object_get(row, "kind"));
        if (kind && (!strcmp(kind, json_kind_name(MODEL_FACE)) || !strcmp(kind, json_kind_name(MODEL_UPSCALER))))
            list_append(list, json_string_value(json_object_get(row, "name")), row);
    }
    json_object_set_new(json, "object", json_string("list"));
    json_object_set_new(json, "data", list);
}

static char *list_render(const struct model_store *store, bool near)
{
    json_t *json = json_models(store, near);
    if (json)
        model_list_add_ids(json);
    char *text = json ? json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(10)) : NULL;
    json_decref(json);
    return text;
}

/* Under the lock. If memory runs out an old text stays. */
static void list_update(struct model_list *model_list)
{
    for (int near = 0; near < 2; near++) {
        char *text = list_render(model_list->store, near);
        if (!text)
            continue;
        free(model_list->text[near]);
        model_list->text[near] = text;
    }
}

static void *list_hash(void *argument)
{
    struct model_list *model_list = argument;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    pthread_mutex_lock(&model_list->lock);
    while (!model_list->done) {
        const uint64_t generation = model_list->generation;
        pthread_mutex_unlock(&model_list->lock);
        model_store_hash(model_list->store);
        pthread_mutex_lock(&model_list->lock);
        list_update(model_list);
        model_list->done = generation == model_list->generation;
    }
    pthread_mutex_unlock(&model_list->lock);
    return NULL;
}

/* Under the lock: starts a thread that hashes new files, unless one is still running. */
static bool list_begin_hash(struct model_list *model_list)
{
    if (model_list->hashing && !model_list->done)
        return true;
    if (model_list->hashing)
        pthread_join(model_list->thread, NULL);
    model_list->done = false;
    model_list->hashing = pthread_create(&model_list->thread, NULL, list_hash, model_list) == 0;
    return model_list->hashing;
}

enum error_code model_list_create(struct model_list **out, struct model_store *store, struct error *err)
{
    *out = NULL;
    struct model_list *model_list = mem_calloc(1, sizeof *model_list);
    if (!model_list)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the list of models");
    model_list->store = store;
    model_list->generation = model_store_refresh(store);
    pthread_mutex_init(&model_list->lock, NULL);
    pthread_mutex_lock(&model_list->lock);
    list_update(model_list);
    bool good = model_list->text[0] && model_list->text[1] && list_begin_hash(model_list);
    pthread_mutex_unlock(&model_list->lock);
    if (!good) {
        pthread_mutex_destroy(&model_list->lock);
        free(model_list->text[0]);
        free(model_list->text[1]);
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
    model_store_stop(old->store);
    if (old->hashing)
        pthread_join(old->thread, NULL);
    pthread_mutex_destroy(&old->lock);
    free(old->text[0]);
    free(old->text[1]);
    free(old);
}

char *model_list_text(struct model_list *model_list, bool near, size_t *size)
{
    const uint64_t generation = model_store_refresh(model_list->store);
    pthread_mutex_lock(&model_list->lock);
    if (generation != model_list->generation) {
        model_list->generation = generation;
        list_update(model_list);
        list_begin_hash(model_list);
    }
    char *text = strdup(model_list->text[near]);
    pthread_mutex_unlock(&model_list->lock);
    *size = text ? strlen(text) : 0;
    return text;
}
