import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { image } from "../support/image-heads.ts";
import { startImageUpstream } from "../support/image-upstream.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";

/** Built-in models of providers with wires of their own, through the whole gateway. */

const upstream = startImageUpstream();
const PNG = Buffer.from(image("png", 1_024, 1_024));
const BASE64 = PNG.toString("base64");

let gateway: TestGateway;
beforeAll(async () => {
  const provider = (type: string, path: string) => ({
    id: type,
    type,
    base_url: upstream.origin + path,
    api_key: "key-of-the-test-0123456789",
  });
  gateway = await startTestGateway({
    plan: "enterprise",
    environment: {
      GATEWAY_MODEL_LISTS_SECONDS: "0",
      GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
    },
    configuration: {
      providers: [
        provider("stability", "/v2beta"),
        provider("bfl", "/v1"),
        provider("fal", "/queue"),
        provider("google", "/v1beta"),
      ],
    },
  });
});
beforeEach(() => {
  upstream.asked.length = 0;
});
afterAll(async () => {
  await expectBooksClosed(gateway);
  await gateway.stop();
  await upstream.stop();
});

const generate = (model: string, more: object = {}) =>
  gateway.request("POST", "/v1/images/generations", {
    model,
    prompt: "a boat",
    response_format: "b64_json",
    ...more,
  });
const chargedNano = async (answered: Response) =>
  Number((await billOfResponse(gateway, answered)).chargeNano);

describe("an image of", () => {
  test("Stability AI comes in base64 and costs what one costs", async () => {
    upstream.answer = () => Response.json({ image: BASE64, finish_reason: "SUCCESS" });
    const answered = await generate("stability/stable-image-core", { size: "1024x1024" });
    expect(await answered.json()).toMatchObject({ data: [{ b64_json: BASE64 }] });
    expect(await chargedNano(answered)).toBe(30_000_000);
    expect(upstream.asked[0]!.body).toContainEqual(["aspect_ratio", "1:1"]);
  });

  test("Black Forest Labs is asked for until it is there, and fetched", async () => {
    upstream.answer = ({ method, path }) => {
      if (method === "POST") return Response.json({ id: "t" });
      if (path === "/sample.png")
        return new Response(PNG, { headers: { "content-type": "image/png" } });
      const sample = `${upstream.origin}/sample.png`;
      return Response.json({ id: "t", status: "Ready", result: { sample } });
    };
    const answered = await generate("bfl/flux-kontext-pro", { aspect_ratio: "16:9" });
    expect(await answered.json()).toMatchObject({ data: [{ b64_json: BASE64 }] });
    expect(await chargedNano(answered)).toBe(40_000_000);
    const fetched = upstream.asked.find(({ path }) => path === "/sample.png");
    expect(fetched!.headers.get("x-key")).toBeNull();
  });

  test("fal waits in its queue, several at once", async () => {
    const base = `${upstream.origin}/queue/fal-ai/nano-banana/requests/r`;
    upstream.answer = ({ method, path }) => {
      if (method === "POST")
        return Response.json({ status_url: `${base}/status`, response_url: base });
      if (path.endsWith("/status")) return Response.json({ status: "COMPLETED" });
      if (path === "/1.png") return new Response(PNG, { headers: { "content-type": "image/png" } });
      return Response.json({ images: Array(2).fill({ url: `${upstream.origin}/1.png` }) });
    };
    const answered = await generate("fal/fal-ai/nano-banana", { n: 2 });
    expect(await answered.json()).toMatchObject({ data: [{ b64_json: BASE64 }, {}] });
    expect(await chargedNano(answered)).toBe(78_000_000);
  });

  test("Gemini costs what its tokens cost", async () => {
    upstream.answer = () =>
      Response.json({
        candidates: [
          { content: { parts: [{ inlineData: { mimeType: "image/png", data: BASE64 } }] } },
        ],
        usageMetadata: {
          promptTokenCount: 10,
          candidatesTokenCount: 1_290,
          candidatesTokensDetails: [{ modality: "IMAGE", tokenCount: 1_290 }],
        },
      });
    const answered = await generate("google/gemini-2.5-flash-image");
    expect(await answered.json()).toMatchObject({ data: [{ b64_json: BASE64 }] });
    expect(await chargedNano(answered)).toBe(10 * 300 + 1_290 * 30_000);
  });
});

describe("a refusal", () => {
  test("by a filter is 400 content_policy_violation and costs nothing", async () => {
    upstream.answer = () =>
      Response.json({ id: "1", name: "content_moderation", errors: ["No."] }, { status: 403 });
    const answered = await generate("stability/stable-image-ultra");
    expect(answered.status).toBe(400);
    expect(await answered.json()).toMatchObject({ error: { code: "content_policy_violation" } });
  });

  test("of a field that the model does not have names it, and no provider is asked", async () => {
    for (const [param, more] of Object.entries({
      n: { n: 2 },
      background: { background: "transparent" },
      size: { size: "1792x1024" },
    })) {
      const answered = await generate("stability/stable-image-core", more);
      expect(await answered.json()).toMatchObject({
        error: { code: "unsupported_parameter", param },
      });
    }
    expect(upstream.asked).toEqual([]);
  });
});
