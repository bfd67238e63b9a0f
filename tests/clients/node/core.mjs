import { headers } from "@nats-io/transport-node";
import { check, equal, rejects, run } from "./tap.mjs";

const decoder = new TextDecoder();
const text = (message) => decoder.decode(message.data);

// A request that meets no responder yet is asked again: interest travels to the other nodes in its own time.
async function ask(connection, subject, payload) {
  for (;;) {
    try {
      return await connection.request(subject, payload, { timeout: 60000 });
    } catch (error) {
      if (!String(error.message).includes("no responders")) throw error;
      await connection.flush();
    }
  }
}

await run({
  "a request is answered across nodes": async ({ near, far, id }) => {
    far.subscribe(id, { callback: (_, message) => message.respond(message.data) });
    await far.flush();
    equal(text(await ask(near, id, "hello")), "hello");
  },
  "a request without responder fails at once": async ({ near, id }) => {
    await rejects(near.request(id, "", { timeout: 60000 }), (error) => error.message.includes("no responders"), "request");
  },
  "headers travel with the message": async ({ near, id }) => {
    const subscription = near.subscribe(id, { max: 1 });
    const hdrs = headers();
    hdrs.append("a", "1");
    hdrs.append("a", "2");
    hdrs.set("b", "");
    near.publish(id, "x", { headers: hdrs });
    for await (const message of subscription) {
      equal(message.headers.values("a"), ["1", "2"]);
      check(message.headers.has("b"), "b is missing");
    }
  },
  "wildcards and queue groups": async ({ near, id }) => {
    const counts = [0, 0, 0];
    near.subscribe(`${id}.*`, { callback: () => { counts[0] += 1; } });
    near.subscribe(`${id}.>`, { queue: "q", callback: () => { counts[1] += 1; } });
    near.subscribe(`${id}.>`, { queue: "q", callback: () => { counts[2] += 1; } });
    for (let number = 0; number < 50; number++) near.publish(`${id}.${number}`);
    await near.flush();
    equal(counts[0], 50);
    equal(counts[1] + counts[2], 50);
  },
  "drain delivers what was received before": async ({ near, id }) => {
    let count = 0;
    const subscription = near.subscribe(id, { callback: () => { count += 1; } });
    for (let number = 0; number < 200; number++) near.publish(id);
    await subscription.drain();
    equal(count, 200);
  },
  "the round trip time is measured": async ({ far }) => {
    check((await far.rtt()) >= 0, "rtt");
    equal(far.info.max_payload, 1024 * 1024);
    check(far.info.headers, "headers");
  },
});
