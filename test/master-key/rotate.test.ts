import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { noteKnownKeys, readMasterKey } from "../../db/queries/master-key.ts";
import { newId } from "../../src/lib/ids.ts";
import { masterKeyId } from "../../src/lib/keyring.ts";
import { cliJson, runCliHere, runCliProcess, spawnCli } from "../cli/cli-runs.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import {
  addSealedResults,
  addSealedWebhooks,
  base64,
  newKey,
  openedBy,
  openSealedDatabase,
  type SealedDatabase,
} from "./sealed-database.ts";

const TIMEOUT_MS = 60_000;
const OLD = newKey();
const NEW = newKey();
const THIRD = newKey();
/** As callers choose them. */
const RESULT_NAMES = ["", "a", "é\u{1F511}", "'; DROP TABLE webhooks; --", "z".repeat(255)].map(
  (name, n) => `${name}${n}`,
);
interface Printed {
  readonly state: string;
  readonly resealed: number;
  readonly unreadable: number;
}

let database: SealedDatabase;
let sql: Database;
let settings: Record<string, string>;
beforeEach(async () => {
  database = await openSealedDatabase();
  sql = database.sql;
  settings = {
    DATABASE_URL: database.url,
    GATEWAY_MASTER_KEY: base64(NEW),
    GATEWAY_MASTER_KEY_PREVIOUS: base64(OLD),
  };
});
afterEach(() => database.drop());

/** The state of the table's row, by the keys that are meant. */
async function standing(): Promise<{ seals: string; before: string | null }> {
  const row = (await readMasterKey(sql))!;
  const names = new Map(
    Object.entries({ OLD, NEW, THIRD }).map(([name, key]) => [masterKeyId(key, row.salt), name]),
  );
  return {
    seals: names.get(row.keyId) ?? "unknown",
    before: row.previousKeyId && (names.get(row.previousKeyId) ?? "unknown"),
  };
}

/** The one line of a rotation that was refused; no key is in it. */
async function refusal(of = settings): Promise<string> {
  const { exitCode, stdout, stderr } = await runCliHere(of, "master-key", "rotate");
  expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: "" });
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  for (const value of [OLD, NEW, THIRD].map(base64)) expect(stderr).not.toContain(value);
  return stderr.trimEnd();
}

async function joined(...keys: readonly Uint8Array[]): Promise<string> {
  const instance = { id: newId("ins"), epoch: BigInt(Date.now()) };
  await insertInstance(sql, instance);
  const { salt } = (await readMasterKey(sql))!;
  const ids = keys.map((key) => masterKeyId(key, salt));
  if (ids.length > 0) expect(await noteKnownKeys(sql, instance, ids)).toBe(true);
  return instance.id;
}

describe("a rotation", () => {
  test(
    "seals anew every value of every kind, in more than one batch, and a second one finds nothing to do",
    async () => {
      const hooks = await addSealedWebhooks(sql, OLD, 250);
      await addSealedResults(sql, OLD, RESULT_NAMES);
      await addSealedResults(
        sql,
        OLD,
        Array.from({ length: 40 }, (_, n) => `call ${n}`),
      );
      const values = hooks.length + Math.ceil(hooks.length / 3) + RESULT_NAMES.length + 40;
      expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [values, 0], lost: 0 });
      const versions = await sql`SELECT id, version FROM webhooks ORDER BY id`;

      const run = await runCliProcess(settings, "master-key", "rotate", "--json");
      expect(run.exitCode).toBe(0);
      expect(JSON.parse(run.stdout)).toEqual({ state: "begun", resealed: values, unreadable: 0 });
      for (const key of [OLD, NEW]) expect(run.stdout + run.stderr).not.toContain(base64(key));
      expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, values], lost: 0 });
      expect(await standing()).toEqual({ seals: "NEW", before: null });
      // The secrets are what they were.
      const keyring = await testKeyring(sql, NEW);
      const [row] = await sql<
        { secret: Uint8Array; previous_secret: Uint8Array }[]
      >`SELECT secret, previous_secret FROM webhooks WHERE id = ${hooks[0]!}`;
      expect(Buffer.from(keyring.open(row!.secret)).toString()).toBe(`secret of ${hooks[0]}`);
      expect(Buffer.from(keyring.open(row!.previous_secret)).toString()).toBe(`before ${hooks[0]}`);
      expect(await sql`SELECT id, version FROM webhooks ORDER BY id`).toEqual(versions);

      const again = await cliJson<Printed>(settings, "master-key", "rotate");
      expect(again).toEqual({ state: "done", resealed: 0, unreadable: 0 });
    },
    TIMEOUT_MS,
  );

  test("of a database with nothing sealed is a change of the constant", async () => {
    await testKeyring(sql, OLD);
    const { exitCode, stdout } = await runCliHere(settings, "master-key", "rotate");
    expect(exitCode).toBe(0);
    expect(stdout).toContain("0 sealed values were sealed anew");
    expect(await standing()).toEqual({ seals: "NEW", before: null });
  });

  test("leaves and counts what neither key opens", async () => {
    await testKeyring(sql, OLD);
    await addSealedWebhooks(sql, OLD, 2);
    await addSealedResults(sql, THIRD, ["lost"]);
    const { exitCode, stdout } = await runCliHere(settings, "master-key", "rotate", "--json");
    expect(exitCode).toBe(0);
    expect(JSON.parse(stdout)).toEqual({ state: "begun", resealed: 3, unreadable: 1 });
    expect(await openedBy(sql, OLD, NEW, THIRD)).toEqual({ opened: [0, 3, 1], lost: 0 });
  });

  test("and back again is possible, and so is a third key", async () => {
    await addSealedWebhooks(sql, OLD, 5);
    for (const [main, previous] of [
      [NEW, OLD],
      [OLD, NEW],
      [THIRD, OLD],
    ] as const) {
      const of = {
        ...settings,
        GATEWAY_MASTER_KEY: base64(main),
        GATEWAY_MASTER_KEY_PREVIOUS: base64(previous),
      };
      expect((await runCliHere(of, "master-key", "rotate")).exitCode).toBe(0);
    }
    expect(await openedBy(sql, THIRD)).toEqual({ opened: [7], lost: 0 });
  });
});

