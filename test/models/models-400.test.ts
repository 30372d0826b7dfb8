import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { type ModelsGateway, startModelsGateway } from "./models-gateway.ts";

let gateway: ModelsGateway;
beforeAll(async () => {
  gateway = await startModelsGateway();
});
afterAll(() => gateway.stop());

/** Each query is refused, and the error names the parameter. */
async function refuses(path: string, cases: readonly (readonly [query: string, param: string])[]) {
  for (const [query, param] of cases) {
    const response = await gateway.request("GET", `${path}?${query}`);
    const { error } = await expectError(response, 400, "invalid_query");
    expect({ query, param: error.param }).toEqual({ query, param });
  }
}

test("a limit is an integer in plain digits from 1 to 100", async () => {
  await refuses(
    "/v1/models/search",
    ["0", "-1", "101", "1e2", "1.0", "+5", "%205", "0x10", "05", "", "ten", "9".repeat(400)].map(
      (value) => [`q=a&limit=${value}`, "limit"] as const,
    ),
  );
});

test("a page of the list has 1 to 1000 models and begins at one", async () => {
  const values = ["0", "-1", "1001", "1e2", "", "ten"];
  await refuses("/v1/models", [
    ...values.map((value) => [`limit=${value}`, "limit"] as const),
    ...["-1", "1e2", "", "9".repeat(20)].map((value) => [`offset=${value}`, "offset"] as const),
  ]);
});

test("active is true or false and nothing like it", async () => {
  for (const path of ["/v1/models", "/v1/models/search"]) {
    await refuses(
      path,
      ["1", "0", "yes", "TRUE", "", "null"].map((value) => [`active=${value}`, "active"] as const),
    );
  }
});

test("an empty filter is refused instead of taken for none", async () => {
  await refuses("/v1/models", [
    ["provider=", "provider"],
    ["category=", "category"],
    ["capability=", "capability"],
  ]);
  await refuses("/v1/models/search", [["q=a&provider=", "provider"]]);
});

test("a parameter that is repeated or unknown is refused", async () => {
  await refuses("/v1/models", [
    ["provider=acme&provider=acme", "provider"],
    ["page=5", "page"],
    ["__proto__=1", "__proto__"],
  ]);
  await refuses("/v1/models/search", [
    ["q=a&q=b", "q"],
    ["query=a", "query"],
  ]);
  await refuses("/v1/models/compare", [["models=acme/quill-4o&models=acme/quill-3.5", "models"]]);
  await refuses("/v1/models/acme/quill-4o", [["fields=id", "fields"]]);
});

test("text with NUL, a lone surrogate or bytes that are no UTF-8 is refused", async () => {
  for (const text of ["%00", "a%00b", "%ed%a0%80", "%ed%bf%bf", "%ff", "%c3%28"]) {
    await refuses("/v1/models/search", [[`q=${text}`, "q"]]);
    await refuses("/v1/models", [[`provider=${text}`, "provider"]]);
    await refuses("/v1/models/compare", [[`models=acme/quill-4o,${text}`, "models"]]);
  }
});

test("a comparison names 1 to 20 models and leaves no name empty", async () => {
  const response = await gateway.request("GET", "/v1/models/compare");
  expect((await expectError(response, 400, "invalid_query")).error.param).toBe("models");
  await refuses(
    "/v1/models/compare",
    [
      "",
      "%20",
      ",",
      "acme/quill-4o,",
      ",acme/quill-4o",
      "acme/quill-4o,,acme/quill-3.5",
      Array(21).fill("acme/quill-4o").join(","),
      ",".repeat(10_000),
    ].map((names) => [`models=${names}`, "models"] as const),
  );
});
