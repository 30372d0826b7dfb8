import { expect, test } from "bun:test";
import type { ProviderBatchRecord } from "../../db/queries/provider-batches.ts";
import type { PaidRoute } from "../../src/inference/endpoints/paid-route.ts";
import { LineCalls } from "../../src/jobs/batches/line-call.ts";
import {
  type HeldLine,
  ProviderBatchResults,
} from "../../src/jobs/batches/provider-batch-results.ts";
import type { SubmitterParts } from "../../src/jobs/batches/provider-batch-submitter.ts";
import type { BatchRecord } from "../../src/lib/batch.ts";
import { systemClock } from "../../src/lib/clock.ts";
import { newId } from "../../src/lib/ids.ts";
import type { Provider } from "../../src/providers/interface.ts";
import { CHATS, chatLine } from "../support/batches.ts";

test("what a provider has answered is left with it by a gateway that stops, and not called again", async () => {
  const ended: string[] = [];
  const parts: Partial<SubmitterParts> = {
    calls: new LineCalls({
      routes: [{ path: CHATS, direct: {} } as PaidRoute],
      inFlight: { begin() {}, end() {}, isStopping: true },
      usableKey: () => Promise.reject(new Error("no key is asked for")),
      note() {},
    }),
    clock: systemClock,
    abandoned: new AbortController().signal,
    readInput: async () => new Blob([chatLine("a")]).stream(),
    async waitWhileBusy() {},
    guarded: async () => {
      throw new Error("nothing is written");
    },
    money: {
      holdLongs: () => Promise.reject(new Error("nothing is held")),
      async endLong(ends) {
        ended.push(...ends.keys());
      },
    },
  };
  const batch = { id: newId("batch"), organizationId: "org_1", keyId: "key_1", endpoint: CHATS };
  const held: HeldLine = { line: 1, requestId: newId("req"), feeBasisPoints: 0, holdNano: 1_000n };
  const out = new Map([[held.line, held]]);
  const results = async function* () {
    yield { id: "1", answer: { status: 200, body: new TextEncoder().encode("{}") } };
  };
  const taking = new ProviderBatchResults(parts as SubmitterParts, batch as BatchRecord).settle(
    {} as ProviderBatchRecord,
    {} as Provider,
    results(),
    out,
  );
  await expect(taking).rejects.toThrow("The gateway is stopping.");
  expect(ended).toEqual([]);
  expect([...out.values()]).toEqual([held]);
});
