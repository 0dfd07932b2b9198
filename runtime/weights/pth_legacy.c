#include "runtime/weights/pth_legacy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/weights/pickle_torch.h"

#define LEGACY_PROTOCOL 1001

/* The first three pickles: 0x1950a86a20f9469cfc6c, the protocol, and facts about the machine that wrote the file. */
static enum error_code legacy_read_head(const struct catalogue *catalogue, struct bytes *in, struct error *err)
{
    static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
    struct pickle pickle;
    enum error_code code = pickle_walk(&pickle, catalogue, "magic number", in, err);
    if (code != OK)
        return code;
    const struct pickle_value *root = &pickle.root;
    if (root->kind != PICKLE_LONG || root->size != sizeof magic || memcmp(root->bytes, magic, sizeof magic) != 0)
        code = catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, "magic number", "a pickle that is not torch.save's");
    pickle_release(&pickle);
    if (code == OK)
        code = pickle_walk(&pickle, catalogue, "protocol", in, err);
    if (code != OK)
        return code;
    if (root->kind != PICKLE_INT || root->integer != LEGACY_PROTOCOL)
        code = catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, "protocol", "not %d", LEGACY_PROTOCOL);
    pickle_release(&pickle);
    if (code == OK)
        code = pickle_walk(&pickle, catalogue, "system", in, err);
    if (code != OK)
        return code;
    const struct pickle_value *little = pickle_find(root, "little_endian");
    if (!little || little->kind != PICKLE_BOOL)
        code = catalogue_fail(err, ERROR_CORRUPT, catalogue, "system", "the byte order is not given");
    else if (!little->integer)
        code = catalogue_fail(err, ERROR_UNSUPPORTED, catalogue, "system", "big-endian tensors are not supported");
    pickle_release(&pickle);
    return code;
}

/* The first of the object's references to that storage: they are sorted by key. */
static size_t legacy_find_storage(const struct pickle *object, const struct pickle_value *key)
{
    size_t low = 0, high = object->storage_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (pickle_compare_text(&object->storages[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool legacy_is_storage(const struct pickle *object, size_t index, const struct pickle_value *key)
{
    return index < object->storage_count && pickle_compare_text(&object->storages[index]->key, key) == 0;
}

static enum error_code legacy_read_storage(const struct catalogue *catalogue, struct bytes *in, struct pickle *object,
                                           const struct pickle_value *key, struct error *err)
{
    struct catalogue_label label, entry;
    if (key->kind != PICKLE_TEXT)
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, "storage keys", "a key is not text");
    snprintf(entry.text, sizeof entry.text, "storage %.80s", catalogue_label(&label, key->bytes, key->size));
    size_t at = legacy_find_storage(object, key);
    if (!legacy_is_storage(object, at, key))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry.text, "no tensor refers to it");
    const struct pickle_storage *first = object->storages[at];
    if (first->data)
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry.text, "the list of keys has it twice");
    size_t element = catalogue_element_size(first->dtype);
    uint64_t count;
    const uint8_t *data;
    if (!bytes_u64(in, &count))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry.text, "the file ends before it");
    if (count != first->count)
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry.text,
                              "it has %" PRIu64 " elements where its tensors expect %" PRIu64, count, first->count);
    if (count > (in->size - in->at) / element || !bytes_take(in, count * element, &data))
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, entry.text,
                              "the file is too short for its %" PRIu64 " elements", count);
    for (; legacy_is_storage(object, at, key); at++)
        object->storages[at]->data = data;
    return OK;
}

static enum error_code legacy_read_storages(const struct catalogue *catalogue, struct bytes *in, struct pickle *object,
                                            const struct pickle_value *keys, struct error *err)
{
    if (keys->kind != PICKLE_LIST)
        return catalogue_fail(err, ERROR_CORRUPT, catalogue, "storage keys", "not a list");
    enum error_code code = OK;
    for (size_t i = 0; i < keys->items->count && code == OK; i++)
        code = legacy_read_storage(catalogue, in, object, &keys->items->values[i], err);
    for (size_t i = 0; i < object->storage_count && code == OK; i++) {
        const struct pickle_value *key = &object->storages[i]->key;
        struct catalogue_label label, entry;
        snprintf(entry.text, sizeof entry.text, "storage %.80s", catalogue_label(&label, key->bytes, key->size));
        if (!object->storages[i]->data)
            code = catalogue_fail(err, ERROR_CORRUPT, catalogue, entry.text, "the storage is missing");
    }
    if (code == OK && in->at != in->size)
        code = catalogue_fail(err, ERROR_CORRUPT, catalogue, "storages", "%zu bytes follow the last one",
                              in->size - in->at);
    return code;
}

enum error_code pth_legacy_read(struct catalogue *catalogue, struct error *err)
{
    struct bytes in = {.data = catalogue->data, .size = catalogue->size};
    struct pickle object = {0}, keys = {0};
    catalogue->format = "torch-legacy";
    enum error_code code = legacy_read_head(catalogue, &in, err);
    if (code == OK)
        code = pickle_walk(&object, catalogue, "object", &in, err);
    if (code == OK)
        code = pickle_walk(&keys, catalogue, "storage keys", &in, err);
    if (code == OK)
        code = legacy_read_storages(catalogue, &in, &object, &keys.root, err);
    if (code == OK)
        code = pickle_torch_add_tensors(&object, catalogue, "object", err);
    pickle_release(&keys);
    pickle_release(&object);
    return code;
}