describe("a rotation is refused in one line, and nothing is changed,", () => {
  const cases: Record<string, Record<string, string>> = {
    "GATEWAY_MASTER_KEY_PREVIOUS is not set": { GATEWAY_MASTER_KEY_PREVIOUS: "" },
    "GATEWAY_MASTER_KEY_PREVIOUS is ***, but must be another key than GATEWAY_MASTER_KEY": {
      GATEWAY_MASTER_KEY_PREVIOUS: base64(NEW),
    },
    "GATEWAY_MASTER_KEY is ***, but must be 32 bytes in base64": {
      GATEWAY_MASTER_KEY: base64(NEW.subarray(1)),
    },
    "GATEWAY_MASTER_KEY_PREVIOUS is ***, but must be 32 bytes in base64": {
      GATEWAY_MASTER_KEY_PREVIOUS: base64(Buffer.concat([OLD, OLD])),
    },
    "GATEWAY_MASTER_KEY is ***, but must be 32 bytes": { GATEWAY_MASTER_KEY: OLD.toString("hex") },
    "GATEWAY_MASTER_KEY_PREVIOUS is ***": { GATEWAY_MASTER_KEY_PREVIOUS: `${base64(OLD)}\n` },
    "GATEWAY_MASTER_KEY is not set": { GATEWAY_MASTER_KEY: "" },
    "GATEWAY_MASTER_KEY is not the master key that this database is sealed with": {
      GATEWAY_MASTER_KEY_PREVIOUS: base64(THIRD),
    },
  };
  for (const [line, wrong] of Object.entries(cases)) {
    test(`${line}: ${Object.keys(wrong)[0]}`, async () => {
      await testKeyring(sql, OLD);
      await addSealedWebhooks(sql, OLD, 2);
      expect(await refusal({ ...settings, ...wrong })).toStartWith(line);
      expect(await standing()).toEqual({ seals: "OLD", before: null });
      expect(await openedBy(sql, OLD)).toEqual({ opened: [3], lost: 0 });
    });
  }

  test(
    "while an instance runs that does not know the new key, or is of a version that tells none",
    async () => {
      await testKeyring(sql, OLD);
      await addSealedWebhooks(sql, OLD, 2);
      const unknowing = [await joined(OLD), await joined()];
      await joined(OLD, NEW);
      const beating = setInterval(() => {
        void sql`UPDATE instances SET heartbeat_at = clock_timestamp() WHERE alive`.catch(() => {});
      }, 250);
      try {
        const line = await refusal();
        for (const id of unknowing) expect(line).toContain(id);
        expect(line).toContain("restart each with both keys");
      } finally {
        clearInterval(beating);
      }
      expect(await standing()).toEqual({ seals: "OLD", before: null });
      expect(await openedBy(sql, OLD)).toEqual({ opened: [3], lost: 0 });
      const rows = await sql`SELECT 1 FROM instances WHERE alive`;
      expect(rows.length).toBe(3);
    },
    TIMEOUT_MS,
  );
});

test(
  "a silent instance that does not know the new key is declared dead; one that knows it is left alone",
  async () => {
    await testKeyring(sql, OLD);
    const unknowing = await joined(OLD);
    const knowing = await joined(NEW, OLD);
    await sql`UPDATE instances SET heartbeat_at = clock_timestamp() - interval '1 minute'`;
    expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
    const rows = await sql<{ id: string; alive: boolean }[]>`SELECT id, alive FROM instances`;
    expect(Object.fromEntries(rows.map(({ id, alive }) => [id, alive]))).toEqual({
      [unknowing]: false,
      [knowing]: true,
    });
  },
  TIMEOUT_MS,
);

