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
  "a client's idempotency key is never found under the keys of calls for %s_…",
  async (kind) => {
    const owner = newId(kind);
    const body = { model: "sandbox/chat", messages: [{ role: "user", content: "planted" }] };
    for (const key of ["1", `${owner}:1`, `${owner}/1`]) {
      const headers = { "idempotency-key": key };
      const answer = await gateway.request("POST", "/v1/chat/completions", body, { headers });
      expect(answer.status).toBe(200);
      expect((await claimsAmong(gateway.sql, owner, [key, "1"])).size).toBe(0);
    }
  },
);
