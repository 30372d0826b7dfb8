import type { Database } from "../../db/client.ts";
import type { InstanceIdentity } from "../../db/ledger/commit-batch.ts";
import { leave } from "../../db/queries/instances.ts";
import { noteKnownKeys } from "../../db/queries/master-key.ts";
import type { Keyring } from "../lib/keyring.ts";
import { MasterKeyError } from "./errors.ts";

/**
 * Tells which keys an instance that has just joined knows: from then on no other key takes the place of the
 * one that seals. Throws MasterKeyError where that has happened since the keyring was opened.
 */
export async function tellKeys(
  sql: Database,
  instance: InstanceIdentity,
  keyring: Keyring,
): Promise<void> {
  if (await noteKnownKeys(sql, instance, keyring.ids)) return;
  await leave(sql, instance);
  throw new MasterKeyError(
    "the master key was replaced while this gateway started: start it again, with the one in force",
  );
}
