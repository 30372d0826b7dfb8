import { expect } from "bun:test";
import type { Recipe } from "./recipe.ts";

const TYPE = `import type { ProviderType } from "./definition.ts";

export const vendorx: ProviderType = {
  displayName: "Vendor X",
  wire: "openai",
  defaultBaseUrl: "https://api.vendorx.example/v1",
  environmentPrefix: "VENDORX",
  genaiPricesId: "groq",
  fields: { unsupported: ["n", "logprobs"], supported: ["top_k"] },
  extraFields: ["vendor_mode"],
  unsupportedParts: ["image"],
  openAi: { keyHeader: "x-vendor-key" },
};
`;
const KEY = "vx-0123456789abcdef";
const MODEL = "llama-3.3-70b-versatile";

interface Received {
  readonly path: string;
  readonly headers: Headers;
  readonly body: unknown;
}

const received: Received[] = [];
/** The vendor. It answers requests that have the key in its header. */
const vendor = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  async fetch(request) {
    const path = new URL(request.url).pathname;
    const text = await request.text();
    received.push({ path, headers: request.headers, body: text && JSON.parse(text) });
    if (request.headers.get("x-vendor-key") !== KEY) {
      return Response.json({ error: { message: "no key" } }, { status: 401 });
    }
    if (path.endsWith("/models")) return Response.json({ object: "list", data: [{ id: MODEL }] });
    const message = { role: "assistant", content: "Hello from the vendor." };
    return Response.json({
      id: "x-1",
      object: "chat.completion",
      model: MODEL,
      choices: [{ index: 0, message, finish_reason: "stop" }],
      usage: { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 },
    });
  },
});
vendor.unref();

/** A vendor with OpenAI's wire format, another header for its key, and a field that no other vendor has. */
export const provider: Recipe = {
  heading: "A provider of OpenAI's wire format",
  edits: [
    {
      path: "src/platform/config/provider-types.ts",
      change: [
        {
          before: 'import { xai } from "./provider-types/xai.ts";\n',
          insert: 'import { vendorx } from "./provider-types/vendorx.ts";\n',
        },
        { before: '  vllm,\n  sglang,\n  "llama-cpp"', insert: "  vendorx,\n" },
      ],
    },
    { path: "src/platform/config/provider-types/vendorx.ts", change: TYPE },
  ],
  environment: { VENDORX_API_KEY: KEY, VENDORX_BASE_URL: `http://127.0.0.1:${vendor.port}/v1` },
  async prove({ call, read }) {
    expect(read("docs/reference/configuration-providers.md")).toContain("VENDORX_API_KEY");
    const { body: models } = await call("GET", "/v1/models", { key: "secret" });
    const ids = (models.data as { id: string }[]).map(({ id }) => id);
    const model = ids.find((id) => id.includes("llama-3.3"));
    const chat = (fields: object) =>
      call("POST", "/v1/chat/completions", {
        key: "secret",
        body: { model, messages: [{ role: "user", content: "hi" }], ...fields },
      });
    expect(await chat({ top_k: 3, vendor_mode: "fast" })).toMatchObject({
      status: 200,
      body: { choices: [{ message: { content: "Hello from the vendor." } }] },
    });
    const [sent] = received.filter(({ path }) => path.endsWith("/chat/completions"));
    expect(sent!.body).toMatchObject({ top_k: 3, vendor_mode: "fast" });
    for (const { headers } of received) {
      expect(headers.get("x-vendor-key")).toBe(KEY);
      expect(headers.get("authorization")).toBeNull();
    }
    expect(received.map(({ path }) => path)).toContain("/v1/models");
    expect(await chat({ n: 2 })).toMatchObject({
      status: 400,
      body: { error: { code: "unsupported_parameter" } },
    });
    const image = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } };
    expect(await chat({ messages: [{ role: "user", content: [image] }] })).toMatchObject({
      status: 400,
    });
    await vendor.stop(true);
  },
};
