import { afterAll, beforeAll, expect, test } from "bun:test";
import { endpointActor } from "../../actors/endpoint/actor.ts";
import { turnContextOf } from "../../actors/runtime/definition.ts";
import { ActorRegistry } from "../../actors/runtime/registry.ts";
import type { Hold } from "../../src/billing/ledger/interface.ts";
import { wholeAnswer } from "../../src/inference/call/whole-answer.ts";
import {
  AcceptedChat,
  type AdmittedChat,
  ChatEndpoint,
} from "../../src/inference/endpoints/chat-completions/endpoint.ts";
import { DeadlineQueue } from "../../src/lib/deadlines.ts";
import type { RequestLog } from "../../src/lib/request-log.ts";
import type { Provider } from "../../src/providers/interface.ts";
import { OpenAiCompletion } from "../../src/providers/openai/chat/chat-answers.ts";
import { requestOf } from "../contracts/money/owned-money.ts";
import { openSingleNodeMoney } from "../contracts/single-node-money.ts";
import { noLimits } from "../support/no-limits.ts";
import { noTools } from "../support/no-tools.ts";
import { until } from "../support/until.ts";
import { faultsOf, type Payer } from "./books.ts";
import { testModel } from "./scripted-stream.ts";
import { lockAccount, untilWaiting } from "./standing-in-the-way.ts";

const TOTAL_TIMEOUT_MS = 60_000;

let owned: Awaited<ReturnType<typeof openSingleNodeMoney>>;
beforeAll(async () => {
  owned = await openSingleNodeMoney();
});
afterAll(() => owned.close());

interface Asked {
  readonly payer: Payer;
  readonly hold: Hold;
  readonly log: RequestLog;
  readonly outcome: Promise<string>;
  readonly calls: { readonly signal: AbortSignal }[];
  /** The process ends. */
  cutShort(): void;
}

const answer = {
  choices: [{ index: 0, message: { role: "assistant", content: "hello" }, finish_reason: "stop" }],
  usage: { prompt_tokens: 1, completion_tokens: 5 },
};

/** Asks for a completion that this provider answers; the outcome is its kind, or the code of its error. */
async function ask(
  chat: NonNullable<Provider["chat"]>,
  options: { client?: AbortController; failsToStore?: boolean } = {},
): Promise<Asked> {
  const payer = await owned.addOrganization(10_000n);
  const hold = await owned.money.hold(requestOf(payer, 1_000));
  const log: RequestLog = {};
  const calls: { signal: AbortSignal }[] = [];
  const endpoints = new ActorRegistry(endpointActor, {
    clock: owned.clock,
    context: turnContextOf(owned.clock, () => 0),
    commit: () => Promise.reject(new Error("writes nothing")),
    read: () => Promise.reject(new Error("reads nothing")),
  });
  const provider: Provider = {
    chat(call) {
      calls.push(call);
      return chat(call);
    },
  };
  const admitted = {
    requestId: hold.requestId,
    startedMs: performance.now(),
    request: new AcceptedChat({ model: testModel.id, messages: [] }),
    clientSignal: (options.client ?? new AbortController()).signal,
    log,
    lifetime: {},
    plan: {
      models: [testModel],
      candidates: [
        {
          model: testModel,
          terms: testModel,
          providerId: "test",
          provider,
          upstreamModel: "model",
          endpointId: crypto.randomUUID(),
        },
      ],
    },
    hold,
    fees: { of: () => hold.feeBasisPoints, highest: hold.feeBasisPoints },
    title: "Chat completion",
    details: null,
    claim: options.failsToStore ? { keyId: payer.keyId } : undefined,
  } as unknown as AdmittedChat;
  const deadlines = new DeadlineQueue(owned.clock, TOTAL_TIMEOUT_MS);
  let isAborting = false;
  const cutShort = () => {
    isAborting = true;
    deadlines.expireAll();
  };
  const completing = wholeAnswer(
    {
      money: owned.money,
      calls: {
        endpoints,
        clock: owned.clock,
        steadyClock: owned.clock,
        slots: noLimits,
        random: () => 0,
        onKeyRejected: () => undefined,
        isDown: () => false,
      },
      idempotency: {
        storeEffect() {
          throw new Error("cannot be sealed");
        },
      } as never,
      deadlines,
      isAborting: () => isAborting,
    },
    new ChatEndpoint(owned.clock, noTools),
    admitted,
  );
  const outcome = completing.then(
    ({ kind }) => kind,
    (error) => (error as { code?: string }).code ?? (error as Error).message,
  );
  return { payer, hold, log, outcome, calls, cutShort };
}

