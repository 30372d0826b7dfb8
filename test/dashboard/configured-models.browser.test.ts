import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Browser, Page } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  untilLoaded,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { addOperator } from "../support/operator-keys.ts";
import { type StubProvider, startStubProvider } from "../support/stub-provider.ts";

/*
 * What operators do with models, prices and the keys of providers, in a real browser.
 */
const TIMEOUT_MS = 60_000;
const ACTION_TIMEOUT_MS = 15_000;
const GONE = { state: "detached" } as const;

type Fields = Record<string, unknown>;

let gateway: TestGateway;
let stub: StubProvider;
let operator: string;
let browser: Browser;
let page: Page;
let faults: readonly string[];

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  stub = startStubProvider();
  [gateway, browser] = await Promise.all([
    startTestGateway({
      configuration: {
        providers: [
          { id: "filed", type: "openai-compatible", base_url: stub.url, api_key: "sk-filed" },
        ],
        models: [
          {
            id: "acme/filed",
            name: "Filed model",
            context_length: 8192,
            input_cost_per_token: 1e-6,
            output_cost_per_token: 2e-6,
            endpoints: [{ provider: "filed", model: "filed" }],
            organizations: ["org_of_others"],
          },
        ],
      },
    }),
    launchChromium(),
  ]);
  operator = await addOperator(gateway);
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(ACTION_TIMEOUT_MS);
  faults = watchFaults(page, gateway.baseUrl);
  await page.goto(`${gateway.baseUrl}/dashboard`);
  await signInAs(page, operator);
  await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
  stub?.stop();
});

const browserTest = (name: string, run: () => Promise<void>) =>
  test.skipIf(CHROMIUM === undefined)(name, run, TIMEOUT_MS);

async function admin(method: string, path: string, body?: unknown): Promise<Fields> {
  const response = await gateway.request(method, `/v1/admin/${path}`, body, { key: operator });
  expect([method, path, response.ok]).toEqual([method, path, true]);
  return (await response.json()) as Fields;
}

/** Stores a model with one endpoint, and opens its page. */
async function openStored(id: string, more: Fields = {}): Promise<void> {
  await admin("POST", "models", {
    id,
    context_length: 4096,
    input_cost_per_token: 1e-6,
    output_cost_per_token: 2e-6,
    endpoints: [{ provider: "filed", model: "named-there" }],
    ...more,
  });
  await openPage(`configured-models?id=${encodeURIComponent(id)}`);
}

async function openPage(path: string): Promise<void> {
  await page.goto(`${gateway.baseUrl}/dashboard/${path}`);
  await untilLoaded(page);
}

async function statusOfChat(model: string, key = gateway.secretKey): Promise<number> {
  const body = { model, messages: [{ role: "user", content: "Hi" }] };
  return (await gateway.request("POST", "/v1/chat/completions", body, { key })).status;
}

const dialog = () => page.getByRole("dialog");
const press = (name: string) => page.getByRole("button", { name, exact: true }).first().click();
const pressInDialog = (name: string) => dialog().getByRole("button", { name, exact: true }).click();
const fill = (label: string, text: string) =>
  dialog().getByLabel(label, { exact: true }).fill(text);
const said = (text: string) => page.getByRole("status").getByText(text, { exact: true }).waitFor();
const rowOf = (text: string) => page.getByRole("row").filter({ hasText: text });
const fact = (name: string) =>
  page
    .locator("dl.facts dt")
    .filter({ hasText: new RegExp(`^${name}$`) })
    .locator("+ dd");

browserTest("models of all sources are found by their names, sources and aliases", async () => {
  await admin("POST", "aliases", { id: "quick", models: [{ id: "sandbox/chat" }] });
  await page.getByRole("link", { name: "Models", exact: true }).click();
  await untilLoaded(page);
  const search = page.getByLabel("Search");
  await search.fill("quick");
  await page.getByRole("heading", { level: 2, name: "1 model", exact: true }).waitFor();
  const found = rowOf("sandbox/chat");
  await found.getByText("Built in", { exact: true }).waitFor();
  await found.getByText("quick", { exact: true }).waitFor();
  await search.fill("");
  await page.getByLabel("Source").selectOption("file");
  await page.getByRole("heading", { level: 2, name: "1 model", exact: true }).waitFor();
  const filed = rowOf("acme/filed");
  await filed.getByText("$1.00", { exact: true }).waitFor();
  await filed.getByText("1 organization", { exact: true }).waitFor();
  await filed.getByRole("link", { name: "Filed model" }).click();
  await page.getByText("so it is read-only here").waitFor();
  expect(await page.getByRole("button", { name: "Edit", exact: true }).count()).toBe(0);
});

