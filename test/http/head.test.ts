import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sendRaw } from "../support/raw-http.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test.each(["/healthz", "/v1/models", "/v1/keys", "/openapi.json", "/docs/", "/docs/api-reference"])(
  "HEAD %s tells the status and the length that GET has, or no length, and sends no body",
  async (path) => {
    const get = await sendRaw(gateway, { method: "GET", path });
    const head = await sendRaw(gateway, { method: "HEAD", path });
    expect(head.status).toBe(get.status);
    expect(await head.text()).toBe("");
    const length = head.headers.get("content-length");
    expect([null, get.headers.get("content-length")]).toContain(length);
    expect(length).not.toBe("0");
    expect(head.headers.get("content-type")).toBe(get.headers.get("content-type"));
  },
);
