import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { commitLedgerBatch } from "../../db/ledger/settle-batch.ts";
import { insertInstance } from "../../db/queries/instances.ts";
import { newId } from "../../src/lib/ids.ts";
import { type Payer, settlement } from "../ledger/books.ts";
import { lockAccount, untilWaiting } from "../ledger/standing-in-the-way.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { findTestRedis } from "../support/redis.ts";
import { readStream } from "../support/stream-reader.ts";

const redis = await findTestRedis();

describe.skipIf(redis === undefined)("one of several gateways", () => {
  let gateway: ChatGateway;
  beforeAll(async () => {
    gateway = await startChatGateway({ environment: { REDIS_URL: redis!.url } });
  });
  afterAll(() => gateway.stop());

  interface Customer extends Payer {
    readonly secretKey: string;
    readonly orgAccount: string;
  }

  /** A customer whose accounts the gateway has just seen, with ample money. */
  async function customer(creditUsd: number): Promise<Customer> {
    const prepared = await gateway.addOrganization({ creditUsd });
    const { organization, secretKey } = prepared;
    const slug = gateway.modelThat({ do: "complete", content: "hello" });
    const first = await gateway.chat(slug, { max_tokens: 5 }, { key: secretKey });
    expect(first.status).toBe(200);
    return {
      secretKey,
      organizationId: organization.id,
      keyId: organization.keys.at(-1)!.id,
      orgAccount: `org:${organization.id}`,
    };
  }

  /** Another instance spends that much, unseen by this one. */
  async function spendElsewhere(payer: Customer, chargeNano: bigint): Promise<void> {
    const instance = { id: newId("ins"), epoch: 1n };
    await insertInstance(gateway.sql, instance);
    await commitLedgerBatch(gateway.sql, instance, {
      checkpoints: [],
      settlements: [settlement(payer, { chargeNano })],
      knownAccounts: new Set(),
      recheck: false,
    });
  }

  const servedOf = (slug: string) => gateway.upstream.servedOf(slug).length;

  test.each([false, true])(
    "calls no provider before the hold is durable (stream: %p)",
    async (stream) => {
      const payer = await customer(1);
      const slug = gateway.modelThat({ do: "complete", content: "paid for" });
      const unlock = await lockAccount(gateway.sql, payer.orgAccount);
      const asked = gateway.chat(slug, { stream, max_tokens: 5 }, { key: payer.secretKey });
      await untilWaiting(gateway.sql);
      // Long enough for a call to arrive.
      await Bun.sleep(100);
      expect(servedOf(slug)).toBe(0);
      await unlock();
      const response = await asked;
      expect(response.status).toBe(200);
      const text = stream ? (await readStream(response)).content : await response.text();
      expect(text).toContain("paid for");
      expect(servedOf(slug)).toBe(1);
      await expectBooksClosed(gateway);
    },
  );

  test.each([false, true])(
    "refuses with 402 what another instance has spent the money for, and calls nobody (stream: %p)",
    async (stream) => {
      const payer = await customer(0.001);
      const slug = gateway.modelThat({ do: "complete", content: "unpaid" });
      const [account] = await gateway.sql<{ left: bigint }[]>`
        SELECT credit_nano - posted_nano AS left FROM accounts WHERE id = ${payer.orgAccount}`;
      await spendElsewhere(payer, account!.left);
      const response = await gateway.chat(
        slug,
        { stream, max_tokens: 20 },
        { key: payer.secretKey },
      );
      expect(await response.clone().text()).not.toContain("unpaid");
      await expectError(response, 402, "insufficient_credits");
      expect(servedOf(slug)).toBe(0);
      await expectBooksClosed(gateway);
    },
  );

  test.each([false, true])(
    "lowers the limit where another instance has spent the money for the whole one (stream: %p)",
    async (stream) => {
      const payer = await customer(1);
      const slug = gateway.modelThat({ do: "complete", content: "lowered" });
      // Room for some hundred tokens, though not for the model's whole limit.
      const [account] = await gateway.sql<{ left: bigint }[]>`
        SELECT credit_nano - posted_nano AS left FROM accounts WHERE id = ${payer.orgAccount}`;
      await spendElsewhere(payer, account!.left - 500_000n);
      const response = await gateway.chat(slug, { stream }, { key: payer.secretKey });
      expect(response.status).toBe(200);
      const limit = Number(response.headers.get("x-gateway-max-tokens"));
      expect(limit).toBeWithin(256, 4_096);
      const text = stream ? (await readStream(response)).content : await response.text();
      expect(text).toContain("lowered");
      expect(servedOf(slug)).toBe(1);
      await expectBooksClosed(gateway);
    },
  );
});
