import type { Database } from "../../db/client.ts";
import { INSTANCE_LEASE_MS } from "../../db/queries/instances.ts";
import { readMasterKey } from "../../db/queries/master-key.ts";
import {
  buryUnknowing,
  changeMasterKey,
  claimMasterKeyChange,
  finishMasterKeyChange,
  releaseMasterKeyChange,
} from "../../db/queries/master-key-change.ts";
import { Keyring, masterKeyId } from "../lib/keyring.ts";
import { MasterKeyError } from "./errors.ts";
import { type MasterKeys, openKeyring, proofOf } from "./establish.ts";
import { type Resealed, resealAll } from "./reseal.ts";

/** Where a rotation takes its keys from. Called while no other rotation is under way. */
export interface RotatingKeys {
  /** Those that are known: the one that seals now must be among them. */
  known(): MasterKeys;
  /** The key that is to seal, made where there is none yet. */
  target(): Uint8Array;
  /** Nothing needs another key than this one any more. */
  settle(target: Uint8Array): void;
}

export interface RotationOptions {
  readonly keys: RotatingKeys;
  readonly interrupted: AbortSignal;
  log(message: string): void;
}

export interface Rotation {
  /**
   * `begun` and ended by this call; `resumed`: an earlier one had begun it; `done` before, so that nothing
   * was left to do.
   */
  readonly kind: "begun" | "resumed" | "done";
  readonly resealed: Resealed;
}

/** An instance that does not know the new key may be just ending; a dead one is silent for so long. */
const UNKNOWING_PATIENCE_MS = 5_000;
const UNKNOWING_RETRY_MS = 100;
const NOTHING_RESEALED: Resealed = { values: 0, unreadable: 0 };

/**
 * Replaces the master key, in three steps that can each be broken off and done again. Every instance knows
 * both keys, or this ends here. In one transaction the new key becomes the one that seals: from then on no
 * value is written under the one before. All values under that are sealed anew, in batches; then it is
 * told that the change is finished, and the key before is not needed any more.
 *
 * @param sql one session, to which the claim of the change belongs
 * @throws MasterKeyError
 */
export async function rotateMasterKey(sql: Database, options: RotationOptions): Promise<Rotation> {
  await claim(sql);
  try {
    const { keyring } = await openKeyring(sql, options.keys.known());
    const target = options.keys.target();
    const rotation = await rotateTo(sql, keyring, target, options);
    // Its session may have been lost on the way, and the claim with it.
    await claim(sql);
    options.keys.settle(target);
    return rotation;
  } finally {
    // Without a connection it has ended with that.
    await releaseMasterKeyChange(sql).catch(() => {});
  }
}

async function claim(sql: Database): Promise<void> {
  if (await claimMasterKeyChange(sql)) return;
  throw new MasterKeyError("another rotation of the master key is running on this database");
}

async function rotateTo(
  sql: Database,
  known: Keyring,
  target: Uint8Array,
  options: RotationOptions,
): Promise<Rotation> {
  const row = (await readMasterKey(sql))!;
  const keyId = masterKeyId(target, row.salt);
  const isBegun = row.keyId === keyId;
  if (isBegun && row.previousKeyId === null) return { kind: "done", resealed: NOTHING_RESEALED };
  if (!isBegun) {
    if (row.previousKeyId !== null) throw unfinished();
    await change(sql, row.keyId, { keyId, proof: proofOf(target) }, options);
  }
  options.log("the new master key seals from now on; what the one before sealed is sealed anew");
  const keyring = new Keyring(row.salt, [...known.keys, target], keyId);
  const resealed = await resealAll(sql, keyring, keyId, options.interrupted);
  await finishMasterKeyChange(sql, keyId);
  return { kind: isBegun ? "resumed" : "begun", resealed };
}

async function change(
  sql: Database,
  fromId: string,
  to: { readonly keyId: string; readonly proof: Uint8Array },
  { interrupted }: RotationOptions,
): Promise<void> {
  const beganMs = performance.now();
  for (;;) {
    const waitedMs = performance.now() - beganMs;
    // Before that an outage that has just ended would be taken for their silence.
    if (waitedMs > INSTANCE_LEASE_MS) await buryUnknowing(sql, to.keyId);
    const unknowing = await changeMasterKey(sql, fromId, to);
    if (unknowing.length === 0) return;
    if (waitedMs > UNKNOWING_PATIENCE_MS || interrupted.aborted) throw unknown(unknowing);
    await Bun.sleep(UNKNOWING_RETRY_MS);
  }
}

function unknown(instances: readonly string[]): MasterKeyError {
  return new MasterKeyError(
    `gateways run that do not know the new master key yet (${instances.join(", ")}): restart each with both keys, or stop it, and run this again; nothing was changed`,
  );
}

function unfinished(): MasterKeyError {
  return new MasterKeyError(
    "an earlier change of the master key is not finished: run this with the keys of that one first",
  );
}
