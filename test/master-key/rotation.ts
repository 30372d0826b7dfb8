import { expect } from "bun:test";
import type { Database } from "../../db/client.ts";
import { readMasterKey } from "../../db/queries/master-key.ts";
import { masterKeyId } from "../../src/lib/keyring.ts";
import { runCliHere } from "../cli/cli-runs.ts";
import { base64, newKey } from "./sealed-database.ts";

export const OLD = newKey();
export const NEW = newKey();
export const THIRD = newKey();
/** As callers choose them. */
export const RESULT_NAMES = [
  "",
  "a",
  "é\u{1F511}",
  "'; DROP TABLE webhooks; --",
  "z".repeat(255),
].map((name, n) => `${name}${n}`);

/** What `master-key rotate --json` says. */
export interface Printed {
  readonly state: string;
  readonly resealed: number;
  readonly unreadable: number;
}

/** For a rotation from the old key to the new one. */
export const rotationSettings = (databaseUrl: string): Record<string, string> => ({
  DATABASE_URL: databaseUrl,
  GATEWAY_MASTER_KEY: base64(NEW),
  GATEWAY_MASTER_KEY_PREVIOUS: base64(OLD),
});

/** Which key seals, and which one did while that is not finished. */
export async function standing(sql: Database): Promise<{ seals: string; before: string | null }> {
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
export async function refusal(settings: Record<string, string>): Promise<string> {
  const { exitCode, stdout, stderr } = await runCliHere(settings, "master-key", "rotate");
  expect({ exitCode, stdout }).toEqual({ exitCode: 1, stdout: "" });
  expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  for (const value of [OLD, NEW, THIRD].map(base64)) expect(stderr).not.toContain(value);
  return stderr.trimEnd();
}
