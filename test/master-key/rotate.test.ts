import { describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { noteKnownKeys, readMasterKey } from "../../db/queries/master-key.ts";
import { newId } from "../../src/lib/ids.ts";
import { masterKeyId } from "../../src/lib/keyring.ts";
import { cliJson, runCliHere, runCliProcess } from "../cli/cli-runs.ts";
import { testKeyring } from "../support/master-key.ts";
import {
  NEW,
  OLD,
  type Printed,
  RESULT_NAMES,
  refusal,
  rotationSettings,
  standing,
  THIRD,
} from "./rotation.ts";
import {
  addSealedResults,
  addSealedWebhooks,
  base64,
  beforeEachOnDatabase,
  openedBy,
} from "./sealed-database.ts";

const TIMEOUT_MS = 60_000;
let sql: Database;
let settings: Record<string, string>;
beforeEachOnDatabase((database) => {
  sql = database.sql;
  settings = rotationSettings(database.url);
});

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
      expect(await standing(sql)).toEqual({ seals: "NEW", before: null });
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
    expect(stdout).toContain("0 sealed values were resealed");
    expect(await standing(sql)).toEqual({ seals: "NEW", before: null });
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
    "GATEWAY_MASTER_KEY_PREVIOUS is ***, but must be a key other than GATEWAY_MASTER_KEY": {
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
      expect(await standing(sql)).toEqual({ seals: "OLD", before: null });
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
        const line = await refusal(settings);
        for (const id of unknowing) expect(line).toContain(id);
        expect(line).toContain("restart each with both keys");
      } finally {
        clearInterval(beating);
      }
      expect(await standing(sql)).toEqual({ seals: "OLD", before: null });
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
