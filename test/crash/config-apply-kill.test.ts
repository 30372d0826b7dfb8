import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Database } from "../../db/client.ts";
import { findRunningEmbeddedPostgres } from "../../db/embedded.ts";
import { cliJson, runCliHere, spawnCli } from "../cli/cli-runs.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";
import { until } from "../support/until.ts";
import { look } from "./books.ts";
import { type GatewayProcess, Grounds, isStopped, killServer } from "./gateway-process.ts";

type Fields = Record<string, unknown>;

const TIMEOUT_MS = 60_000;
const grounds = new Grounds("config-apply");
let dataDir: string;
let stub: StubProvider;
let operatorKey: string;
let secretKey: string;
let gateway: GatewayProcess;
let baseUrl: string;
/** The number of the configuration in force. Each test applies the next one. */
let current = 0;

beforeAll(async () => {
  stub = startStubProvider();
  dataDir = await grounds.newDataDirWithDatabase();
  await start();
  const created = (kind: string) =>
    cliJson<{ key: string }>(
      { DATA_DIR: dataDir },
      ...["keys", "create", "--kind", kind, "--name", kind],
    );
  operatorKey = (await created("operator")).key;
  secretKey = (await created("secret")).key;
  expect(await config("apply", 0)).toMatchObject({ exitCode: 0 });
}, TIMEOUT_MS);
afterAll(async () => {
  stub.stop();
  await grounds.clear();
}, TIMEOUT_MS);

async function start(): Promise<void> {
  gateway = grounds.launch({ dataDir });
  baseUrl = await gateway.listening;
}

/** A configuration that differs from those with other numbers in every entry, and has one model of its own. */
function configuration(number: number) {
  const cost = (number + 1) * 1e-6;
  const model = (id: string) => ({
    ...{ id, context_length: 4096, input_cost_per_token: cost, output_cost_per_token: cost },
    endpoints: [{ provider: "one", model: `model-${number}` }],
  });
  const only = `acme/only-${number}`;
  return {
    providers: [
      { id: "one", type: "openai-compatible", base_url: stub.url, api_key: providerKey(number) },
    ],
    models: [model("acme/a"), model("acme/b"), model(only)],
    aliases: [{ id: "fast", models: [{ id: only }] }],
    prices: [{ id: "now", model: "acme/a", pricing: { input_cost_per_token: cost * 2 } }],
  };
}

const providerKey = (number: number) => `sk-of-configuration-${number}-12345`;

function fileOf(number: number): string {
  const path = join(grounds.folder, `configuration-${number}.json`);
  writeFileSync(path, JSON.stringify(configuration(number)));
  return path;
}

const config = (verb: "apply" | "diff", number: number) =>
  runCliHere({ DATA_DIR: dataDir }, "config", verb, fileOf(number));

/** Returns the stored entries as the gateway shows them, in the form of the file. */
async function shownEntries(): Promise<Fields> {
  const shape = configuration(0);
  const lists = Object.entries(shape).map(async ([kind, [example]]) => {
    const response = await fetch(`${baseUrl}/v1/admin/${kind}`, {
      headers: { authorization: `Bearer ${operatorKey}` },
    });
    const { data } = (await response.json()) as { data: Fields[] };
    const members = Object.keys(example!).filter((member) => member !== "api_key");
    const entries = data
      .filter(({ source }) => source === "stored")
      .map((entry) => Object.fromEntries(members.map((member) => [member, entry[member]])));
    return [kind, entries.toSorted((left, right) => (`${left.id}` < `${right.id}` ? -1 : 1))];
  });
  return Object.fromEntries(await Promise.all(lists));
}

/**
 * Fails if an entry in the database or in the gateway, or the key that a chat reaches the provider with, is of another
 * configuration.
 */
