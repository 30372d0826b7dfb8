import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { startUpstream, type Upstream } from "../upstream/server.ts";

/** Ids of the catalogue, and the names that an operator gave to the deployments. */
const DEPLOYMENTS = { "openai/gpt-5-mini": "prod-small", "openai/gpt-4o-mini": "prod-old" };

let upstream: Upstream;
let gateway: TestGateway;
beforeAll(async () => {
  upstream = await startUpstream();
  gateway = await startTestGateway({
    configuration: {
      providers: [{ id: "azure", type: "azure", base_url: upstream.baseUrl, api_key: "k" }],
      models: Object.entries(DEPLOYMENTS).map(([id, model]) => ({
        id,
        endpoints: [{ provider: "azure", model }],
      })),
    },
  });
});
afterAll(async () => {
  await upstream.stop();
  await gateway.stop();
});

test.each([
  ["openai/gpt-5-mini", "max_completion_tokens"],
  ["openai/gpt-4o-mini", "max_tokens"],
] as const)("%s gets its limit as %s, whatever its deployment is called", async (model, name) => {
  const messages = [{ role: "user", content: "hi" }];
  for (const asked of ["max_tokens", "max_completion_tokens"]) {
    for (const stream of [false, true]) {
      const body = { model, messages, [asked]: 7, stream };
      const response = await gateway.request("POST", "/v1/chat/completions", body);
      expect(response.status).toBe(200);
      await response.arrayBuffer();
      const { stream_options: _, ...sent } = upstream.served.at(-1)!.requestBody!;
      const streamed = stream ? { stream } : {};
      expect(sent).toEqual({ model: DEPLOYMENTS[model], messages, [name]: 7, ...streamed });
    }
  }
});
