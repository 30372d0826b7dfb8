import { afterAll, beforeAll, expect, test } from "bun:test";
import { claimsAmong } from "../../db/queries/idempotency.ts";
import { newId } from "../../src/lib/ids.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test.each(["batch", "vsf"])(
  "a client's idempotency key is never found where calls of a former release for %s_… are looked for",
  async (kind) => {
    const key = `${newId(kind)}:1`;
    const chat = async (idempotencyKey: string) => {
      const body = { model: "sandbox/chat", messages: [{ role: "user", content: "planted" }] };
      const headers = { "idempotency-key": idempotencyKey };
      const answer = await gateway.request("POST", "/v1/chat/completions", body, { headers });
      const { id } = (await answer.json()) as { id: string };
      const isReplay = answer.headers.get("x-gateway-idempotent-replay") === "true";
      return { status: answer.status, id, isReplay };
    };
    const first = await chat(key);
    expect(first).toMatchObject({ status: 200, isReplay: false });
    const [caller] = await gateway.sql<{ key_id: string }[]>`
      SELECT key_id FROM transactions WHERE type = 'usage' ORDER BY sequence DESC LIMIT 1`;
    expect((await claimsAmong(gateway.sql, caller!.key_id, [key])).size).toBe(0);
    // For clients it is a key like any other.
    expect(await chat(key)).toEqual({ ...first, isReplay: true });
    const another = await chat(`client:${key}`);
    expect(another).toMatchObject({ status: 200, isReplay: false });
    expect(another.id).not.toBe(first.id);
  },
);
