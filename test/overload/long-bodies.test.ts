import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { startUpstreamProcess, type UpstreamProcess } from "../crash/upstream-process.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { measureLoopHold, shortestHoldMs } from "../support/loop-hold.ts";

const MEBIBYTE = 1_048_576;
const LARGEST_BYTES = 31 * MEBIBYTE;
/** A body of this size is still parsed on the event loop (src/lib/json.ts). */
const QUICK_BYTES = 0.95 * MEBIBYTE;
/** Contract, section 4. */
const MAX_HOLD_MS = 50;
const MEMBERS = 199_900;

let upstream: UpstreamProcess;
let gateway: TestGateway;
beforeAll(async () => {
  upstream = await startUpstreamProcess();
  const model = (slug: string, providers: readonly string[]) => ({
    id: `test/${slug}`,
    category: "chat",
    context_length: 128_000,
    max_output_tokens: 4_096,
    input_cost_per_token: 1e-9,
    output_cost_per_token: 1e-9,
    endpoints: providers.map((provider) => ({ provider, model: `${slug}-${provider}` })),
  });
  gateway = await startTestGateway({
    startingCreditUsd: 1_000,
    configuration: {
      providers: ["openai", "mistral"].map((type) => ({
        id: type,
        type,
        base_url: upstream.baseUrl,
        api_key: "sk-upstream-0123456789",
      })),
      models: [model("one", ["openai"]), model("two", ["openai", "mistral"])],
    },
  });
});
afterAll(async () => {
  await gateway.stop();
  await upstream.stop();
});

const list = (length: number, of: (n: number) => string) => Array.from({ length }, (_, n) => of(n));
const members = () => list(MEMBERS, (n) => `"k${n}":1`).join(",");

/** What takes most time for its bytes, behind the model of a body. */
const BODIES: Readonly<Record<string, () => string>> = {
  "members of one field": () => `"messages":[{"role":"user","content":"hi"}],"x":{${members()}}`,
  "unknown fields": () => `"messages":[{"role":"user","content":"hi"}],${members()}`,
  messages: () =>
    `"messages":[${list(MEMBERS / 3 - 10, () => '{"role":"user","content":"a"}').join(",")}]`,
  elements: () =>
    `"messages":[{"role":"user","content":"hi"}],"x":[${list(999_000, () => "1").join(",")}]`,
  "31 MB of escapes": () =>
    `"messages":[{"role":"user","content":"${"\\u00e9".repeat(LARGEST_BYTES / 6)}"}]`,
  "31 MB of text": () =>
    `"messages":[{"role":"user","content":"${"word ".repeat(LARGEST_BYTES / 5)}"}]`,
  "1 MB of escapes": () =>
    `"messages":[{"role":"user","content":"${"\\u00e9".repeat(QUICK_BYTES / 6)}"}]`,
  "1 MB of text": () =>
    `"messages":[{"role":"user","content":"${"word ".repeat(QUICK_BYTES / 5)}"}]`,
};

const post = (body: string | Uint8Array<ArrayBuffer>) =>
  fetch(`${gateway.baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${gateway.secretKey}`,
      "content-type": "application/json",
    },
    body,
  });

describe.each(["sandbox/chat", "test/one", "test/one, streamed"])("%s", (to) => {
  const [model, stream] = to.split(", ");
  const head = `{"model":"${model}","max_tokens":20,"stream":${stream !== undefined},`;

  test.each(Object.keys(BODIES))(
    "a body of %s does not hold the event loop longer than a moment",
    async (name) => {
      // The thread and the code are there with the first call.
      expect((await post(`${head}"messages":[{"role":"user","content":"a"}]}`)).status).toBe(200);
      const body = new Uint8Array(Buffer.from(`${head}${BODIES[name]!()}}`));
      const holdMs = await shortestHoldMs(MAX_HOLD_MS, async () => {
        const sent = post(body);
        // This process is the client too, which copies the body.
        await Bun.sleep(0);
        const hold = measureLoopHold();
        const response = await sent;
        const text = await response.text();
        const heldMs = hold.stop();
        expect([response.status, text.slice(0, 300)]).toEqual([200, expect.any(String)]);
        return heldMs;
      });
      console.log(`${to}, ${name}: ${holdMs.toFixed(1)} ms`);
      expect(holdMs).toBeLessThan(MAX_HOLD_MS);
    },
    60_000,
  );
});

test("a fallback gets the whole body again, in the form that its provider takes", async () => {
  await upstream.behave("two-openai", { do: "error", status: 500 });
  const messages = list(20_000, (n) => ({ role: "user", content: `message ${n}` }) as never);
  const body = { model: "test/two", max_tokens: 5, seed: 7, frequency_penalty: 1, messages };
  await upstream.takeServed();
  const response = await post(JSON.stringify(body));
  expect(response.status).toBe(200);
  const served = await upstream.takeServed();
  expect(served.map((one) => one.requestBody)).toEqual([
    { model: "two-openai", max_tokens: 5, seed: 7, frequency_penalty: 1, messages },
    { model: "two-mistral", max_tokens: 5, random_seed: 7, frequency_penalty: 1, messages },
  ] as never);
  await billOfResponse(gateway, response);
}, 60_000);

test("the books are closed afterwards", () => expectBooksClosed(gateway));
