import { describe, expect, test } from "bun:test";
import type { Database } from "../../db/client.ts";
import { runCliHere, runCliProcess, spawnCli } from "../cli/cli-runs.ts";
import { testKeyring } from "../support/master-key.ts";
import { until } from "../support/until.ts";
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
      expect(await standing(sql)).toEqual({ seals: "NEW", before: "OLD" });
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
      expect(await standing(sql)).toEqual({ seals: "NEW", before: null });
    },
    TIMEOUT_MS,
  );

  test(
    "a second one is refused, of the same keys or of others, and the first one ends",
    async () => {
      const hooks = await addSealedWebhooks(sql, OLD, 250);
      const { child, letGo } = await rotateUpTo(hooks[150]!);
      expect(await refusal(settings)).toStartWith("another rotation of the master key is running");
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
    "one that is stopped holds up nobody for long, and another run goes on",
    async () => {
      const hooks = await addSealedWebhooks(sql, OLD, 250);
      const { child, letGo } = await rotateUpTo(hooks[150]!);
      await until("it is stopped while it waits for the row", async () => {
        child.kill("SIGSTOP");
        const rows = await sql`SELECT 1 FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'gateway-cli' AND wait_event_type = 'Lock'`;
        if (rows.length === 0) child.kill("SIGCONT");
        return rows.length > 0;
      });
      await letGo();
      // A row of the batch that it was at; it waits for as long as that is kept.
      const began = performance.now();
      await sql`UPDATE webhooks SET description = 'changed' WHERE id = ${hooks[110]!}`;
      expect(performance.now() - began).toBeLessThan(10_000);
      await until("its claim has ended with its session", async () => {
        const rows = await sql`SELECT 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
          WHERE a.datname = current_database() AND l.locktype = 'advisory'`;
        return rows.length === 0;
      });
      expect((await runCliHere(settings, "master-key", "rotate")).exitCode).toBe(0);
      expect(await openedBy(sql, OLD, NEW)).toEqual({ opened: [0, 334], lost: 0 });
      child.kill("SIGKILL");
      await child.exited;
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
      expect(said.at(-1)).toBe("interrupted: run it again to continue");
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
  expect(await standing(sql)).toEqual({ seals: "NEW", before: null });
});
