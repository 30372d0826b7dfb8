import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { billOf, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";

type Fields = Record<string, unknown>;
type Init = RequestInit & { key?: string };

const MOST = 4;
let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: { GATEWAY_MAX_BACKGROUND_RESPONSES: String(MOST), GATEWAY_KEEPALIVE_MS: "50" },
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const GONE = "previous_response_not_found";
/** Goes on until it is ended. */
const ENDLESS = { do: "endless", delayMs: 5 } as const;
const WORDS = Array.from({ length: 40 }, (_, at) => `word ${at} `).join("");
const PACED = { do: "complete", content: WORDS, events: 40, delayMs: 10 } as const;

const send = (body: Fields, init?: Init) =>
  gateway.request("POST", "/v1/responses", { input: "hello", background: true, ...body }, init);
const get = (path: string, init?: Init) =>
  gateway.request("GET", `/v1/responses/${path}`, undefined, init);
const cancel = (id: unknown, init?: Init) =>
  gateway.request("POST", `/v1/responses/${id}/cancel`, undefined, init);
const jsonOf = async (response: Response) => (await response.json()) as Fields;
const requestOf = (id: unknown) => String(id).replace("resp_", "req_");

async function begin(body: Fields, init?: Init): Promise<Fields> {
  const response = await send(body, init);
  const begun = await jsonOf(response);
  expect([response.status, begun.error ?? null]).toEqual([200, null]);
  assertOpenResponses("ResponseResource", begun);
  return begun;
}

async function found(id: unknown): Promise<Fields> {
  const response = await get(String(id));
  expect(response.status).toBe(200);
  const object = await jsonOf(response);
  assertOpenResponses("ResponseResource", object);
  return object;
}

function whenStatus(id: unknown, ...statuses: string[]): Promise<Fields> {
  return until(`${id} is ${statuses}`, async () => {
    const response = await found(id);
    return statuses.includes(response.status as string) && response;
  });
}

async function expectError(response: Response, status: number, code: string): Promise<void> {
  expect(await response.json()).toMatchObject({ error: { code } });
  expect(response.status).toBe(status);
}

const textOf = ({ output }: Fields) =>
  ((output as Fields[])[0]!.content as Fields[]).map(({ text }) => text).join("");

describe("a background response", () => {
  test("answers at once as queued, runs to its end without its client, and is charged as any", async () => {
    const model = `test/${gateway.modelThat({ ...PACED, firstDelayMs: 150 })}`;
    const begun = await begin({ model, metadata: { a: "b" } });
    expect(begun).toMatchObject({ status: "queued", background: true, output: [], usage: null });
    expect((await found(begun.id)).status).toBe("queued");
    const running = await whenStatus(begun.id, "in_progress");
    expect(running).toMatchObject({ output: [], completed_at: null, metadata: { a: "b" } });
    const input = await jsonOf(await get(`${begun.id}/input_items`));
    expect(input.data).toMatchObject([{ role: "user" }]);
    await expectError(await send({ model, previous_response_id: begun.id }), 400, GONE);
    const ended = await whenStatus(begun.id, "completed");
    expect(textOf(ended)).toBe(WORDS);
    expect(await billOf(gateway, requestOf(begun.id))).toMatchObject({ status: 200 });
    expect(await jsonOf(await get(`${begun.id}/input_items`))).toEqual(input);
    const next = await send({ model, background: false, previous_response_id: begun.id });
    expect(next.status).toBe(200);
  });

  test("streams its events, and any of them again with the numbers that they had", async () => {
    const model = `test/${gateway.modelThat(PACED)}`;
    const streamed = await send({ model, stream: true });
    expect(streamed.headers.get("content-type")).toStartWith("text/event-stream");
    const text = await streamed.text();
    const events = responseEvents(text);
    expect(events.slice(0, 4).map(({ type }) => type)).toEqual([
      "response.created",
      "response.queued",
      "response.in_progress",
      "response.output_item.added",
    ]);
    const { response } = events.at(-1) as { response: Fields };
    expect(response).toEqual(await found(response.id));
    expect(textOf(response)).toBe(WORDS);
    expect(withoutComments(await (await get(`${response.id}?stream=true`)).text())).toBe(
      withoutComments(text),
    );
    for (const after of [0, 1, 2, 20, events.length - 2, events.length - 1, events.length + 5]) {
      const again = await get(`${response.id}?stream=true&starting_after=${after}`);
      expect(eventsIn(await again.text())).toEqual(events.slice(after + 1));
    }
  });

  test("is followed from a number while it runs, by several at once", async () => {
    const model = `test/${gateway.modelThat({ ...PACED, delayMs: 25 })}`;
    const { id } = await begin({ model });
    await whenStatus(id, "in_progress");
    const [all, rest] = await Promise.all(
      ["", "&starting_after=9"].map(async (from) => (await get(`${id}?stream=true${from}`)).text()),
    );
    const events = responseEvents(all!);
    expect(eventsIn(rest!)).toEqual(events.slice(10));
    expect(events.at(-1)!.type).toBe("response.completed");
  });

  test("goes on where the client of its stream leaves", async () => {
    const model = `test/${gateway.modelThat({ ...PACED, firstDelayMs: 200 })}`;
    const leaving = new AbortController();
    const { body } = await send({ model, stream: true }, { signal: leaving.signal });
    const first = await body!.getReader().read();
    const [, id] = /"id":"(resp_[0-9a-f]+)"/.exec(Buffer.from(first.value!).toString())!;
    leaving.abort();
    expect(textOf(await whenStatus(id, "completed"))).toBe(WORDS);
  });

  test("that is cancelled ends, charged for what was produced", async () => {
    const model = `test/${gateway.modelThat(ENDLESS)}`;
    const { id } = await begin({ model });
    const stream = get(`${id}?stream=true`).then((response) => response.text());
    await whenStatus(id, "in_progress");
    await until("something is followed", async () => (await found(id)).status === "in_progress");
    const ended = await jsonOf(await cancel(id));
    assertOpenResponses("ResponseResource", ended);
    expect(ended).toMatchObject({ id, status: "cancelled" });
    expect(textOf(ended).length).toBeGreaterThan(0);
    expect(await found(id)).toEqual(ended);
    const bill = (await billOf(gateway, requestOf(id)))!;
    expect(bill.status).toBe(499);
    expect(bill.completionTokens).toBeGreaterThan(0);
    const events = responseEvents(await stream);
    expect(events.at(-1)).toMatchObject({ type: "response.incomplete", response: ended });
    expect(await jsonOf(await cancel(id))).toEqual(ended);
    await expectError(await send({ model, previous_response_id: id }), 400, GONE);
  });

  test("whose events cannot be written any more costs nothing, unless they are followed as a stream", async () => {
    for (const stream of [false, true]) {
      const model = `test/${gateway.modelThat(ENDLESS)}`;
      const response = await send({ model, stream });
      const requestId = response.headers.get("x-gateway-request-id")!;
      const id = requestId.replace("req_", "resp_");
      void response.text().catch(() => undefined);
      await whenStatus(id, "in_progress");
      // As for an instance that was declared dead.
      await gateway.sql`UPDATE background_responses SET state = 'failed' WHERE id = ${id}`;
      const bill = await until("it is settled", () => billOf(gateway, requestId));
      if (stream) expect(bill.chargeNano).toBeGreaterThan(0n);
      else expect(bill.chargeNano).toBe(0n);
      expect(await found(id)).toMatchObject({ status: "failed" });
    }
  });

  test("is not said to have failed while its charge is being written, though its time is up", async () => {
    const hasty = await startChatGateway({
      environment: { GATEWAY_UPSTREAM_TOTAL_TIMEOUT_MS: "1500" },
    });
    try {
      const model = `test/${hasty.modelThat({ do: "complete", content: "word" })}`;
      const body = { model, input: "hello", background: true };
      const read = async (id: string) =>
        jsonOf(await hasty.request("GET", `/v1/responses/${id}`)) as Promise<Fields>;
      let id = "";
      await hasty.sql.begin(async (transaction) => {
        await transaction`LOCK TABLE transactions IN SHARE ROW EXCLUSIVE MODE`;
        id = String((await jsonOf(await hasty.request("POST", "/v1/responses", body))).id);
        await until("its charge waits", async () => {
          const [row] = await transaction`SELECT count(*)::int AS count FROM pg_locks
            WHERE relation = 'transactions'::regclass AND NOT granted`;
          return row!.count > 0;
        });
        const beganMs = performance.now();
        await until("its time is up", async () => {
          expect((await read(id)).status).not.toBe("failed");
          return performance.now() - beganMs > 2_500;
        });
      });
      const ended = await until("it is answered", async () => {
        const response = await read(id);
        expect(response.status).not.toBe("failed");
        return response.status === "completed" && response;
      });
      const bill = (await billOf(hasty, requestOf(id)))!;
      expect((ended.usage as Fields).cost).toBe(Number(bill.chargeNano) / 1e9);
    } finally {
      await hasty.stop();
    }
  });

  test("that is cancelled before its provider answers costs nothing", async () => {
    const model = `test/${gateway.modelThat({ do: "stall" })}`;
    const { id } = await begin({ model });
    expect(await jsonOf(await cancel(id))).toMatchObject({ status: "cancelled", output: [] });
    expect(await billOf(gateway, requestOf(id))).toBeUndefined();
  });

  test("that fails says why, before the first event and in mid-stream", async () => {
    const before = await begin({
      model: `test/${gateway.modelThat({ do: "error", status: 400 })}`,
    });
    expect(await whenStatus(before.id, "failed")).toMatchObject({ output: [], error: {} });
    expect(await billOf(gateway, requestOf(before.id))).toBeUndefined();
    const cut = { do: "cut", content: WORDS, events: 40, afterEvents: 20 } as const;
    const amid = await begin({ model: `test/${gateway.modelThat(cut)}` });
    const failed = await whenStatus(amid.id, "failed");
    expect(failed).toMatchObject({ error: { code: "provider_error" } });
    expect(WORDS).toStartWith(textOf(failed));
    expect((await billOf(gateway, requestOf(amid.id)))!.completionTokens).toBeGreaterThan(0);
    for (const id of [before.id, amid.id]) {
      const events = eventsIn(await (await get(`${id}?stream=true`)).text());
      expect(events.map(({ sequence_number: number }) => number)).toEqual(
        events.map((_, at) => at),
      );
      const { type, response } = events.at(-1)!;
      expect([type, response]).toEqual(["response.failed", await found(id)]);
    }
  });

  test("is deleted with its events, while it runs too", async () => {
    const model = `test/${gateway.modelThat(ENDLESS)}`;
    const { id } = await begin({ model });
    await whenStatus(id, "in_progress");
    const deleted = await gateway.request("DELETE", `/v1/responses/${id}`);
    expect(await deleted.json()).toMatchObject({ id, deleted: true });
    await expectError(await get(String(id)), 404, "response_not_found");
    await expectError(await get(`${id}?stream=true`), 404, "response_not_found");
    const [left] = await gateway.sql`
      SELECT count(*)::int AS rows FROM response_contents WHERE response_id = ${String(id)}`;
    expect(left!.rows).toBe(0);
    await until("it is charged", () => billOf(gateway, requestOf(id)));
  });

  test("is refused at once for what refuses any call, and beyond the number of an organization", async () => {
    const model = `test/${gateway.modelThat(ENDLESS)}`;
    await expectError(await send({ model: "test/none" }), 404, "model_not_found");
    await expectError(await send({ model, store: false }), 400, "invalid_body");
    const poor = await gateway.addOrganization({ creditUsd: 0 });
    const unpaid = await send({ model }, { key: poor.secretKey });
    await expectError(unpaid, 402, "insufficient_credits");
    const sent = await Promise.all(Array.from({ length: MOST + 3 }, () => send({ model })));
    const refused = sent.filter(({ status }) => status === 429);
    expect(refused).toHaveLength(3);
    for (const response of refused) {
      expect(response.headers.get("retry-after")).not.toBeNull();
      await expectError(response, 429, "too_many_background_responses");
    }
    const other = await gateway.addOrganization();
    const own = await jsonOf(await send({ model }, { key: other.secretKey }));
    expect(own.status).toBe("queued");
    await expectError(await cancel(own.id), 404, "response_not_found");
    await expectError(await get(`${own.id}?stream=true`), 404, "response_not_found");
    expect((await cancel(own.id, { key: other.secretKey })).status).toBe(200);
    for (const response of sent.filter(({ status }) => status === 200)) {
      expect((await cancel((await jsonOf(response)).id)).status).toBe(200);
    }
    expect((await cancel((await begin({ model })).id)).status).toBe(200);
  });

  test("takes up no place where it could not begin", async () => {
    const model = `test/${gateway.modelThat({ do: "complete" })}`;
    await gateway.sql`CREATE FUNCTION refuse_beginnings() RETURNS trigger LANGUAGE plpgsql AS
      'BEGIN RAISE EXCEPTION ''no room''; END'`;
    await gateway.sql`CREATE TRIGGER refuse_beginnings BEFORE INSERT ON response_contents
      FOR EACH ROW WHEN (NEW.part LIKE 'begun%') EXECUTE FUNCTION refuse_beginnings()`;
    for (let at = 0; at < MOST; at++) expect((await send({ model })).status).toBe(500);
    await gateway.sql`DROP FUNCTION refuse_beginnings CASCADE`;
    const { id } = await begin({ model });
    await whenStatus(id, "completed");
  });

  test("leaves no place taken by clients that are gone before their streams begin", async () => {
    const model = `test/${gateway.modelThat({ do: "complete" })}`;
    const { id } = await begin({ model });
    await whenStatus(id, "completed");
    for (let at = 0; at < 300; at++) {
      const leaving = new AbortController();
      const asked = get(`${id}?stream=true`, { signal: leaving.signal }).catch(() => undefined);
      await Bun.sleep(at % 4);
      leaving.abort();
      await asked;
    }
    const followed = await until("there is room", async () => {
      const response = await get(`${id}?stream=true`);
      return response.status === 200 && response;
    });
    expect(await followed.text()).toContain("[DONE]");
  });

  test("has one response for one idempotency key, which a second request follows", async () => {
    const slug = gateway.modelThat(PACED);
    const body = { model: `test/${slug}`, metadata: { idempotency_key: crypto.randomUUID() } };
    const [first, second] = await Promise.all([begin(body), begin(body)]);
    expect(second).toEqual(first);
    await whenStatus(first.id, "completed");
    const again = await send(body);
    expect(again.headers.get("x-gateway-idempotent-replay")).toBe("true");
    expect(await again.json()).toEqual(first);
    expect(gateway.upstream.servedOf(slug)).toHaveLength(1);
    const streamed = { ...body, stream: true, metadata: { idempotency_key: crypto.randomUUID() } };
    const texts = await Promise.all(
      [0, 1].map(async () => withoutComments(await (await send(streamed)).text())),
    );
    expect(texts[1]).toBe(texts[0]!);
    expect(gateway.upstream.servedOf(slug)).toHaveLength(2);
  });

  test("alone can be cancelled or followed", async () => {
    const model = `test/${gateway.modelThat({ do: "complete", content: "whole" })}`;
    const { id } = await jsonOf(await send({ model, background: false }));
    await expectError(await cancel(id), 400, "response_not_cancellable");
    await expectError(await get(`${id}?stream=true`), 400, "unsupported_parameter");
    await expectError(await get(`${id}?starting_after=1`), 400, "invalid_query");
    await expectError(await cancel("resp_none"), 404, "response_not_found");
  });
});

const withoutComments = (text: string) => text.replaceAll(": keepalive\n\n", "");

/** Of a part of a stream. */
function eventsIn(text: string): Fields[] {
  const frames = text.split("\n\n").filter((frame) => frame.startsWith("event:"));
  return frames.map((frame) => JSON.parse(frame.slice(frame.indexOf("data: ") + 6)) as Fields);
}
