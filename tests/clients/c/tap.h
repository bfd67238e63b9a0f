/* TAP for the scripts of this folder: each claim is a function that returns NULL, or what is wrong.

   A script's argument is the servers' URLs, the first of them the near one and the last the far one, and how many
   replicas streams have. Claims name their streams and subjects after themselves, so that none sees another's. */
#ifndef JETRAFT_TESTS_TAP_H
#define JETRAFT_TESTS_TAP_H

#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000 /* an answer that takes longer is missing, however slow the machine */

typedef struct {
    natsConnection *near, *far; /* with three servers: to two of them */
    jsCtx *js, *far_js;
    const char *id; /* of this claim */
    int replicas;
} Stage;

typedef const char *(*Claim)(Stage *);
typedef struct {
    const char *id, *text;
    Claim claim;
} Line;

static char complaint[512];

/* Return from the claim unless the call went well. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        natsStatus status_ = (call);                                                                                   \
        if (status_ != NATS_OK) {                                                                                      \
            snprintf(complaint, sizeof complaint, "line %d: %s: %s: %s", __LINE__, #call, natsStatus_GetText(status_), \
                     nats_GetLastError(NULL) ? nats_GetLastError(NULL) : "");                                          \
            return complaint;                                                                                          \
        }                                                                                                              \
    } while (0)

/* Return from the claim unless the two integers are equal. */
#define EQUAL(found, wanted)                                                                                           \
    do {                                                                                                               \
        long long found_ = (long long)(found), wanted_ = (long long)(wanted);                                          \
        if (found_ != wanted_) {                                                                                       \
            snprintf(complaint, sizeof complaint, "line %d: %s is %lld, not %lld", __LINE__, #found, found_, wanted_); \
            return complaint;                                                                                          \
        }                                                                                                              \
    } while (0)

/* Return from the claim unless the message's data is this text. */
#define SAYS(message, text)                                                                                            \
    do {                                                                                                               \
        if (natsMsg_GetDataLength(message) != (int)strlen(text) ||                                                     \
            memcmp(natsMsg_GetData(message), text, strlen(text)) != 0) {                                               \
            snprintf(complaint, sizeof complaint, "line %d: '%.*s' instead of '%s'", __LINE__,                         \
                     natsMsg_GetDataLength(message), natsMsg_GetData(message), text);                                  \
            return complaint;                                                                                          \
        }                                                                                                              \
    } while (0)

static natsStatus connect_to(natsConnection **connection, const char *url) {
    natsOptions *options = NULL;
    natsStatus status = natsOptions_Create(&options);
    if (status == NATS_OK) status = natsOptions_SetURL(options, url);
    if (status == NATS_OK) status = natsOptions_SetIgnoreDiscoveredServers(options, true);
    if (status == NATS_OK) status = natsConnection_Connect(connection, options);
    natsOptions_Destroy(options);
    return status;
}

static int run(int count, char **words, const Line *lines, int line_count) {
    Stage stage = {0};
    if (count < 3) {
        fprintf(stderr, "usage: %s REPLICAS URL...\n", words[0]);
        return 2;
    }
    stage.replicas = atoi(words[1]);
    jsOptions options;
    natsStatus status = jsOptions_Init(&options);
    options.Wait = WAIT_MS;
    options.PublishAsync.StallWait = WAIT_MS;
    if (status == NATS_OK) status = connect_to(&stage.near, words[2]);
    if (status == NATS_OK) status = connect_to(&stage.far, words[count - 1]);
    if (status == NATS_OK) status = natsConnection_JetStream(&stage.js, stage.near, &options);
    if (status == NATS_OK) status = natsConnection_JetStream(&stage.far_js, stage.far, &options);
    if (status != NATS_OK) {
        fprintf(stderr, "connecting: %s\n", natsStatus_GetText(status));
        return 2;
    }
    int failed = 0;
    printf("1..%d\n", line_count);
    for (int number = 0; number < line_count; number++) {
        stage.id = lines[number].id;
        const char *wrong = lines[number].claim(&stage);
        failed += wrong != NULL;
        printf("%sok %d - %s%s%s\n", wrong ? "not " : "", number + 1, lines[number].text, wrong ? ": " : "",
               wrong ? wrong : "");
        fflush(stdout);
    }
    jsCtx_Destroy(stage.js);
    jsCtx_Destroy(stage.far_js);
    natsConnection_Destroy(stage.near);
    natsConnection_Destroy(stage.far);
    nats_Close();
    return failed != 0;
}

#endif