browserTest("an added model serves requests at the prices of the form", async () => {
  await openPage("configured-models");
  await press("Add model");
  await fill("Id", "acme/added");
  await dialog().getByLabel("Provider 1").selectOption("filed");
  await fill("Its model 1", "added-there");
  await fill("Context length", "8192");
  await fill("Input", "0.8");
  await fill("Output", "$1.25");
  expect(await seriousFindings(page)).toEqual([]);
  await pressInDialog("Add");
  await said("Added acme/added.");
  await rowOf("acme/added").getByText("$0.80", { exact: true }).waitFor();
  expect(await admin("GET", "models/acme%2Fadded")).toMatchObject({
    input_cost_per_token: 8e-7,
    output_cost_per_token: 1.25e-6,
    endpoints: [{ provider: "filed", model: "added-there" }],
  });
  expect(await statusOfChat("acme/added")).toBe(200);
  expect(stub.requests.at(-1)!.body.model).toBe("added-there");
});

browserTest("an edit changes only what was changed, and the history reverts it", async () => {
  const endpoints = [
    { provider: "filed", model: "first", weight: 3, input_cost_per_token: 5e-7 },
    { provider: "sandbox", model: "sandbox/chat", weight: 1 },
  ];
  await openStored("acme/edited", { endpoints, batches: false, description: "Short answers." });
  await press("Edit");
  await fill("Weight 2", "2");
  await fill("Max output tokens", "1024");
  await dialog().getByText("Other settings").click();
  await fill("Description", "");
  await pressInDialog("Save");
  await said("Changed acme/edited.");
  await fact("Max output").getByText("1,024 tokens").waitFor();
  const changed = await admin("GET", "models/acme%2Fedited");
  expect(changed).toMatchObject({
    version: 2,
    batches: false,
    input_cost_per_token: 1e-6,
    max_output_tokens: 1024,
    endpoints: [endpoints[0]!, { ...endpoints[1]!, weight: 2 }],
  });
  expect(changed.description).toBeUndefined();
  await press("History");
  await dialog()
    .getByText(/max_output_tokens: none → 1024/)
    .waitFor();
  expect(await seriousFindings(page)).toEqual([]);
  await dialog()
    .getByRole("button", { name: /^Revert/ })
    .first()
    .click();
  await said("Reverted acme/edited.");
  const reverted = await admin("GET", "models/acme%2Fedited");
  expect(reverted).toMatchObject({ version: 3, description: "Short answers.", endpoints });
  expect(reverted.max_output_tokens).toBeUndefined();
});

browserTest("a model is visible to the chosen organizations only, and to all again", async () => {
  const other = await gateway.addOrganization();
  await openStored("acme/seen");
  await press("Visibility");
  await dialog().getByLabel("Visible to").selectOption("chosen");
  await pressInDialog("Save");
  await dialog().getByText("Choose at least one organization.").waitFor();
  await fill("Search", other.organization.id);
  await dialog().getByRole("checkbox").first().check();
  expect(await seriousFindings(page)).toEqual([]);
  await pressInDialog("Save");
  await fact("Visible to")
    .getByText(/^1 organization/)
    .waitFor();
  expect(await statusOfChat("acme/seen", other.secretKey)).toBe(200);
  expect(await statusOfChat("acme/seen")).toBe(404);
  await press("Visibility");
  await dialog().getByLabel("Visible to").selectOption("all");
  await pressInDialog("Save");
  await fact("Visible to").getByText("All organizations").waitFor();
  expect(await statusOfChat("acme/seen")).toBe(200);
});

