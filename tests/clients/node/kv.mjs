import { Kvm } from "@nats-io/kv";
import { check, equal, rejects, replicas, run } from "./tap.mjs";

// Direct gets may be answered by a replica that is a moment behind: read until the revision is there.
async function settled(bucket, key, revision) {
  for (;;) {
    const entry = await bucket.get(key);
    if (entry?.revision >= revision) return entry;
  }
}

await run({
  "values are put, read, updated and deleted": async ({ far, id }) => {
    const bucket = await new Kvm(far).create(id, { replicas, history: 5 });
    equal(await bucket.put("k", "1"), 1);
    equal((await settled(bucket, "k", 1)).string(), "1");
    equal(await bucket.update("k", "2", 1), 2);
    await rejects(bucket.update("k", "3", 1), (error) => error.message.includes("wrong last sequence"), "update");
    await rejects(bucket.create("k", "4"), (error) => error.message.includes("wrong last sequence"), "create");
    await bucket.delete("k");
    equal((await settled(bucket, "k", 3)).operation, "DEL");
  },
  "a watch sees what is there and what comes": async ({ near, far, id }) => {
    const bucket = await new Kvm(near).create(id, { replicas });
    await bucket.put("a", "1");
    const seen = [];
    const watch = await (await new Kvm(far).open(id)).watch();
    await bucket.put("b", "2");
    for await (const entry of watch) {
      seen.push(entry.key);
      if (seen.length === 2) break;
    }
    equal(seen, ["a", "b"]);
  },
  "keys, history and status": async ({ near, id }) => {
    const bucket = await new Kvm(near).create(id, { replicas, history: 3 });
    for (let number = 0; number < 5; number++) await bucket.put("k", String(number));
    await bucket.put("l", "x");
    const keys = [];
    for await (const key of await bucket.keys()) keys.push(key);
    equal(keys.sort(), ["k", "l"]);
    const values = [];
    for await (const entry of await bucket.history({ key: "k" })) values.push(entry.string());
    equal(values, ["2", "3", "4"]);
    const status = await bucket.status();
    equal([status.values, status.history, status.replicas], [4, 3, replicas]);
    await bucket.purge("k");
    check(await bucket.destroy(), "destroy");
  },
});
