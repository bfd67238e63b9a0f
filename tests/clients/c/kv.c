/* Key-value buckets as nats.c speaks them. */
#include "tap.h"

static natsStatus bucket(kvStore **store, Stage *stage, int history) {
    kvConfig config;
    natsStatus status = kvConfig_Init(&config);
    config.Bucket = stage->id;
    config.History = (uint8_t)history;
    config.Replicas = stage->replicas;
    return status == NATS_OK ? js_CreateKeyValue(store, stage->js, &config) : status;
}

/* A direct get may be answered by a replica that is a moment behind: read until the revision is there. */
static natsStatus settled(kvEntry **entry, kvStore *store, const char *key, uint64_t revision) {
    natsStatus status = NATS_TIMEOUT;
    for (int64_t end_ms = nats_Now() + WAIT_MS; nats_Now() < end_ms;) {
        status = kvStore_Get(entry, store, key);
        if (status == NATS_OK && kvEntry_Revision(*entry) >= revision) return NATS_OK;
        if (status == NATS_OK) kvEntry_Destroy(*entry);
        if (status != NATS_OK && status != NATS_NOT_FOUND) return status;
    }
    return NATS_TIMEOUT;
}

/* The same for a key that was deleted. */
static natsStatus gone(kvStore *store, const char *key) {
    kvEntry *entry = NULL;
    for (int64_t end_ms = nats_Now() + WAIT_MS; nats_Now() < end_ms;) {
        natsStatus status = kvStore_Get(&entry, store, key);
        if (status != NATS_OK) return status == NATS_NOT_FOUND ? NATS_OK : status;
        kvEntry_Destroy(entry);
    }
    return NATS_TIMEOUT;
}

static const char *values(Stage *stage) {
    kvStore *store = NULL, *far = NULL;
    kvEntry *entry = NULL;
    uint64_t revision = 0;
    OK(bucket(&store, stage, 5));
    OK(js_KeyValue(&far, stage->far_js, stage->id));
    OK(kvStore_PutString(&revision, store, "k", "1"));
    EQUAL(revision, 1);
    OK(settled(&entry, far, "k", 1));
    EQUAL(strcmp(kvEntry_ValueString(entry), "1"), 0);
    kvEntry_Destroy(entry);
    OK(kvStore_UpdateString(&revision, far, "k", "2", 1));
    EQUAL(revision, 2);
    EQUAL(kvStore_UpdateString(&revision, store, "k", "3", 1), NATS_ERR);
    EQUAL(kvStore_CreateString(&revision, store, "k", "4"), NATS_ERR);
    OK(kvStore_CreateString(&revision, store, "new", "5"));
    OK(kvStore_Delete(store, "k"));
    OK(gone(store, "k")); /* nats.c looks whether it is, before it creates the key again */
    OK(kvStore_CreateString(&revision, store, "k", "6")); /* a deleted key can be created */
    EQUAL(revision, 5);
    OK(kvStore_GetRevision(&entry, store, "k", 2));
    EQUAL(strcmp(kvEntry_ValueString(entry), "2"), 0);
    kvEntry_Destroy(entry);
    kvStore_Destroy(store);
    kvStore_Destroy(far);
    return NULL;
}

static const char *watching(Stage *stage) {
    kvStore *store = NULL, *far = NULL;
    kvWatcher *watcher = NULL;
    const char *wanted[] = {"a", NULL, "b", "a"}; /* no entry: what was there has been seen */
    OK(bucket(&store, stage, 1));
    OK(js_KeyValue(&far, stage->far_js, stage->id));
    OK(kvStore_PutString(NULL, store, "a", "1"));
    OK(kvStore_WatchAll(&watcher, far, NULL));
    OK(kvStore_PutString(NULL, store, "b", "2"));
    OK(kvStore_Delete(store, "a"));
    for (int number = 0, met_end = 0; number < 4; number++) {
        kvEntry *entry = NULL;
        OK(kvWatcher_Next(&entry, watcher, WAIT_MS));
        if (entry == NULL) { /* "b" may have come before the end of what was there */
            EQUAL(met_end, 0);
            met_end = 1;
            continue;
        }
        const char *key = wanted[number + (number > 0 && !met_end)];
        if (strcmp(kvEntry_Key(entry), key) != 0) return "the keys come in another order";
        EQUAL(kvEntry_Operation(entry), number == 3 ? kvOp_Delete : kvOp_Put);
        kvEntry_Destroy(entry);
    }
    kvWatcher_Destroy(watcher);
    kvStore_Destroy(store);
    kvStore_Destroy(far);
    return NULL;
}

static const char *listing(Stage *stage) {
    kvStore *store = NULL;
    kvKeysList keys;
    kvEntryList history;
    kvStatus *status = NULL;
    OK(bucket(&store, stage, 3));
    for (int number = 0; number < 5; number++) OK(kvStore_PutString(NULL, store, "k", "x"));
    OK(kvStore_PutString(NULL, store, "l", "y"));
    OK(kvStore_Keys(&keys, store, NULL));
    EQUAL(keys.Count, 2);
    kvKeysList_Destroy(&keys);
    OK(kvStore_History(&history, store, "k", NULL));
    EQUAL(history.Count, 3);
    EQUAL(kvEntry_Revision(history.Entries[0]), 3);
    kvEntryList_Destroy(&history);
    OK(kvStore_Status(&status, store));
    EQUAL(kvStatus_Values(status), 4);
    EQUAL(kvStatus_History(status), 3);
    EQUAL(kvStatus_Replicas(status), stage->replicas);
    kvStatus_Destroy(status);
    OK(kvStore_Purge(store, "k", NULL));
    natsStatus found = NATS_NOT_FOUND;
    for (int64_t end_ms = nats_Now() + WAIT_MS; found == NATS_NOT_FOUND && nats_Now() < end_ms;)
        found = kvStore_History(&history, store, "k", NULL); /* from a replica that may be a moment behind */
    OK(found);
    EQUAL(history.Count, 1);
    EQUAL(kvEntry_Operation(history.Entries[0]), kvOp_Purge);
    kvEntryList_Destroy(&history);
    kvStore_Destroy(store);
    OK(js_DeleteKeyValue(stage->js, stage->id));
    EQUAL(js_KeyValue(&store, stage->js, stage->id), NATS_NOT_FOUND);
    return NULL;
}

static const Line LINES[] = {
    {"values", "values are put, read, updated, deleted and created again", values},
    {"watching", "a watch sees what is there and what comes", watching},
    {"listing", "keys, history, status, purge and the end of a bucket", listing},
};

int main(int count, char **words) { return run(count, words, LINES, sizeof LINES / sizeof *LINES); }
