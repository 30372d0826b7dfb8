import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findOperatorKey, revokeOperatorKey } from "../../db/queries/operator-keys.ts";
import { generateApiKey, hashApiKey } from "../../src/lib/api-key-format.ts";
import { createFirstKeys } from "../../src/main/start/first-keys.ts";
import { readConfig } from "../../src/platform/config.ts";
import { openTestDatabase } from "../support/database.ts";
import { MASTER_KEY } from "../support/master-key.ts";

test("GATEWAY_OPERATOR_KEY is added at any start, once, and not again after it was revoked", async () => {
  const database = await openTestDatabase(1);
  const folder = mkdtempSync(join(tmpdir(), "operator-key-"));
  try {
    const start = (operatorKey?: string) =>
      createFirstKeys(
        readConfig(
          {
            DATABASE_URL: database.url,
            DATA_DIR: folder,
            GATEWAY_MASTER_KEY: Buffer.from(MASTER_KEY).toString("base64"),
            ...(operatorKey !== undefined && { GATEWAY_OPERATOR_KEY: operatorKey }),
          },
          { cwd: folder },
        ),
        database.sql,
        undefined,
      );
    const found = (key: string) => findOperatorKey({ hash: hashApiKey(key) }).run(database.sql);
    await start();
    const first = generateApiKey("operator").key;
    await Promise.all([start(first), start(first)]);
    const { id, name } = (await found(first))!;
    expect(name).toBe("GATEWAY_OPERATOR_KEY");
    const second = generateApiKey("operator").key;
    await start(second);
    expect((await found(first))!.id).toBe(id);
    expect(await found(second)).toBeDefined();
    expect(await revokeOperatorKey(database.sql, id)).toBe(true);
    await start(first);
    expect(await found(first)).toBeUndefined();
  } finally {
    rmSync(folder, { recursive: true });
    await database.drop();
  }
});
