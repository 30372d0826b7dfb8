import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readMigrationState } from "../../db/migrate.ts";
import { runCliHere } from "../cli/cli-runs.ts";
import { brokenRules, look } from "../crash/books.ts";
import { createEmptyDatabase } from "../support/database.ts";
import { startTestGateway } from "../support/gateway.ts";
import { MASTER_KEY } from "../support/master-key.ts";
import { until } from "../support/until.ts";
import { type RecordedState, STATES } from "./recorded-state.ts";

/*
 * Databases and files as earlier programs wrote them, killed in the middle of a stream (record-state.ts), named by
 * their last migration. A restore brings each to the state of its archive and from there to the present one.
 */

const names = readdirSync(STATES).flatMap((name) => /^(.+)\.tar\.zst$/.exec(name)?.[1] ?? []);
const folder = mkdtempSync(join(tmpdir(), "gateway-upgrades-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What ends with time has not ended yet. */
function makeYoung(url: string): Promise<void> {
  return look(url, async (sql) => {
    await sql`UPDATE idempotency_records SET created_at = now()`;
    await sql`UPDATE responses SET created_at = now(), remove_after = 'infinity'`;
  });
}

test.each(names)(
  "what the program of migration %s wrote is whole and readable",
  async (name) => {
    const state = (await Bun.file(join(STATES, `${name}.json`)).json()) as RecordedState;
    const archive = join(folder, `${name}.tar`);
    const compressed = await Bun.file(join(STATES, `${name}.tar.zst`)).bytes();
    await Bun.write(archive, Bun.zstdDecompressSync(compressed));
    const database = await createEmptyDatabase();
    const settings = { DATABASE_URL: database.url, DATA_DIR: join(folder, name) };
    const restored = await runCliHere(
      { ...settings, GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64") },
      "restore",
      archive,
    );
    expect(restored).toMatchObject({ exitCode: 0 });
    await makeYoung(database.url);
    const gateway = await startTestGateway({ database, environment: settings });
    try {
      const { sql } = gateway;
      expect((await readMigrationState(sql)).pending).toEqual([]);
      const asked = (path: string, body?: object, key = state.secretKey) =>
        gateway.request(body === undefined ? "GET" : "POST", path, body, { key });
      await until("the cut stream is settled, and the books are exact", async () => {
        const [left] = await sql<{ count: number }[]>`SELECT count(*)::int AS count FROM attempts`;
        return left!.count === 0 && (await brokenRules(sql)).length === 0;
      });
      const charged = await sql`SELECT request_id FROM transactions
        WHERE request_id = ANY (${sql.array([...state.requests])}::text[])`;
      expect(charged).toHaveLength(state.requests.length);
      const repeated = await asked("/v1/chat/completions", state.repeated.body);
      expect(repeated.headers.get("x-gateway-idempotent-replay")).toBe("true");
      expect(await repeated.json()).toMatchObject({ id: state.repeated.id });
      const chat = await asked("/v1/chat/completions", {
        ...state.repeated.body,
        metadata: {},
      });
      expect(chat.status).toBe(200);
      const content = await (await asked(`/v1/files/${state.file.id}/content`)).bytes();
      expect(new Bun.CryptoHasher("sha256").update(content).digest("hex")).toBe(state.file.sha256);
      if (state.response !== null) {
        expect((await asked(`/v1/responses/${state.response}`)).status).toBe(200);
      }
      for (const path of ["/v1/keys", "/v1/webhooks", "/v1/credits", "/v1/credits/transactions"]) {
        const answer = await asked(path, undefined, state.managementKey);
        expect({ path, status: answer.status }).toEqual({ path, status: 200 });
      }
      const jobs = await asked("/v1/fine_tuning/jobs");
      expect(((await jobs.json()) as { data: unknown[] }).data).toHaveLength(1);
    } finally {
      await gateway.stop();
    }
  },
  60_000,
);
