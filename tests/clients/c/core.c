/* The core protocol as nats.c speaks it. What subscribes says so before anybody publishes: a round trip. */
#include "tap.h"

enum { MESSAGES = 20000, MEMBERS = 3 };

static const char *delivers(Stage *stage) {
    natsSubscription *sub = NULL;
    natsMsg *sent = NULL, *got = NULL;
    const char *value = NULL;
    OK(natsConnection_SubscribeSync(&sub, stage->far, "c_core.*.wild.>"));
    OK(natsConnection_FlushTimeout(stage->far, WAIT_MS));
    OK(natsMsg_Create(&sent, "c_core.any.wild.card", NULL, "hello", 5));
    OK(natsMsgHeader_Set(sent, "Key", "value"));
    OK(natsMsgHeader_Add(sent, "Key", "second"));
    /* Until the other server has heard of it. */
    for (int64_t end_ms = nats_Now() + WAIT_MS; got == NULL && nats_Now() < end_ms;) {
        OK(natsConnection_PublishMsg(stage->near, sent));
        if (natsSubscription_NextMsg(&got, sub, 50) != NATS_OK) got = NULL;
    }
    if (got == NULL) return "nothing came";
    SAYS(got, "hello");
    OK(natsMsgHeader_Get(got, "Key", &value));
    EQUAL(strcmp(value, "value"), 0);
    natsMsg_Destroy(sent);
    natsMsg_Destroy(got);
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *order(Stage *stage) {
    natsSubscription *sub = NULL;
    OK(natsConnection_SubscribeSync(&sub, stage->near, "c_order"));
    OK(natsSubscription_SetPendingLimits(sub, -1, -1));
    for (int number = 0; number < MESSAGES; number++)
        OK(natsConnection_Publish(stage->near, "c_order", &number, sizeof number));
    OK(natsConnection_FlushTimeout(stage->near, WAIT_MS));
    for (int number = 0; number < MESSAGES; number++) {
        natsMsg *got = NULL;
        int found;
        OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
        EQUAL(natsMsg_GetDataLength(got), sizeof found);
        memcpy(&found, natsMsg_GetData(got), sizeof found);
        EQUAL(found, number);
        natsMsg_Destroy(got);
    }
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *queue(Stage *stage) {
    natsSubscription *members[MEMBERS] = {0};
    int total = 0;
    for (int number = 0; number < MEMBERS; number++)
        OK(natsConnection_QueueSubscribeSync(&members[number], stage->near, "c_queue", "workers"));
    for (int number = 0; number < 300; number++) OK(natsConnection_PublishString(stage->near, "c_queue", "x"));
    OK(natsConnection_FlushTimeout(stage->near, WAIT_MS)); /* the answer comes behind all deliveries */
    for (int number = 0; number < MEMBERS; number++) {
        uint64_t queued = 0;
        OK(natsSubscription_QueuedMsgs(members[number], &queued));
        if (queued == 0) return "a member of the queue group got nothing of 300";
        total += (int)queued;
        natsSubscription_Destroy(members[number]);
    }
    EQUAL(total, 300);
    return NULL;
}

static void answer(natsConnection *connection, natsSubscription *sub, natsMsg *request, void *closure) {
    (void)sub, (void)closure;
    natsConnection_Publish(connection, natsMsg_GetReply(request), natsMsg_GetData(request),
                           natsMsg_GetDataLength(request));
    natsMsg_Destroy(request);
}

static const char *requests(Stage *stage) {
    natsSubscription *sub = NULL;
    natsMsg *reply = NULL;
    OK(natsConnection_Subscribe(&sub, stage->near, "c_echo", answer, NULL));
    OK(natsConnection_FlushTimeout(stage->near, WAIT_MS));
    for (int number = 0; number < 100; number++) {
        OK(natsConnection_RequestString(&reply, stage->near, "c_echo", "again", WAIT_MS));
        SAYS(reply, "again");
        natsMsg_Destroy(reply);
    }
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *no_responders(Stage *stage) {
    natsMsg *reply = NULL;
    EQUAL(natsConnection_RequestString(&reply, stage->near, "c_nobody", "x", WAIT_MS), NATS_NO_RESPONDERS);
    return NULL;
}

static const char *auto_unsubscribe(Stage *stage) {
    natsSubscription *sub = NULL;
    natsMsg *got = NULL;
    OK(natsConnection_SubscribeSync(&sub, stage->near, "c_auto"));
    OK(natsSubscription_AutoUnsubscribe(sub, 2));
    for (int number = 0; number < 5; number++) OK(natsConnection_PublishString(stage->near, "c_auto", "x"));
    OK(natsConnection_FlushTimeout(stage->near, WAIT_MS));
    for (int number = 0; number < 2; number++) {
        OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
        natsMsg_Destroy(got);
    }
    EQUAL(natsSubscription_NextMsg(&got, sub, WAIT_MS), NATS_MAX_DELIVERED_MSGS);
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *limits(Stage *stage) {
    int64_t most = natsConnection_GetMaxPayload(stage->near);
    char *large = calloc(1, (size_t)most + 1);
    natsSubscription *sub = NULL;
    natsMsg *got = NULL;
    EQUAL(most, 1 << 20);
    OK(natsConnection_SubscribeSync(&sub, stage->near, "c_large"));
    OK(natsConnection_Publish(stage->near, "c_large", large, (int)most));
    OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
    EQUAL(natsMsg_GetDataLength(got), most);
    EQUAL(natsConnection_Publish(stage->near, "c_large", large, (int)most + 1), NATS_MAX_PAYLOAD);
    natsMsg_Destroy(got);
    natsSubscription_Destroy(sub);
    free(large);
    return NULL;
}

static const char *drain(Stage *stage) {
    natsSubscription *sub = NULL;
    natsMsg *got = NULL;
    OK(natsConnection_SubscribeSync(&sub, stage->near, "c_drain"));
    for (int number = 0; number < 10; number++) OK(natsConnection_PublishString(stage->near, "c_drain", "x"));
    OK(natsConnection_FlushTimeout(stage->near, WAIT_MS));
    OK(natsSubscription_Drain(sub));
    for (int number = 0; number < 10; number++) {
        OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
        natsMsg_Destroy(got);
    }
    OK(natsSubscription_WaitForDrainCompletion(sub, WAIT_MS));
    natsSubscription_Destroy(sub);
    return NULL;
}

static const Line LINES[] = {
    {"delivers", "a message with headers reaches a wildcard subscription of another connection", delivers},
    {"order", "twenty thousand messages come in order", order},
    {"queue", "a queue group shares messages, each delivered once", queue},
    {"requests", "requests are answered", requests},
    {"no_responders", "a request that nobody serves ends at once", no_responders},
    {"auto_unsubscribe", "a subscription ends after as many messages as it asked for", auto_unsubscribe},
    {"limits", "the largest payload passes and a larger one does not", limits},
    {"drain", "a subscription that drains gets what was sent", drain},
};

int main(int count, char **words) { return run(count, words, LINES, sizeof LINES / sizeof *LINES); }
