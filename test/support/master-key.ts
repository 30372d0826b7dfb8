import { connectDatabase, type Database } from "../../db/client.ts";
import type { Keyring } from "../../src/lib/keyring.ts";
import { openKeyring } from "../../src/platform/master-key/master-key.ts";

/** The master key of test databases. */
export const MASTER_KEY = new Uint8Array(32).fill(7);

/** The keyring of a database, which has it from then on. */
export async function testKeyring(sql: Database, main: Uint8Array = MASTER_KEY): Promise<Keyring> {
  const keys = { main, others: [], hasNext: false, source: "the key", remedy: "none" };
  return (await openKeyring(sql, keys)).keyring;
}

export async function keyringAt(url: string): Promise<Keyring> {
  const sql = connectDatabase({ url }, { poolSize: 1, applicationName: "test" });
  try {
    return await testKeyring(sql);
  } finally {
    await sql.end();
  }
}
