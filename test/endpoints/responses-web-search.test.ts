import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { chargeNanoUsd } from "../../src/lib/money.ts";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { billOfResponse, expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";
import { htmlPage, type SearchUpstream, startSearchUpstream } from "../support/search-upstream.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

/** The tool `web_search` of responses, which the gateway runs for the model. */

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const SEARCH_FEMTO = 5_000_000_000_000n;
const FEE = 400n;

let gateway: ChatGateway;
let bare: ChatGateway;
let searches: SearchUpstream;
beforeAll(async () => {
  searches = startSearchUpstream();
  gateway = await startChatGateway({
    environment: {
      GATEWAY_SEARCH_BACKEND: "brave",
      GATEWAY_SEARCH_URL: searches.url,
      GATEWAY_SEARCH_API_KEY: "search-secret-0123456789",
      GATEWAY_EGRESS_ALLOW: "127.0.0.0/8",
      GATEWAY_WEBHOOK_ALLOW_HTTP: "true",
    },
  });
  bare = await startChatGateway({ sandbox: false });
});
beforeEach(() => {
  searches.searches.length = 0;
  searches.answer = () => found("harbour");
  searches.page = () => htmlPage("The harbour opens at six.");
});
afterEach(() => expectBooksClosed(gateway));
afterAll(async () => {
  await gateway.stop();
  await bare.stop();
  await searches.stop();
});

const pageUrl = (name: string) => `${searches.url}/pages/${name}`;
const found = (...names: string[]) => {
  const results = names.map((name) => ({ url: pageUrl(name), title: name, description: "S" }));
  return Response.json({ type: "search", web: { results } });
};
const respond = (body: Json, init?: RequestInit & { key?: string }) =>
  gateway.request(
    "POST",
    "/v1/responses",
    { input: "When does it open?", tools: [{ type: "web_search" }], ...body },
    init,
  );
const search = (...queries: string[]): Behaviour => ({
  do: "complete",
  toolCalls: queries.map((query) => ({ name: "web_search", arguments: JSON.stringify({ query }) })),
});
const say = (content: string): Behaviour => ({ do: "complete", content });
const sentTo = (model: string): Json[] =>
  gateway.upstream.served
    .filter((served) => served.model === model)
    .map(({ requestBody }) => requestBody as Json);

async function wholeOf(response: Response): Promise<Json> {
  const body = (await response.json()) as Json;
  expect(response.status, JSON.stringify(body)).toBe(200);
  assertOpenResponses("ResponseResource", body);
  return body;
}

describe("a response with the tool", () => {
  test.each([false, true])(
    "searches, reads the pages, cites them, and pays for both searches (stream: %p)",
    async (stream) => {
      const slug = gateway.modelThat(
        search("harbour hours", "ferry hours"),
        say(`At six ([harbour](${pageUrl("harbour")})).`),
      );
      const response = await respond({
        model: `test/${slug}`,
        stream,
        include: ["web_search_call.action.sources"],
        tools: [
          {
            type: "web_search",
            search_context_size: "low",
            filters: { allowed_domains: ["127.0.0.1"] },
          },
        ],
      });
      const body = stream
        ? (responseEvents(await response.text()).at(-1) as Json).response
        : await wholeOf(response);
      assertOpenResponses("ResponseResource", body);
      const [first, second, message] = body.output as Json[];
      expect([first, second]).toMatchObject(
        ["harbour hours", "ferry hours"].map((query) => ({
          type: "web_search_call",
          status: "completed",
          action: { type: "search", query, sources: [{ type: "url", url: pageUrl("harbour") }] },
        })),
      );
      const { text, annotations } = message!.content[0];
      expect(annotations.length).toBeGreaterThan(0);
      expect(annotations[0]).toMatchObject({ type: "url_citation", url: pageUrl("harbour") });
      const { start_index: start, end_index: end } = annotations[0];
      expect(text.slice(start, end)).toBe(`[harbour](${pageUrl("harbour")})`);
      expect(sentTo(slug)[1]!.messages.at(-1)).toMatchObject({
        role: "tool",
        content: expect.stringContaining("The harbour opens at six."),
      });
      expect(searches.searches.map(({ query }) => query.q).sort()).toEqual([
        "ferry hours site:127.0.0.1",
        "harbour hours site:127.0.0.1",
      ]);
      const bill = await billOfResponse(gateway, response);
      expect(bill.quantities).toEqual({ web_searches: 2 });
      expect(bill.chargeNano).toBeGreaterThan(chargeNanoUsd(2n * SEARCH_FEMTO, FEE));
      expect(bill.chargeNano).toBeLessThan(chargeNanoUsd(3n * SEARCH_FEMTO, FEE));
    },
  );

  test("goes on where a search fails, and does not pay for it", async () => {
    searches.answer = () => new Response("{", { status: 200 });
    const slug = gateway.modelThat(search("harbour"), say("I could not look."));
    const response = await respond({ model: `test/${slug}` });
    const body = await wholeOf(response);
    expect(body.output[0]).toMatchObject({ type: "web_search_call", status: "failed" });
    expect(body.output[1].content[0].text).toBe("I could not look.");
    expect(sentTo(slug)[1]!.messages.at(-1).content).toContain("The web search failed");
    expect((await billOfResponse(gateway, response)).quantities).toBeNull();
  });

  test("does not search where the money covers the answer alone", async () => {
    const poor = await gateway.addOrganization({ creditUsd: 0.004 });
    const slug = gateway.modelThat(search("harbour"), say("Never."));
    const init = { key: poor.secretKey };
    const response = await respond({ model: `test/${slug}`, max_output_tokens: 300 }, init);
    const body = await wholeOf(response);
    expect(body).toMatchObject({ status: "incomplete" });
    expect(searches.searches).toEqual([]);
    expect((await billOfResponse(gateway, response)).quantities).toBeNull();
  });

  test("pays for its searches where the organization's own provider key serves it", async () => {
    const owner = await gateway.addOrganization({ creditUsd: 1 });
    const key = owner.managementKey;
    const own = { provider: "primary", key: "sk-own-0123456789abcdef" };
    expect((await gateway.request("POST", "/v1/provider_keys", own, { key })).status).toBe(201);
    const slug = gateway.modelThat(search("harbour"), say("At six."));
    const response = await respond({ model: `test/${slug}` }, { key: owner.secretKey });
    expect((await wholeOf(response)).status).toBe("completed");
    const bill = await billOfResponse(gateway, response);
    expect(bill).toMatchObject({ quantities: { web_searches: 1 } });
    expect(bill.chargeNano).toBe(chargeNanoUsd(SEARCH_FEMTO, FEE));
    // Without money for it the model is not searched for.
    const poor = await gateway.addOrganization({ creditUsd: 0 });
    const init = { key: poor.managementKey };
    expect((await gateway.request("POST", "/v1/provider_keys", own, init)).status).toBe(201);
    const spare = gateway.modelThat(search("harbour"), say("Never."));
    searches.searches.length = 0;
    const refused = await respond({ model: `test/${spare}` }, { key: poor.secretKey });
    expect(await wholeOf(refused)).toMatchObject({ status: "incomplete" });
    expect(searches.searches).toEqual([]);
    expect((await billOfResponse(gateway, refused)).chargeNano).toBe(0n);
  });
});

test("without a search backend the tool is refused, and the settings are named", async () => {
  for (const type of ["web_search", "web_search_preview"]) {
    const body = { model: `test/${bare.modelThat(say("Hi"))}`, input: "Hello", tools: [{ type }] };
    const response = await bare.request("POST", "/v1/responses", body);
    const { error } = await expectError(response, 400, "unsupported_parameter");
    expect(error.message).toContain("GATEWAY_SEARCH_BACKEND");
  }
});

test("options of the tool that are wrong are named by their place", async () => {
  const slug = gateway.modelThat(say("Never."));
  const tools = [{ type: "web_search", filters: { allowed_domains: ["https://a.example"] } }];
  const { error } = await expectError(
    await respond({ model: `test/${slug}`, tools }),
    400,
    "invalid_body",
  );
  expect(error.param).toBe("tools.0.filters.allowed_domains.0");
});
