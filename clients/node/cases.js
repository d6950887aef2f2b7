// What the cases of both libraries share: where the gateway is, and one line for each outcome.
import { isDeepStrictEqual, inspect } from "node:util";

export const host = process.env.CLIENTS_HOST;
export const port = Number(process.env.CLIENTS_PORT);
export const database = Number(process.env.CLIENTS_DATABASE);
// Whether all keys of the database are of one partition.
export const together = process.env.CLIENTS_TOGETHER === "1";
// As long as no datagram takes.
export const long = "five ".repeat(1000);

const CASE_MS_MAX = 30_000;

class Refused extends Error {}

export function equal(is, shouldBe) {
  if (!isDeepStrictEqual(is, shouldBe)) {
    throw new Error(`${shorten(is)}, should be ${shorten(shouldBe)}`);
  }
}

function shorten(value) {
  return inspect(value, { breakLength: Infinity }).slice(0, 200);
}

// Calls what is refused unless all keys are of one partition.
export async function needsOnePartition(call) {
  if (together) {
    return await call();
  }
  let value;
  try {
    value = await call();
  } catch (error) {
    if (error.message.includes("CROSSSLOT")) {
      throw new Refused(error.message);
    }
    throw error;
  }
  throw new Error(`not refused: ${shorten(value)}`);
}

// Runs all cases, and prints for each "outcome, library, case, detail", with tabs between.
export async function run(library, cases) {
  for (const [name, call] of Object.entries(cases)) {
    let outcome = "ok";
    let detail = "";
    try {
      await inTime(call());
    } catch (error) {
      outcome = error instanceof Refused ? "refused" : "failed";
      detail = `${error.message}`.replace(/\s+/g, " ");
    }
    console.log([outcome, library, name, detail].join("\t"));
  }
}

async function inTime(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`takes longer than ${CASE_MS_MAX} ms`)), CASE_MS_MAX);
  });
  try {
    await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
