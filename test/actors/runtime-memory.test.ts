import { expect, test } from "bun:test";
import { apiKeyActor } from "../../actors/api-key/actor.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import { keyRecord, type LoadedKey } from "../../db/queries/api-keys.ts";
import { SCOPES } from "../../src/lib/api-key-record.ts";
import { fakeEnvironment } from "./fake-environment.ts";

const ACTORS = 100_000;
/** For each actor of a key: its record, its two periods, and its place in the registry. */
const MAX_BYTES_PER_ACTOR = 1_280;

function liveBytes(): number {
  Bun.gc(true);
  return process.memoryUsage().heapUsed;
}

/** A text as the driver hands it out: a copy of its own for each row. */
function read(text: string): string {
  return Buffer.from(text).toString();
}

test("100,000 idle actors fit in a process, at less than 1.25 KB each", async () => {
  const world = fakeEnvironment();
  const keys = new ActorRegistry(apiKeyActor, world);
  let loaded = 0;
  world.answerReadsWith((): LoadedKey => {
    const id = `key_${(loaded++).toString(16).padStart(32, "0")}`;
    return {
      record: keyRecord({
        id,
        organization_id: read(`org_${loaded % 1_000}`),
        kind: read("secret"),
        name: read(`Key number ${loaded}`),
        key_prefix: read(`gateway_sk_${id.slice(-4)}`),
        scopes: SCOPES.map(read),
        rate_limit_rpm: 60,
        rate_limit_tpm: null,
        daily_budget_nano: 1_000_000_000n,
        monthly_budget_nano: 10_000_000_000n,
        budget_includes_byok: false,
        allowed_models: null,
        expires_at: null,
        team_id: null,
        owner_id: null,
        playground_holder: null,
        is_active: true,
        created_at: new Date(loaded),
      }),
      totals: new Map(),
    };
  });
  const beforeBytes = liveBytes();
  for (let i = 0; i < ACTORS; i++) {
    const id = `key_${i.toString(16).padStart(32, "0")}`;
    expect((await keys.get(id).ask("inspect", undefined))!.id).toBe(id);
  }
  expect(keys.size).toBe(ACTORS);
  const bytesPerActor = (liveBytes() - beforeBytes) / ACTORS;
  console.info(`an idle actor of a key takes ${Math.round(bytesPerActor)} bytes`);
  expect(bytesPerActor).toBeLessThan(MAX_BYTES_PER_ACTOR);
  // One more than fits lets the least recently used go.
  await keys.get("key_more").ask("inspect", undefined);
  expect(keys.size).toBe(ACTORS);
}, 60_000);
