import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOf, logLineOf } from "../support/ledger-checks.ts";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway();
});
afterAll(() => gateway.stop());
/** The ledger refuses every batch for good, as a damaged or foreign schema would. */
async function breakLedger(): Promise<void> {
  await gateway.sql`ALTER FUNCTION ledger_settle_batch RENAME TO ledger_settle_batch_away`;
}

async function mendLedger(): Promise<void> {
  await gateway.sql`ALTER FUNCTION ledger_settle_batch_away RENAME TO ledger_settle_batch`;
}

beforeEach(breakLedger);
afterEach(mendLedger);

test("an answer whose charge cannot be written is not delivered: 500, and no fault of the provider", async () => {
  const slug = gateway.modelThat({ do: "complete", content: "unpaid" });
  const response = await gateway.chat(slug);
  const text = await response.clone().text();
  expect(text).not.toContain("unpaid");
  await expectError(response, 500, "internal");
});

test("neither is a stream: none of it leaves before its first checkpoint or its charge, and the failure has its status", async () => {
  const behaviours = [
    { do: "complete", content: "unpaid" },
    { do: "stall-after-events", content: "unpaid unpaid unpaid unpaid", afterEvents: 4 },
  ] as const;
  for (const behaviour of behaviours) {
    const response = await gateway.chat(gateway.modelThat(behaviour), { stream: true });
    expect(await response.clone().text()).not.toContain("unpaid");
    await expectError(response, 500, "internal");
    const requestId = response.headers.get("x-gateway-request-id")!;
    expect(await billOf(gateway, requestId)).toBeUndefined();
    expect(await logLineOf(gateway, requestId)).toMatchObject({ error_code: "internal" });
  }
});

test("the next call is answered as soon as the ledger is mended", async () => {
  const slug = gateway.modelThat({ do: "complete" });
  await expectError(await gateway.chat(slug), 500, "internal");
  await mendLedger();
  expect((await gateway.chat(slug)).status).toBe(200);
  await breakLedger();
});
