import { afterAll, beforeAll, expect, test } from "bun:test";
import { generateApiKey } from "../../src/lib/api-key-format.ts";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sendRaw } from "../support/raw-http.ts";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

const KEY = generateApiKey("secret").key;

async function refusal(authorization: string | undefined, code: string): Promise<string> {
  const headers = authorization === undefined ? [] : [["authorization", authorization] as const];
  const response = await sendRaw(gateway, { method: "GET", path: "/v1/models", headers });
  return (await expectError(response, 401, code)).error.message;
}

test("without a key the header's form is told", async () => {
  for (const header of [undefined, ""]) {
    expect(await refusal(header, "missing_api_key")).toContain("Authorization: Bearer <API_KEY>");
  }
});

test.each([
  ["a key alone", KEY, "Authorization: Bearer <API_KEY>"],
  ["another scheme", "Basic dTpw", "Authorization: Bearer <API_KEY>"],
  ["the key of another service", "Bearer sk-proj-abcdefghijklmnopqrstuvwxyz", "another service"],
  ["a key that lacks its end", `Bearer ${KEY.slice(0, -3)}`, "mistyped or truncated"],
  ["a key with a letter changed", `Bearer ${KEY.replace(/.$/, "!")}`, "mistyped or truncated"],
  ["a key in quotes", `Bearer "${KEY}"`, "quotes or white space"],
  ["a key in two", `Bearer ${KEY.slice(0, 20)} ${KEY.slice(20)}`, "quotes or white space"],
  ["what stands where a variable is unset", "Bearer undefined", "probably not set"],
  ["a variable's name", "Bearer $SECRET_KEY", "probably not set"],
  ["nothing", "Bearer", "probably not set"],
  ["anything else", "Bearer hunter2", "begin with gateway_sk_ or gateway_mgmt_"],
  ["a key that is not known", `Bearer ${KEY}`, "deleted or belongs to another gateway"],
])("%s is refused in words that help, without quoting it", async (_, header, words) => {
  const message = await refusal(header, "invalid_api_key");
  expect(message).toContain(words);
  for (const part of header.split(" ").filter((text) => text.length > 6)) {
    if (part !== "Bearer") expect(message).not.toContain(part);
  }
});
