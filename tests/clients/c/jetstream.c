/* JetStream as nats.c speaks it: streams, publishing, pull, push and ordered consumers. */
#include "tap.h"

enum { MANY = 5000, NS_PER_MS = 1000000 };

static jsErrCode code; /* of the last call */

/* A stream named after the claim, with the subjects "ID.>". */
static natsStatus add_stream(Stage *stage, int64_t max_msgs) {
    char subject[128];
    const char *subjects[] = {subject};
    jsStreamConfig config;
    natsStatus status = jsStreamConfig_Init(&config);
    snprintf(subject, sizeof subject, "%s.>", stage->id);
    config.Name = stage->id;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Replicas = stage->replicas;
    config.AllowDirect = true;
    if (max_msgs > 0) config.MaxMsgs = max_msgs;
    if (status == NATS_OK) status = js_AddStream(NULL, stage->js, &config, NULL, &code);
    return status;
}

/* Messages "0", "1", ... on "ID.a", each acknowledged. */
static natsStatus fill(Stage *stage, int count) {
    char subject[128], text[16];
    natsStatus status = NATS_OK;
    snprintf(subject, sizeof subject, "%s.a", stage->id);
    for (int number = 0; number < count && status == NATS_OK; number++) {
        snprintf(text, sizeof text, "%d", number);
        status = js_Publish(NULL, stage->js, subject, text, (int)strlen(text), NULL, &code);
    }
    return status;
}

static const char *streams(Stage *stage) {
    jsStreamInfo *info = NULL;
    jsStreamConfig config;
    OK(add_stream(stage, 0));
    OK(add_stream(stage, 0)); /* the same again is no error */
    OK(fill(stage, 3));
    OK(js_GetStreamInfo(&info, stage->far_js, "streams", NULL, &code));
    EQUAL(info->State.Msgs, 3);
    EQUAL(info->State.LastSeq, 3);
    EQUAL(info->Config->Replicas, stage->replicas);
    jsStreamInfo_Destroy(info);
    OK(jsStreamConfig_Init(&config));
    config.Name = "streams";
    config.Subjects = (const char *[]){"streams.>", "more"};
    config.SubjectsLen = 2;
    config.Replicas = stage->replicas;
    config.MaxMsgs = 2;
    config.AllowDirect = true;
    OK(js_UpdateStream(&info, stage->js, &config, NULL, &code));
    EQUAL(info->State.FirstSeq, 2);
    jsStreamInfo_Destroy(info);
    OK(js_PurgeStream(stage->js, "streams", NULL, &code));
    OK(js_GetStreamInfo(&info, stage->js, "streams", NULL, &code));
    EQUAL(info->State.Msgs, 0);
    EQUAL(info->State.FirstSeq, 4);
    jsStreamInfo_Destroy(info);
    OK(js_DeleteStream(stage->far_js, "streams", NULL, &code));
    EQUAL(js_GetStreamInfo(&info, stage->js, "streams", NULL, &code), NATS_NOT_FOUND);
    EQUAL(code, JSStreamNotFoundErr);
    return NULL;
}

static const char *publishing(Stage *stage) {
    jsPubAck *ack = NULL;
    jsPubOptions options;
    OK(add_stream(stage, 0));
    OK(jsPubOptions_Init(&options));
    options.MsgId = "once";
    OK(js_Publish(&ack, stage->js, "publishing.a", "x", 1, &options, &code));
    EQUAL(ack->Sequence, 1);
    EQUAL(ack->Duplicate, false);
    jsPubAck_Destroy(ack);
    OK(js_Publish(&ack, stage->far_js, "publishing.a", "x", 1, &options, &code));
    EQUAL(ack->Sequence, 1);
    EQUAL(ack->Duplicate, true);
    jsPubAck_Destroy(ack);
    OK(jsPubOptions_Init(&options));
    options.ExpectLastSeq = 7;
    EQUAL(js_Publish(&ack, stage->js, "publishing.a", "x", 1, &options, &code), NATS_ERR);
    EQUAL(code, JSStreamWrongLastSequenceErr);
    options.ExpectLastSeq = 1;
    OK(js_Publish(NULL, stage->js, "publishing.a", "x", 1, &options, &code));
    OK(jsPubOptions_Init(&options));
    options.ExpectStream = "another";
    EQUAL(js_Publish(&ack, stage->js, "publishing.a", "x", 1, &options, &code), NATS_ERR);
    EQUAL(code, JSStreamNotMatchErr);
    EQUAL(js_Publish(&ack, stage->js, "nobodys.subject", "x", 1, NULL, &code), NATS_NO_RESPONDERS);
    return NULL;
}

