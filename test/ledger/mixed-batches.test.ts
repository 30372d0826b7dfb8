import { afterAll, beforeAll, expect, test } from "bun:test";
import { dayAccountId, type Settlement } from "../../db/ledger/rows.ts";
import { commitLedgerBatch } from "../../db/ledger/settle-batch.ts";
import { SeededRandom } from "../simulation/seeded-random.ts";
import { type Books, openBooks, settlement } from "./books.ts";

const CREDIT = 10n ** 15n;
const BATCHES = 12;
const BATCH = 80;
const NAMES = ["test/model", 'te"st\\{mo},del', "NULL", "ü 模型", " leading, and a\nline", ""];

let books: Books;
beforeAll(async () => {
  books = await openBooks();
});
afterAll(() => books.close());

test("each charge of a batch that has little in common keeps what is its own, in its organization's order", async () => {
  const random = new SeededRandom(9);
  const payers = await Promise.all(Array.from({ length: 4 }, () => books.addOrganization(CREDIT)));
  const some = (): Settlement => {
    const payer = random.pick(payers);
    const day = random.pick(["2026-03-14", "2026-03-15"]);
    return settlement(payer, {
      dayAccount: dayAccountId(payer.keyId, day),
      chargeNano: BigInt(random.integer(0, 3)) ** BigInt(random.integer(0, 20)),
      model: random.pick(NAMES),
      provider: random.pick(NAMES),
      description: random.pick(NAMES),
      status: random.pick([200, 499]),
      estimated: random.chance(0.5),
      promptTokens: random.integer(0, 1_000_000),
      cachedPromptTokens: random.pick([0, random.integer(0, 1_000)]),
      completionTokens: random.integer(0, 1_000),
      reasoningTokens: random.pick([0, random.integer(0, 1_000)]),
      quantities: random.chance(0.3) ? { images: random.integer(1, 9), duration_ms: 1_500 } : null,
      latencyMs: random.integer(0, 600_000),
      details: random.chance(0.3) ? { user: random.pick(NAMES), n: random.next() } : null,
    });
  };
  const posted: Settlement[] = [];
  for (let batch = 0; batch < BATCHES; batch++) {
    // Also runs of neighbours that are alike.
    const settlements = Array.from({ length: BATCH }, some).toSorted((one, other) =>
      batch % 2 === 0 ? 0 : one.orgAccount < other.orgAccount ? -1 : 1,
    );
    await commitLedgerBatch(books.sql, books.instance, {
      checkpoints: [],
      settlements,
      knownAccounts: new Set(),
      recheck: false,
    });
    posted.push(...settlements);
  }
  for (const payer of payers) {
    const rows = await books.sql`SELECT * FROM transactions
      WHERE organization_id = ${payer.organizationId} AND type = 'usage' ORDER BY sequence`;
    let balance = CREDIT;
    let sequence = 1n;
    const wanted = posted
      .filter(({ organizationId }) => organizationId === payer.organizationId)
      .map((of) => {
        balance -= of.chargeNano;
        sequence += 1n;
        return {
          organization_id: of.organizationId,
          sequence,
          id: `txn_${of.requestId.slice(4)}`,
          type: "usage",
          amount_nano: -of.chargeNano,
          balance_after_nano: balance,
          description: of.description,
          key_id: of.keyId,
          request_id: of.requestId,
          refunded_request_id: null,
          model: of.model,
          provider: of.provider,
          status: of.status,
          prompt_tokens: BigInt(of.promptTokens),
          cached_prompt_tokens: BigInt(of.cachedPromptTokens),
          completion_tokens: BigInt(of.completionTokens),
          reasoning_tokens: BigInt(of.reasoningTokens),
          quantities: of.quantities,
          estimated: of.estimated,
          latency_ms: of.latencyMs,
          details: of.details,
          budget_nano: of.budgetNano ?? null,
          fee_nano: of.feeNano ?? null,
          created_at: expect.any(Date),
        };
      });
    expect([...rows]).toEqual(wanted);
  }
});
