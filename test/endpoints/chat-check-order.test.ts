import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { addSecretKey } from "../support/api-keys.ts";
import { type ChatGateway, chatBody, startChatGateway } from "../support/chat-gateway.ts";
import { expectError } from "../support/error-envelope.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";

const PATH = "/v1/chat/completions";

let gateway: ChatGateway;
let slug: string;
beforeAll(async () => {
  gateway = await startChatGateway();
  slug = gateway.modelThat({ do: "complete" });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

/** A request that breaks every rule from the one named on: the first broken one must decide. */
interface Wish {
  readonly path?: string;
  readonly method?: string;
  readonly key?: string;
  readonly contentType?: string;
  readonly body?: string;
}

const HUGE = " ".repeat(33 * 1_048_576);
const NO_JSON = "{";

async function answer(wish: Wish): Promise<Response> {
  const { path = PATH, method = "POST", key, contentType = "application/json", body } = wish;
  return fetch(`${gateway.baseUrl}${path}`, {
    method,
    headers: {
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      "content-type": contentType,
    },
    body: body ?? JSON.stringify(chatBody(slug)),
  });
}

const bodyOf = (model: string, fields: Record<string, unknown> = {}) =>
  JSON.stringify({ ...chatBody(slug, fields), model });

describe("the first check that fails decides", () => {
  test("404 of an unknown path before everything", async () => {
    for (const path of ["/v1/nothing", "/v1/chat/completions/more", "/V1/chat/completions"]) {
      const wish = { path, key: "none", contentType: "text/plain", body: HUGE };
      const { error } = await expectError(await answer(wish), 404, "route_not_found");
      expect(error.type).toBe("not_found_error");
    }
  });

  test("405 of another method before authentication, with the allowed ones named", async () => {
    for (const method of ["DELETE", "PUT", "PATCH"]) {
      const response = await answer({ method, contentType: "text/plain", body: NO_JSON });
      const { error } = await expectError(response, 405, "method_not_allowed");
      expect(error.type).toBe("invalid_request_error");
      expect(response.headers.get("allow")).toBe("POST");
    }
  });

  test("401 before 415, 413 and 400", async () => {
    await expectError(
      await answer({ contentType: "text/plain", body: HUGE }),
      401,
      "missing_api_key",
    );
    await expectError(await answer({ key: "none", body: HUGE }), 401, "invalid_api_key");
    await expectError(await answer({ key: "none", body: NO_JSON }), 401, "invalid_api_key");
  });

  test("403 of kind and scope before 415, 413 and 400", async () => {
    const unscoped = await addSecretKey(gateway, { scopes: ["embeddings"] });
    const wishes = [
      { contentType: "text/plain", body: HUGE },
      { body: HUGE },
      { body: NO_JSON },
      { body: "{}" },
    ];
    for (const wish of wishes) {
      const kind = await answer({ key: gateway.managementKey, ...wish });
      expect((await expectError(kind, 403, "wrong_key_kind")).error.type).toBe("permission_error");
      await expectError(await answer({ key: unscoped, ...wish }), 403, "missing_scope");
    }
  });

  test("415 before 413, 413 before 400", async () => {
    const key = gateway.secretKey;
    await expectError(
      await answer({ key, contentType: "text/plain", body: HUGE }),
      415,
      "unsupported_media_type",
    );
    await expectError(await answer({ key, body: HUGE }), 413, "payload_too_large");
  });

  test("400 before 404 of the model", async () => {
    const key = await addSecretKey(gateway, { allowedModels: [`test/${slug}`] });
    const BAD: [fields: Record<string, unknown>, code: string][] = [
      [{ temperature: 3 }, "invalid_body"],
      [{ messages: [] }, "invalid_body"],
      [{ deferred: true }, "unsupported_parameter"],
      [{ metadata: { idempotency_key: 5 } }, "invalid_body"],
      [{ metadata: { idempotency_key: "" } }, "invalid_body"],
    ];
    for (const [fields, code] of BAD) {
      await expectError(await answer({ key, body: bodyOf("none", fields) }), 400, code);
    }
  });

  test("404 of the model before 403 of a model that is not allowed", async () => {
    const key = await addSecretKey(gateway, { allowedModels: [`test/${slug}`], rateLimitRpm: 1 });
    await expectError(await answer({ key, body: bodyOf("none") }), 404, "model_not_found");
    const models = ["test/spare-70", "none"];
    await expectError(await answer({ key, body: bodyOf("x", { models }) }), 404, "model_not_found");
  });

  test("403 of a model that is not allowed before 429", async () => {
    const key = await addSecretKey(gateway, { allowedModels: [`test/${slug}`], rateLimitRpm: 1 });
    expect((await answer({ key })).status).toBe(200);
    const other = await answer({ key, body: bodyOf("test/spare-70") });
    await expectError(other, 403, "model_not_allowed");
    const among = { models: [`test/${slug}`, "test/spare-70"] };
    await expectError(await answer({ key, body: bodyOf("x", among) }), 403, "model_not_allowed");
    await expectError(await answer({ key }), 429, "rate_limit_exceeded");
  });

  test("429 before 402, and 402 takes an admission of the rate limit", async () => {
    const key = await addSecretKey(gateway, { rateLimitRpm: 2, dailyBudgetNano: 0n });
    const first = await answer({ key });
    await expectError(first, 402, "budget_exhausted");
    expect(first.headers.get("x-ratelimit-remaining")).toBe("1");
    await expectError(await answer({ key }), 402, "budget_exhausted");
    const third = await answer({ key });
    const { error } = await expectError(third, 429, "rate_limit_exceeded");
    expect(error.type).toBe("rate_limit_error");
    // The window is counted in tenths of a second, rounded to the safe side.
    expect(Number(third.headers.get("retry-after"))).toBeOneOf([60, 61]);
    expect(third.headers.get("x-ratelimit-limit")).toBe("2");
    expect(third.headers.get("x-ratelimit-remaining")).toBe("0");
    const resetSeconds = Number(third.headers.get("x-ratelimit-reset"));
    expect(resetSeconds).toBeWithin(Date.now() / 1_000 - 1, Date.now() / 1_000 + 62);
  });

  test("402 before the provider is called", async () => {
    const callsBefore = gateway.upstream.served.length;
    const poor = await gateway.addOrganization({ creditUsd: 0 });
    const { error } = await expectError(
      await answer({ key: poor.secretKey }),
      402,
      "insufficient_credits",
    );
    expect(error.type).toBe("billing_error");
    expect(gateway.upstream.served).toHaveLength(callsBefore);
  });
});

test("a request refused for its rate costs nothing of the budget, and what was refused before costs no admission", async () => {
  // Pays for a single request of one token.
  const key = await addSecretKey(gateway, { rateLimitRpm: 3, monthlyBudgetNano: 5_000n });
  const small = { key, body: bodyOf(`test/${slug}`, { max_tokens: 1 }) };
  await expectError(await answer({ key, body: NO_JSON }), 400, "invalid_json");
  await expectError(await answer({ key, body: bodyOf("none") }), 404, "model_not_found");
  for (const remaining of ["2", "1", "0"]) {
    const response = await answer(small);
    expect(response.headers.get("x-ratelimit-remaining")).toBe(remaining);
  }
  await expectError(await answer(small), 429, "rate_limit_exceeded");
});