browserTest(
  "a model is shown as visible to the organizations that see one of its providers",
  async () => {
    const restricted = {
      type: "sandbox",
      organizations: [gateway.organizationId, "org_of_others"],
    };
    await admin("POST", "providers", { id: "restricted", ...restricted });
    const endpoints = [{ provider: "restricted", model: "sandbox/chat" }];
    await openStored("acme/at-restricted", { endpoints });
    await fact("Visible to")
      .getByText(/^2 organizations/)
      .waitFor();
    await openStored("acme/at-both", {
      endpoints: [...endpoints, { provider: "filed", model: "any" }],
      organizations: [gateway.organizationId],
    });
    await openPage("configured-models?q=acme/at-");
    await rowOf("acme/at-restricted").getByText("2 organizations", { exact: true }).waitFor();
    await rowOf("acme/at-both").getByText("1 organization", { exact: true }).waitFor();
  },
);

browserTest("a price is set from a day on or immediately, listed, and deleted", async () => {
  await openStored("acme/priced");
  await press("Set price");
  await fill("Input", "0.3");
  await dialog().getByText("Other prices").click();
  await fill("Audio", "0.006");
  await fill("Valid from", "2100-01-01");
  await fill("Id", "much-later");
  expect(await seriousFindings(page)).toEqual([]);
  await pressInDialog("Set price");
  const later = rowOf("much-later");
  await later.getByText("Input $0.30 / 1M tokens").waitFor();
  await later.getByText("Planned").waitFor();
  const stored = (await admin("GET", "prices")).data as Fields[];
  expect(stored.find(({ id }) => id === "much-later")).toMatchObject({
    model: "acme/priced",
    valid_from: "2100-01-01T00:00:00Z",
    pricing: { input_cost_per_token: 3e-7, cost_per_second: 1e-4 },
  });
  await press("Set price");
  await fill("Input", "0.5");
  await fill("Id", "now");
  await pressInDialog("Set price");
  await fact("Input").getByText("$0.50 / 1M tokens").waitFor();
  await press("Delete now");
  await pressInDialog("Delete price entry");
  await rowOf("Always").waitFor(GONE);
  await fact("Input").getByText("$1.00 / 1M tokens").waitFor();
});

browserTest("a model in use is not deleted, and its users are named in words", async () => {
  await openStored("acme/used");
  await admin("POST", "aliases", { id: "uses-it", models: [{ id: "acme/used" }] });
  await press("Delete");
  await pressInDialog("Delete model");
  await dialog().getByText("It cannot be deleted while it is in use:").waitFor();
  await dialog().getByText("Alias uses-it").waitFor();
  const alias = await gateway.request("DELETE", "/v1/admin/aliases/uses-it", undefined, {
    key: operator,
    headers: { "if-match": '"1"' },
  });
  expect(alias.status).toBe(200);
  await pressInDialog("Delete model");
  await said("Deleted acme/used.");
  await page.getByRole("heading", { level: 1, name: "Models", exact: true }).waitFor();
  expect(await statusOfChat("acme/used")).toBe(404);
});

browserTest("a provider takes several keys with weights, and a change replaces all", async () => {
  await openPage("providers");
  await press("Add provider");
  await fill("Id", "many");
  await fill("Base URL", stub.url);
  await press("Add another key");
  await fill("Key 1", "sk-first-key-1234567890");
  await fill("Weight 1", "3");
  await fill("Key 2", "sk-second-key-1234567890");
  expect(await seriousFindings(page)).toEqual([]);
  await pressInDialog("Add");
  await said("Added many.");
  const row = rowOf("many");
  await row.getByText("2 keys").click();
  await row.getByText("weight 3").waitFor();
  expect((await admin("GET", "providers/many")).api_keys).toEqual([
    { key_prefix: "sk-fi", weight: 3 },
    { key_prefix: "sk-sec" },
  ]);
  await press("Edit many");
  await dialog().getByText("Current keys", { exact: true }).waitFor();
  await fill("API key", "sk-only-key-1234567890");
  await pressInDialog("Save");
  await said("Changed many.");
  const changed = await admin("GET", "providers/many");
  expect(changed.key_prefix).toBe("sk-on");
  expect(changed.api_keys).toBeUndefined();
});

browserTest("the history of a provider omits acts on an alias with its id", async () => {
  await admin("POST", "providers", { id: "namesake", type: "sandbox" });
  await admin("POST", "aliases", { id: "namesake", models: [{ id: "sandbox/chat" }] });
  await openPage("providers");
  await press("History namesake");
  await untilLoaded(page);
  expect(await dialog().getByText("created", { exact: true }).count()).toBe(1);
});

browserTest(
  "in all of this no policy was violated, and no other address was requested",
  async () => {
    expect(faults).toEqual([]);
  },
);