async function expectInForce(number: number): Promise<void> {
  expect((await config("diff", number)).stdout).toBe("No differences.\n");
  const { providers, ...others } = configuration(number);
  const expected = { providers: providers.map(({ api_key: _, ...shown }) => shown), ...others };
  await until(`configuration ${number} is in force`, async () =>
    Bun.deepEquals(await shownEntries(), expected),
  ).catch(async () => expect(await shownEntries()).toEqual(expected));
  const chat = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${secretKey}`, "content-type": "application/json" },
    body: JSON.stringify({ model: "fast", messages: [{ role: "user", content: "Hi" }] }),
  });
  expect(chat.status, await chat.text()).toBe(200);
  expect(stub.requests.at(-1)).toMatchObject({
    authorization: `Bearer ${providerKey(number)}`,
    body: { model: `model-${number}` },
  });
}

type Pause = (sql: Database) => Promise<void>;

/** Statements that hold a lock for which `config apply` waits at a certain moment. */
const MOMENTS: Readonly<Record<string, { readonly pause: Pause; readonly isCommitted: boolean }>> =
  {
    "before its transaction has read anything": {
      pause: async (sql) => {
        await sql`SELECT pg_advisory_lock(hashtextextended('configuration_entries', 0))`;
      },
      isCommitted: false,
    },
    "after it has written two of seven entries": {
      pause: async (sql) => {
        await sql`BEGIN`;
        await sql`SELECT 1 FROM configuration_entries WHERE id = 'acme/b' FOR UPDATE`;
      },
      isCommitted: false,
    },
    "after the commit, before the answer": {
      pause: async (sql) => {
        await sql`CREATE SCHEMA IF NOT EXISTS pauses`;
        await sql`CREATE OR REPLACE FUNCTION pauses.await_lock() RETURNS trigger LANGUAGE plpgsql
          AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`;
        await sql`CREATE CONSTRAINT TRIGGER pause AFTER UPDATE ON configuration_entries
          DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pauses.await_lock()`;
        await sql`SELECT pg_advisory_lock(1)`;
      },
      isCommitted: true,
    },
  };
const MOMENT_NAMES = Object.keys(MOMENTS);

/**
 * Runs `config apply` up to the moment, then `kill`, and waits for the end of the command, which must not report a
 * success if nothing was committed. If the moment follows the commit, the stopped command has not read the server's
 * answer by then.
 */
async function killAt(
  moment: string,
  number: number,
  kill: (command: ReturnType<typeof spawnCli>) => Promise<void>,
): Promise<void> {
  const { pause, isCommitted } = MOMENTS[moment]!;
  const command = await look(databaseUrl(), async (sql) => {
    await pause(sql);
    const started = spawnCli({ DATA_DIR: dataDir }, "config", "apply", fileOf(number));
    await until("config apply waits", () => isConnected("Lock"));
    if (!isCommitted) {
      await kill(started);
      return started;
    }
    started.kill("SIGSTOP");
    await until("the command stands still", () => isStopped(started.pid));
    await sql`SELECT pg_advisory_unlock(1)`;
    await until("the commit is done", () => isStored(number));
    await kill(started);
    return started;
  });
  command.kill("SIGCONT");
  await command.exited;
  await until("no connection of the command is left", async () => !(await isConnected()));
  await look(databaseUrl(), (sql) => sql`DROP SCHEMA IF EXISTS pauses CASCADE`);
  if (!isCommitted) expect(command.exitCode).not.toBe(0);
}

const databaseUrl = () => findRunningEmbeddedPostgres(dataDir)!;

/** Returns true if a command has a connection to the server, which waits for this kind of event if one is given. */
const isConnected = (waitEvent?: string) =>
  look(databaseUrl(), async (sql) => {
    const rows = await sql`
      SELECT 1 FROM pg_stat_activity WHERE application_name = 'gateway-cli'
        AND (${waitEvent === undefined} OR wait_event_type = ${waitEvent ?? ""})`;
    return rows.length > 0;
  });

const isStored = (number: number) =>
  look(databaseUrl(), async (sql) => {
    const rows = await sql`
      SELECT 1 FROM configuration_entries
      WHERE id = ${`acme/only-${number}`} AND deleted_at IS NULL`;
    return rows.length > 0;
  });

/** Checks that all or nothing was applied, and that applying again has the new configuration in force. */
async function expectAllOrNothing(number: number, isCommitted: boolean): Promise<void> {
  await expectInForce(isCommitted ? number : current);
  const { exitCode, stdout } = await config("apply", number);
  expect(exitCode).toBe(0);
  if (isCommitted) expect(stdout).toBe("No differences.\n");
  await expectInForce(number);
  current = number;
}

describe("config apply makes all changes or none if", () => {
  test.each(MOMENT_NAMES)(
    "the command is killed %s",
    async (moment) => {
      const number = current + 1;
      await killAt(moment, number, async (command) => {
        command.kill("SIGKILL");
        await command.exited;
      });
      await expectAllOrNothing(number, MOMENTS[moment]!.isCommitted);
    },
    TIMEOUT_MS,
  );

  test.each(MOMENT_NAMES)(
    "the gateway and its database are killed %s",
    async (moment) => {
      const number = current + 1;
      await killAt(moment, number, async () => {
        gateway.signal("SIGKILL");
        killServer(dataDir);
        await gateway.exited;
        await start();
      });
      await expectAllOrNothing(number, MOMENTS[moment]!.isCommitted);
    },
    TIMEOUT_MS,
  );
});