static const char *asynchronous(Stage *stage) {
    jsStreamInfo *info = NULL;
    jsPubOptions options;
    natsMsgList pending;
    OK(add_stream(stage, 0));
    for (int number = 0; number < MANY; number++)
        OK(js_PublishAsync(stage->js, "asynchronous.a", &number, sizeof number, NULL));
    OK(jsPubOptions_Init(&options));
    options.MaxWait = WAIT_MS;
    OK(js_PublishAsyncComplete(stage->js, &options));
    EQUAL(js_PublishAsyncGetPendingList(&pending, stage->js), NATS_NOT_FOUND);
    OK(js_GetStreamInfo(&info, stage->js, "asynchronous", NULL, &code));
    EQUAL(info->State.Msgs, MANY);
    jsStreamInfo_Destroy(info);
    return NULL;
}

static const char *reading(Stage *stage) {
    natsMsg *got = NULL;
    jsDirectGetMsgOptions direct;
    OK(add_stream(stage, 0));
    OK(fill(stage, 3));
    OK(js_Publish(NULL, stage->js, "reading.b", "b", 1, NULL, &code));
    OK(js_GetMsg(&got, stage->far_js, "reading", 2, NULL, &code));
    SAYS(got, "1");
    EQUAL(natsMsg_GetSequence(got), 2);
    natsMsg_Destroy(got);
    OK(js_GetLastMsg(&got, stage->js, "reading", "reading.a", NULL, &code));
    SAYS(got, "2");
    natsMsg_Destroy(got);
    EQUAL(js_GetMsg(&got, stage->js, "reading", 9, NULL, &code), NATS_NOT_FOUND);
    EQUAL(code, JSNoMessageFoundErr);
    OK(jsDirectGetMsgOptions_Init(&direct));
    direct.Sequence = 1;
    natsStatus found = NATS_NOT_FOUND;
    for (int64_t end_ms = nats_Now() + WAIT_MS; found == NATS_NOT_FOUND && nats_Now() < end_ms;)
        found = js_DirectGetMsg(&got, stage->js, "reading", NULL, &direct); /* a replica may be a moment behind */
    OK(found);
    SAYS(got, "0");
    natsMsg_Destroy(got);
    OK(js_EraseMsg(stage->js, "reading", 2, NULL, &code));
    EQUAL(js_GetMsg(&got, stage->js, "reading", 2, NULL, &code), NATS_NOT_FOUND);
    return NULL;
}

