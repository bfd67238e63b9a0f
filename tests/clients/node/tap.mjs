// A test is a name and an async function; results are printed as TAP, which test_nats_js.py reads.
import { wsconnect } from "@nats-io/nats-core";
import { connect as tcpconnect } from "@nats-io/transport-node";

const urls = process.env.NATS_URLS.split(",");
const connect = urls[0].startsWith("ws") ? wsconnect : tcpconnect;
export const replicas = urls.length;

export function check(condition, text) {
  if (!condition) throw new Error(text);
}

export function equal(actual, expected, text = "") {
  const [a, b] = [JSON.stringify(actual), JSON.stringify(expected)];
  check(a === b, `${text} expected ${b}, got ${a}`);
}

export async function rejects(promise, matches, text = "") {
  try {
    await promise;
  } catch (error) {
    check(matches(error), `${text}: ${error.name}: ${error.message}`);
    return error;
  }
  throw new Error(`${text}: no error`);
}

// Every test gets connections to the first and to the last node, and a name of its own.
export async function run(tests) {
  console.log(`1..${Object.keys(tests).length}`);
  let number = 0;
  for (const [name, test] of Object.entries(tests)) {
    number += 1;
    const near = await connect({ servers: urls[0] });
    const far = await connect({ servers: urls[urls.length - 1] });
    const id = `J${number}${Math.random().toString(36).slice(2, 8)}`;
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("took more than 90 s")), 90000); });
    try {
      await Promise.race([test({ near, far, id }), late]);
      console.log(`ok ${number} - ${name}`);
    } catch (error) {
      console.log(`not ok ${number} - ${name} # ${String(error.stack).split("\n").slice(0, 4).join(" | ")}`);
    }
    clearTimeout(timer);
    await Promise.all([near.close(), far.close()]);
  }
}
