import { AckPolicy, DeliverPolicy, DiscardPolicy, jetstream, jetstreamManager, RetentionPolicy, StorageType } from "@nats-io/jetstream";
import { check, equal, rejects, replicas, run } from "./tap.mjs";

const code = (expected) => (error) => error.code === expected || error.api_error?.err_code === expected || error.apiError?.().err_code === expected;

async function stream(connection, name, options = {}) {
  const manager = await jetstreamManager(connection, { timeout: 60000 });
  const info = await manager.streams.add({ name, subjects: [`${name}.>`], num_replicas: replicas, ...options });
  return { manager, client: jetstream(connection, { timeout: 60000 }), info };
}

// Direct gets may be answered by a replica that is a moment behind: read until it has these messages and no others.
async function becomes(expected, read) {
  let seen;
  do {
    seen = [];
    try {
      for await (const message of await read()) seen.push(message.seq);
    } catch (error) {
      if (!String(error.message).includes("not found")) throw error;
    }
  } while (seen.length < expected.length || seen[seen.length - 1] < expected[expected.length - 1]);
  equal(seen, expected);
}

async function fill(client, name, count) {
  for (let number = 0; number < count; number++) await client.publish(`${name}.a`, String(number));
}

await run({
  "the account is described": async ({ far }) => {
    const account = await (await jetstreamManager(far)).getAccountInfo();
    check(account.limits.max_streams === -1, "limits");
    check(account.api.level >= 1, "api level");
  },
  "publishes are acknowledged in sequence": async ({ far, id }) => {
    const { client } = await stream(far, id);
    for (let number = 1; number <= 10; number++) {
      const ack = await client.publish(`${id}.a`, "x");
      equal([ack.stream, ack.seq, ack.duplicate], [id, number, false]);
    }
  },
  "a message id is stored once": async ({ near, id }) => {
    const { client } = await stream(near, id);
    await client.publish(`${id}.a`, "x", { msgID: "m" });
    const again = await client.publish(`${id}.a`, "x", { msgID: "m" });
    equal([again.seq, again.duplicate], [1, true]);
  },
  "wrong expectations are refused": async ({ near, id }) => {
    const { client } = await stream(near, id);
    await rejects(client.publish(`${id}.a`, "x", { expect: { lastSequence: 5 } }), code(10071), "last sequence");
    await rejects(client.publish(`${id}.a`, "x", { expect: { streamName: "OTHER" } }), code(10060), "stream");
    await rejects(client.publish(`${id}.a`, "x", { expect: { lastMsgID: "z" } }), code(10070), "message id");
  },
  "a pull consumer fetches and acks": async ({ far, id }) => {
    const { manager, client } = await stream(far, id);
    await fill(client, id, 10);
    await manager.consumers.add(id, { durable_name: "d", ack_policy: AckPolicy.Explicit });
    const consumer = await client.consumers.get(id, "d");
    const seen = [];
    for await (const message of await consumer.fetch({ max_messages: 10, expires: 60000 })) {
      seen.push(message.seq);
      check(await message.ackAck(), "double ack");
    }
    equal(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    const info = await consumer.info();
    equal([info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq], [0, 0, 10]);
  },
  "fetch on an empty stream ends by itself": async ({ near, id }) => {
    const { manager, client } = await stream(near, id);
    await manager.consumers.add(id, { durable_name: "d", ack_policy: AckPolicy.Explicit });
    const consumer = await client.consumers.get(id, "d");
    let count = 0;
    for await (const _ of await consumer.fetch({ max_messages: 5, expires: 1000 })) count += 1;
    equal(count, 0);
    equal(await consumer.next({ expires: 1000 }), null);
  },
  "consume is woken by new messages": async ({ near, far, id }) => {
    const { manager, client } = await stream(near, id);
    await manager.consumers.add(id, { durable_name: "d", ack_policy: AckPolicy.Explicit });
    const messages = await (await jetstream(far).consumers.get(id, "d")).consume({ max_messages: 20 });
    const publishing = fill(client, id, 60);
    let next = 0;
    for await (const message of messages) {
      equal(message.string(), String(next));
      message.ack();
      next += 1;
      if (next === 60) break;
    }
    await publishing;
  },
  "a nak brings the message again": async ({ near, id }) => {
    const { manager, client } = await stream(near, id);
    await fill(client, id, 1);
    await manager.consumers.add(id, { durable_name: "d", ack_policy: AckPolicy.Explicit });
    const consumer = await client.consumers.get(id, "d");
    const first = await consumer.next({ expires: 60000 });
    first.nak();
    const again = await consumer.next({ expires: 60000 });
    equal([again.seq, again.info.deliveryCount, again.redelivered], [1, 2, true]);
    again.term("enough");
    equal(await consumer.next({ expires: 1000 }), null);
  },
  "an ordered consumer sees everything in order": async ({ near, far, id }) => {
    const { client } = await stream(near, id);
    await fill(client, id, 100);
    const consumer = await jetstream(far).consumers.get(id);
    const seen = [];
    for await (const message of await consumer.consume()) {
      seen.push(Number(message.string()));
      if (seen.length === 100) break;
    }
    equal(seen, [...Array(100).keys()]);
  },
  "consumers start where they are told": async ({ near, id }) => {
    const { manager, client } = await stream(near, id);
    await fill(client, id, 5);
    const wanted = {
      last: [{ deliver_policy: DeliverPolicy.Last }, 5],
      seq: [{ deliver_policy: DeliverPolicy.StartSequence, opt_start_seq: 3 }, 3],
      all: [{ deliver_policy: DeliverPolicy.All }, 1],
    };
    for (const [name, [config, expected]] of Object.entries(wanted)) {
      await manager.consumers.add(id, { durable_name: name, ack_policy: AckPolicy.Explicit, ...config });
      const message = await (await client.consumers.get(id, name)).next({ expires: 60000 });
      equal(message.seq, expected, name);
    }
  },
  "messages are read directly, one and many": async ({ far, id }) => {
    const { manager, client } = await stream(far, id, { allow_direct: true });
    await fill(client, id, 10);
    let one = null;
    while (one === null) one = await manager.direct.getMessage(id, { seq: 10 });
    equal([one.seq, one.string()], [10, "9"]);
    await becomes([3, 4, 5, 6], () => manager.direct.getBatch(id, { seq: 3, batch: 4 }));
    await becomes([10], () => manager.direct.getLastMessagesFor(id, { multi_last: [`${id}.>`] }));
  },
  "streams are listed, updated, purged and deleted": async ({ far, id }) => {
    const { manager, client } = await stream(far, id);
    await fill(client, id, 5);
    const names = [];
    for await (const name of manager.streams.names(`${id}.a`)) names.push(name);
    equal(names, [id]);
    const updated = await manager.streams.update(id, { max_msgs: 3 });
    equal([updated.config.max_msgs, (await manager.streams.info(id)).state.messages], [3, 3]);
    equal((await manager.streams.purge(id, { keep: 1 })).purged, 2);
    check(await manager.streams.delete(id), "delete");
    await rejects(manager.streams.info(id), code(10059), "info");
  },
  "a full stream that discards new refuses": async ({ near, id }) => {
    const { client } = await stream(near, id, { max_msgs: 1, discard: DiscardPolicy.New, storage: StorageType.Memory });
    await fill(client, id, 1);
    await rejects(client.publish(`${id}.a`), code(10077), "publish");
  },
  "a workqueue forgets what was acked": async ({ near, id }) => {
    const { manager, client } = await stream(near, id, { retention: RetentionPolicy.Workqueue });
    await fill(client, id, 3);
    await manager.consumers.add(id, { durable_name: "d", ack_policy: AckPolicy.Explicit });
    const consumer = await client.consumers.get(id, "d");
    for await (const message of await consumer.fetch({ max_messages: 3, expires: 60000 })) await message.ackAck();
    while ((await manager.streams.info(id)).state.messages);
  },
});