const answering = async () => new OpenAiCompletion(structuredClone(answer), "req_1");

async function billsOf({ payer }: Asked): Promise<[string, bigint, number | null][]> {
  const rows = await owned.sql`
    SELECT type, amount_nano, status FROM transactions
    WHERE organization_id = ${payer.organizationId} AND sequence > 1 ORDER BY sequence`;
  return rows.map(({ type, amount_nano, status }) => [type, amount_nano, status]);
}

async function expectOver(): Promise<void> {
  await until("no hold is left", () => owned.money.outstandingHolds === 0);
  expect(await faultsOf(owned.sql)).toEqual([]);
}

test("an answer leaves after its charge is durable", async () => {
  const asked = await ask(async () => {
    unlock = await lockAccount(owned.sql, `org:${asked.payer.organizationId}`);
    return answering();
  });
  let unlock: (() => Promise<unknown>) | undefined;
  let isAnswered = false;
  void asked.outcome.then(() => {
    isAnswered = true;
  });
  await untilWaiting(owned.sql);
  expect(isAnswered).toBe(false);
  await unlock!();
  expect(await asked.outcome).toBe("whole");
  expect(await billsOf(asked)).toEqual([["usage", -5n, 200]]);
  await expectOver();
});

test("a failure between the provider's answer and its charge costs nothing and holds nothing", async () => {
  const asked = await ask(answering, { failsToStore: true });
  expect(await asked.outcome).toBe("cannot be sealed");
  expect(await billsOf(asked)).toEqual([]);
  await expectOver();
});

test("a client that was gone before the provider was called costs nothing, and nobody is called", async () => {
  const client = new AbortController();
  client.abort();
  const asked = await ask(answering, { client });
  expect(await asked.outcome).toBe("client_closed_request");
  expect(asked.calls).toEqual([]);
  expect(await billsOf(asked)).toEqual([]);
  await expectOver();
});

test("a client that leaves while the provider works stops it, and pays for what it has produced: nothing", async () => {
  const client = new AbortController();
  const asked = await ask(
    ({ signal }) =>
      new Promise((_, reject) => {
        signal.addEventListener("abort", () => reject(new Error("aborted")));
      }),
    { client },
  );
  await until("the provider is called", () => asked.calls.length === 1);
  client.abort();
  await asked.outcome;
  expect(asked.calls[0]!.signal.aborted).toBe(true);
  expect(await billsOf(asked)).toEqual([]);
  await expectOver();
});

test("a client that leaves when the answer is there pays for it, as 499", async () => {
  const client = new AbortController();
  const asked = await ask(
    async () => {
      client.abort();
      return answering();
    },
    { client },
  );
  expect(await asked.outcome).toBe("client_closed_request");
  expect(await billsOf(asked)).toEqual([["usage", -5n, 499]]);
  await expectOver();
});

test("an answer whose charge takes too long fails with 503, and what is posted in the end is given back", async () => {
  const asked = await ask(async () => {
    unlock = await lockAccount(owned.sql, `org:${asked.payer.organizationId}`);
    return answering();
  });
  let unlock: (() => Promise<unknown>) | undefined;
  await untilWaiting(owned.sql);
  owned.clock.advance(1_800);
  expect(await asked.outcome).toBe("database_unavailable");
  expect(owned.money.outstandingHolds).toBe(1);
  await unlock!();
  await until("it is given back", async () => (await billsOf(asked)).length === 2);
  expect(await billsOf(asked)).toEqual([
    ["usage", -5n, 200],
    ["refund", 5n, null],
  ]);
  await expectOver();
});

const silent: NonNullable<Provider["chat"]> = ({ signal }) =>
  new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(new Error("aborted")));
  });

test("a request that is cut short by the end of the process is told so, and costs nothing", async () => {
  const asked = await ask(silent);
  await until("the provider is called", () => asked.calls.length === 1);
  asked.cutShort();
  expect(await asked.outcome).toBe("overloaded");
  expect(asked.calls[0]!.signal.aborted).toBe(true);
  expect(await billsOf(asked)).toEqual([]);
  await expectOver();
});

test("a provider that does not answer within the total timeout costs nothing", async () => {
  const asked = await ask(silent);
  await until("the provider is called", () => asked.calls.length === 1);
  owned.clock.advance(TOTAL_TIMEOUT_MS);
  expect(await asked.outcome).toBe("provider_timeout");
  expect(asked.log.costNano).toBe(0n);
  expect(await billsOf(asked)).toEqual([]);
  await expectOver();
});