static const char *pulling(Stage *stage) {
    natsSubscription *sub = NULL;
    natsMsgList list;
    jsConsumerInfo *info = NULL;
    jsMsgMetaData *meta = NULL;
    OK(add_stream(stage, 0));
    OK(fill(stage, 20));
    OK(js_PullSubscribe(&sub, stage->far_js, "pulling.>", "worker", NULL, NULL, &code));
    OK(natsSubscription_Fetch(&list, sub, 15, WAIT_MS, &code));
    EQUAL(list.Count, 15);
    for (int number = 0; number < list.Count; number++) {
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        SAYS(list.Msgs[number], text);
        OK(natsMsg_AckSync(list.Msgs[number], NULL, &code));
    }
    natsMsgList_Destroy(&list);
    OK(natsSubscription_Fetch(&list, sub, 1, WAIT_MS, &code));
    OK(natsMsg_GetMetaData(&meta, list.Msgs[0]));
    EQUAL(meta->Sequence.Stream, 16);
    EQUAL(meta->NumPending, 4);
    jsMsgMetaData_Destroy(meta);
    OK(natsMsg_Nak(list.Msgs[0], NULL));
    natsMsgList_Destroy(&list);
    for (int left = 5; left > 0; left--) { /* what was refused comes again, when is the server's choice */
        OK(natsSubscription_Fetch(&list, sub, 1, WAIT_MS, &code));
        OK(natsMsg_GetMetaData(&meta, list.Msgs[0]));
        EQUAL(meta->NumDelivered, meta->Sequence.Stream == 16 ? 2 : 1);
        if (meta->Sequence.Stream == 17)
            OK(natsMsg_Term(list.Msgs[0], NULL));
        else
            OK(natsMsg_AckSync(list.Msgs[0], NULL, &code));
        jsMsgMetaData_Destroy(meta);
        natsMsgList_Destroy(&list);
    }
    OK(js_GetConsumerInfo(&info, stage->js, "pulling", "worker", NULL, &code));
    EQUAL(info->AckFloor.Stream, 20);
    EQUAL(info->NumPending, 0);
    EQUAL(info->NumAckPending, 0);
    jsConsumerInfo_Destroy(info);
    EQUAL(natsSubscription_Fetch(&list, sub, 1, 100, &code), NATS_TIMEOUT);
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *pushing(Stage *stage) {
    natsSubscription *sub = NULL;
    jsSubOptions options;
    natsMsg *got = NULL;
    OK(add_stream(stage, 0));
    OK(jsSubOptions_Init(&options));
    options.Config.Durable = "pushed";
    options.Config.AckWait = 2000LL * NS_PER_MS; /* until the first is acknowledged a busy machine takes a while */
    options.ManualAck = true;
    OK(js_SubscribeSync(&sub, stage->js, "pushing.>", NULL, &options, &code));
    OK(fill(stage, 2));
    OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
    SAYS(got, "0");
    OK(natsMsg_AckSync(got, NULL, &code));
    natsMsg_Destroy(got);
    for (int delivery = 1; delivery <= 2; delivery++) { /* not acknowledged: it comes again */
        jsMsgMetaData *meta = NULL;
        OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
        SAYS(got, "1");
        OK(natsMsg_GetMetaData(&meta, got));
        EQUAL(meta->NumDelivered, delivery);
        jsMsgMetaData_Destroy(meta);
        if (delivery == 2) OK(natsMsg_AckSync(got, NULL, &code));
        natsMsg_Destroy(got);
    }
    OK(natsSubscription_Unsubscribe(sub));
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *ordered(Stage *stage) {
    natsSubscription *sub = NULL;
    jsSubOptions options;
    OK(add_stream(stage, 0));
    for (int number = 0; number < MANY; number++)
        OK(js_PublishAsync(stage->js, "ordered.a", &number, sizeof number, NULL));
    OK(js_PublishAsyncComplete(stage->js, NULL));
    OK(jsSubOptions_Init(&options));
    options.Ordered = true;
    OK(js_SubscribeSync(&sub, stage->far_js, "ordered.>", NULL, &options, &code));
    for (int number = 0; number < MANY; number++) {
        natsMsg *got = NULL;
        int found;
        OK(natsSubscription_NextMsg(&got, sub, WAIT_MS));
        memcpy(&found, natsMsg_GetData(got), sizeof found);
        EQUAL(found, number);
        natsMsg_Destroy(got);
    }
    natsSubscription_Destroy(sub);
    return NULL;
}

static const char *listing(Stage *stage) {
    jsStreamNamesList *streams = NULL;
    jsConsumerNamesList *consumers = NULL;
    jsConsumerConfig config;
    bool found = false;
    OK(add_stream(stage, 0));
    OK(jsConsumerConfig_Init(&config));
    config.Durable = "one";
    config.AckPolicy = js_AckExplicit;
    OK(js_AddConsumer(NULL, stage->js, "listing", &config, NULL, &code));
    OK(js_StreamNames(&streams, stage->far_js, NULL, &code));
    for (int number = 0; number < streams->Count; number++) found |= strcmp(streams->List[number], "listing") == 0;
    EQUAL(found, true);
    jsStreamNamesList_Destroy(streams);
    OK(js_ConsumerNames(&consumers, stage->far_js, "listing", NULL, &code));
    EQUAL(consumers->Count, 1);
    EQUAL(strcmp(consumers->List[0], "one"), 0);
    jsConsumerNamesList_Destroy(consumers);
    OK(js_DeleteConsumer(stage->js, "listing", "one", NULL, &code));
    EQUAL(js_GetConsumerInfo(NULL, stage->js, "listing", "one", NULL, &code), NATS_INVALID_ARG);
    return NULL;
}

static const char *limits(Stage *stage) {
    jsStreamInfo *info = NULL;
    OK(add_stream(stage, 10));
    OK(fill(stage, 25));
    OK(js_GetStreamInfo(&info, stage->js, "limits", NULL, &code));
    EQUAL(info->State.Msgs, 10);
    EQUAL(info->State.FirstSeq, 16);
    jsStreamInfo_Destroy(info);
    return NULL;
}

static const Line LINES[] = {
    {"streams", "streams are created, described, changed, purged and deleted", streams},
    {"publishing", "publishes are acknowledged, de-duplicated and refused with their error codes", publishing},
    {"asynchronous", "five thousand asynchronous publishes are all acknowledged", asynchronous},
    {"reading", "messages are read by sequence and subject, and erased", reading},
    {"pulling", "a pull consumer fetches, acknowledges, refuses and terminates", pulling},
    {"pushing", "a push consumer gets again what it did not acknowledge", pushing},
    {"ordered", "an ordered consumer gets everything in order", ordered},
    {"listing", "streams and consumers are listed", listing},
    {"limits", "the oldest messages make room", limits},
};

int main(int count, char **words) { return run(count, words, LINES, sizeof LINES / sizeof *LINES); }