/** A rotation in a process of its own that comes no further than this row. */
async function rotateUpTo(webhookId: string) {
  const held = await sql.reserve();
  await held`BEGIN`;
  await held`SELECT 1 FROM webhooks WHERE id = ${webhookId} FOR UPDATE`;
  const child = spawnCli(settings, "master-key", "rotate", "--json");
  await until("a batch is sealed anew", async () => {
    const { opened } = await openedBy(sql, NEW);
    return opened[0]! > 0;
  });
  return {
    child,
    async letGo() {
      await held`ROLLBACK`;
      held.release();
    },
  };
}

describe("in the middle of a rotation", () => {
  test(
    "kill -9 loses nothing: both keys are needed, and another run brings it to its end",
    async () => {
      const hooks = await addSealedWebhooks(sql, OLD, 250);
      await addSealedResults(sql, OLD, RESULT_NAMES);
      const values = 250 + 84 + RESULT_NAMES.length;
      const { child, letGo } = await rotateUpTo(hooks[150]!);
      child.kill("SIGKILL");
      await child.exited;
      await letGo();
      const { opened, lost } = await openedBy(sql, OLD, NEW);
      expect(lost).toBe(0);
      expect(opened[0]! > 0 && opened[1]! > 0 && opened[0]! + opened[1]! === values).toBe(true);
      expect(await standing()).toEqual({ seals: "NEW", before: "OLD" });
      // With the new key alone what is not sealed anew yet could not be opened, with another one either.
      await expect(testKeyring(sql, NEW)).rejects.toThrow("GATEWAY_MASTER_KEY_PREVIOUS");
      await expect(testKeyring(sql, OLD)).rejects.toThrow("is not the master key");
      const onward = {
        ...settings,
        GATEWAY_MASTER_KEY: base64(THIRD),
        GATEWAY_MASTER_KEY_PREVIOUS: base64(NEW),
      };
      expect(await refusal(onward)).toContain("is not finished");
      // The session of the killed process may take a moment to end.
      const resumed = await until("it can go on", async () => {
        const run = await runCliHere(settings, "master-key", "rotate", "--json");
        return run.exitCode === 0 && (JSON.parse(run.stdout) as Printed);
      });
      expect(resumed).toEqual({ state: "resumed", resealed: opened[0]!, unreadable: 0 });
      expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, values], lost: 0 });
      expect(await standing()).toEqual({ seals: "NEW", before: null });
    },
    TIMEOUT_MS,
  );

  test(
    "a second one is refused, of the same keys or of others, and the first one ends",
    async () => {
      const hooks = await addSealedWebhooks(sql, OLD, 250);
      const { child, letGo } = await rotateUpTo(hooks[150]!);
      expect(await refusal()).toStartWith("another rotation of the master key is running");
      const toThird = { ...settings, GATEWAY_MASTER_KEY: base64(THIRD) };
      expect(await refusal(toThird)).toStartWith("another rotation of the master key is running");
      await letGo();
      expect(await child.exited).toBe(0);
      expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 334], lost: 0 });
      expect(await refusal(toThird)).toContain(
        "is not the master key that this database is sealed",
      );
    },
    TIMEOUT_MS,
  );

  test(
    "a signal ends it in order, with one line, and it can be gone on with",
    async () => {
      const hooks = await addSealedWebhooks(sql, OLD, 250);
      const { child, letGo } = await rotateUpTo(hooks[150]!);
      child.kill("SIGTERM");
      expect(await child.exited).toBe(1);
      const said = (await new Response(child.stderr).text()).trimEnd().split("\n");
      expect(said.at(-1)).toBe("interrupted: run it again to go on");
      await letGo();
      expect((await openedBy(sql, OLD, NEW)).lost).toBe(0);
      expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
      expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 334], lost: 0 });
    },
    TIMEOUT_MS,
  );
});

test("two at the very same time seal everything once, with no key lost", async () => {
  await addSealedWebhooks(sql, OLD, 120);
  const runs = await Promise.all(
    [1, 2, 3].map(() => runCliProcess(settings, "master-key", "rotate", "--json")),
  );
  const states = runs.map((run) =>
    run.exitCode === 0 ? (JSON.parse(run.stdout) as Printed).state : run.stderr,
  );
  expect(states.filter((state) => state === "begun")).toHaveLength(1);
  for (const state of states) expect(state).toMatch(/^begun$|^done$|another rotation/);
  expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 160], lost: 0 });
  expect(await standing()).toEqual({ seals: "NEW", before: null });
});
