import { afterAll, expect, test } from "bun:test";
import { runCliProcess } from "../cli/cli-runs.ts";
import { Grounds } from "../crash/gateway-process.ts";
import { base64, newKey } from "../master-key/sealed-database.ts";
import { createTestDatabase } from "../support/database.ts";
import { refusal, stop } from "./key-gateway.ts";

const TIMEOUT_MS = 120_000;
const grounds = new Grounds("master-key");
afterAll(() => grounds.clear());

test(
  "another key than the database's is refused with one line that names the way out, and the right one starts",
  async () => {
    const database = await createTestDatabase();
    const [right, wrong] = [base64(newKey()), base64(newKey())];
    const launch = (GATEWAY_MASTER_KEY: string, more: Record<string, string> = {}) =>
      grounds.launch({
        dataDir: grounds.newDataDir(),
        environment: { DATABASE_URL: database.url, GATEWAY_MASTER_KEY, ...more },
      });
    const first = launch(right);
    await first.listening;
    await stop(first);
    const line = await refusal(launch(wrong), right, wrong);
    expect(line).toStartWith(
      "GATEWAY_MASTER_KEY is not the master key that this database is sealed with: ",
    );
    expect(line).toContain("GATEWAY_MASTER_KEY_PREVIOUS");
    expect(line).toMatch(/(?:bun run|model-gateway) cli master-key rotate/);
    const doctor = await runCliProcess(
      { DATABASE_URL: database.url, GATEWAY_MASTER_KEY: wrong },
      "doctor",
    );
    expect(doctor.exitCode).toBe(1);
    expect(doctor.stdout).toMatch(
      /wrong\s+sealed values\s+GATEWAY_MASTER_KEY is not the master key/,
    );
    expect(doctor.stdout).not.toContain(wrong);
    // With the right one as the one before it starts, and says what is to be done.
    const prepared = launch(wrong, { GATEWAY_MASTER_KEY_PREVIOUS: right });
    await prepared.listening;
    expect(prepared.stdout()).toContain("the master key is being replaced");
    await stop(prepared);
    const again = launch(right);
    await again.listening;
    expect(again.stdout()).not.toContain("is being replaced");
    await stop(again);
    await database.drop();
  },
  TIMEOUT_MS,
);
