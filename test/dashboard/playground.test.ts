import { afterAll, beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import type { Browser, Locator, Page, Request } from "playwright-core";
import {
  CHROMIUM,
  launchChromium,
  seriousFindings,
  signInAs,
  watchFaults,
} from "../support/chromium.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { until } from "../support/until.ts";

/*
 * The pages of models and of the playground in a real browser. Needs a Chromium on this machine.
 */
const HOSTILE = "<img src=x onerror=alert(1)>";
const TIMEOUT_MS = 30_000;
const FURTHER_MODELS = 150;
const ROWS_OF_A_PAGE = 50;
const COUNTED = 400;
const repository = join(import.meta.dir, "../..");

let gateway: TestGateway;
let browser: Browser;
let page: Page;
let faults: readonly string[] = [];
/** What was sent to the API itself, past the session. */
const keyedCalls: Request[] = [];

const served = (id: string, name: string, inputUsd: number) => ({
  ...{ id, name, description: `${name} for trials`, category: "chat" },
  ...{ context_length: 8_192, max_output_tokens: 1_024 },
  ...{ input_cost_per_token: inputUsd, output_cost_per_token: 4e-7 },
  ...{ capabilities: ["streaming"], endpoints: [{ provider: "sandbox", model: "chat" }] },
});

beforeAll(async () => {
  if (CHROMIUM === undefined) return;
  gateway = await startTestGateway({
    configuration: {
      models: [
        served("trial/hostile", HOSTILE, 9.5e-6),
        ...Array.from({ length: FURTHER_MODELS }, (_, at) =>
          served(`bulk/number-${at}`, `Bulk ${at}`, 1e-6),
        ),
      ],
    },
  });
  browser = await launchChromium();
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 } });
  page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  faults = watchFaults(page, gateway.baseUrl);
  page.on("request", (request) => {
    if (new URL(request.url()).pathname.startsWith("/v1/")) keyedCalls.push(request);
  });
  await page.goto(`${gateway.baseUrl}/dashboard`);
  await signInAs(page, gateway.managementKey);
}, TIMEOUT_MS);
afterAll(async () => {
  await browser?.close();
  await gateway?.stop();
});

const browserTest = test.skipIf(CHROMIUM === undefined);

const open = (name: string) => page.getByRole("link", { name, exact: true }).first().click();
const button = (name: string) => page.getByRole("button", { name, exact: true });
const rows = () => page.locator("tbody").getByRole("row");
const found = (count: number) =>
  page
    .getByRole("heading", { name: count === 1 ? "1 model" : `${count} models`, exact: true })
    .waitFor();

async function useKey(key: string): Promise<void> {
  await page.getByRole("textbox", { name: "Secret key" }).fill(key);
  await button("Use key").click();
}

async function choose(label: "Model" | "Second model", model: string): Promise<void> {
  await page.getByRole("combobox", { name: label, exact: true }).fill(model);
}

async function say(text: string): Promise<void> {
  await page.getByLabel("Message").fill(text);
  await button("Send").click();
}

const lastAnswer = (model: string): Locator =>
  page.getByRole("article", { name: `Answer from ${model}` }).last();

const textOf = async (shown: Locator): Promise<string> => (await shown.textContent()) ?? "";

const measure = (answer: Locator, name: string): Promise<string> =>
  textOf(
    answer
      .locator("dl > div")
      .filter({ has: page.locator("dt", { hasText: name }) })
      .locator("dd"),
  );

const hasEnded = (answer: Locator) => answer.getByRole("link", { name: "Details" }).waitFor();

/** Charges of the ledger, in nano-USD. */
async function charges(model?: string): Promise<bigint[]> {
  const posted = await gateway.sql<{ model: string; nano: bigint }[]>`
    SELECT model, (-amount_nano)::bigint AS nano FROM transactions
    WHERE organization_id = ${gateway.organizationId} AND type = 'usage' ORDER BY created_at, id`;
  return posted.flatMap((one) => (one.model === (model ?? one.model) ? BigInt(one.nano) : []));
}

const nanoOf = (shown: string) => BigInt(Math.round(Number(shown.replace("$", "")) * 1e9));

browserTest(
  "models are listed by the page, found as one types, filtered by what they can do, and sorted",
  async () => {
    await open("Models");
    await page.getByRole("heading", { level: 1, name: "Models" }).waitFor();
    await rows()
      .nth(ROWS_OF_A_PAGE - 1)
      .waitFor();
    expect(await rows().count()).toBe(ROWS_OF_A_PAGE);
    await page.getByLabel("Search").pressSequentially("bulk number-14");
    // 14, and 140 to 149.
    await found(11);
    expect(await rows().count()).toBe(11);
    await page.getByLabel("Search").fill("sandbox");
    await page.getByRole("checkbox", { name: "Reasoning", exact: true }).check();
    await found(1);
    await rows().filter({ hasText: "sandbox/reasoning" }).waitFor();
    await page.getByRole("checkbox", { name: "Reasoning", exact: true }).uncheck();
    await page.getByLabel("Use", { exact: true }).selectOption("transcription");
    await found(1);
    await rows()
      .filter({ hasText: "sandbox/stt" })
      .getByText(/ \/ minute$/)
      .waitFor();
    await page.getByLabel("Search").fill("");
    await page.getByLabel("Use", { exact: true }).selectOption("chat");
    await page.getByLabel("Search").fill("for trials");
    await page.getByLabel("Sort by").selectOption("input");
    await found(FURTHER_MODELS + 1);
    while (await button("Next").isEnabled()) await button("Next").click();
    const dearest = rows().last();
    expect(await textOf(dearest)).toContain(HOSTILE);
    expect(await dearest.getByRole("cell", { name: "$9.50", exact: true }).count()).toBe(1);
    expect(await seriousFindings(page)).toEqual([]);
  },
);

browserTest(
  "a model shows its prices and providers, and four of them stand next to each other",
  async () => {
    await page.getByRole("link", { name: HOSTILE }).click();
    await page.getByRole("heading", { level: 1, name: HOSTILE, exact: true }).waitFor();
    await page.getByText("$9.50 / 1M tokens").waitFor();
    await page.getByRole("cell", { name: "sandbox chat" }).waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole("link", { name: "← Models" }).click();
    await page.getByLabel("Search").fill("bulk");
    for (const at of [0, 1, 2, 3]) {
      await page.getByRole("checkbox", { name: "Compare" }).nth(at).check();
    }
    await page.getByRole("checkbox", { name: "Compare" }).nth(4).click();
    await page.getByText("At most 4 models can be compared.").waitFor();
    expect(await page.getByRole("checkbox", { name: "Compare" }).nth(4).isChecked()).toBe(false);
    await page.getByRole("link", { name: "Compare 4 models" }).click();
    await page.getByRole("heading", { level: 1, name: "Compare models" }).waitFor();
    const prices = page.getByRole("row").filter({ hasText: "Input, per 1M tokens" });
    expect(await prices.getByRole("cell").allInnerTexts()).toEqual(Array(4).fill("$1.00"));
    expect(await seriousFindings(page)).toEqual([]);
  },
);

browserTest("the playground refuses a key that cannot call models, and says why", async () => {
  await open("Playground");
  await useKey("gateway_sk_wrong");
  await page.getByRole("alert").getByText("is not valid").waitFor();
  await useKey(gateway.managementKey);
  await page.getByRole("alert").getByText("A management key cannot call models.").waitFor();
  expect(await button("Send").isDisabled()).toBe(true);
  await useKey(gateway.secretKey);
  await page.getByRole("textbox", { name: "Secret key" }).waitFor({ state: "detached" });
});

browserTest(
  "two models stream next to each other, each with its speed, tokens, and what the ledger charged",
  async () => {
    await choose("Model", "sandbox/reasoning");
    await button("Compare with a second model").click();
    await choose("Second model", "sandbox/chat");
    await page.getByLabel("System prompt").fill("Be brief.");
    await say(`Say ${HOSTILE}`);
    for (const model of ["sandbox/reasoning", "sandbox/chat"]) {
      const answer = lastAnswer(model);
      await hasEnded(answer);
      await answer.getByText(HOSTILE).waitFor();
      expect(await measure(answer, "First token")).toMatch(/^[\d.]+\sm?s$/);
      expect(await measure(answer, "Speed")).toMatch(/^[\d,]+ tokens\/s$/);
      const [charge] = await charges(model);
      expect(nanoOf(await measure(answer, "Cost"))).toBe(charge!);
    }
    expect(await measure(lastAnswer("sandbox/reasoning"), "Tokens")).toMatch(
      /^\d+ → \d+ \(\d+ reasoning\)$/,
    );
    const reasoning = lastAnswer("sandbox/reasoning").locator("details");
    expect(await reasoning.getAttribute("open")).toBeNull();
    const total = (await charges()).reduce((sum, charge) => sum + charge, 0n);
    const said = await textOf(page.getByText(/Total cost: /));
    expect(nanoOf(said.split("Total cost: ")[1]!)).toBe(total);
    // The secret key alone opened these calls.
    expect(keyedCalls.length).toBeGreaterThanOrEqual(5);
    for (const call of keyedCalls) {
      expect(await call.headerValue("cookie")).toBeNull();
      expect(await call.headerValue("x-csrf-token")).toBeNull();
      expect(await call.headerValue("authorization")).toStartWith("Bearer gateway_");
    }
  },
);

browserTest("a stopped answer is cut off at its provider, and shows what it cost", async () => {
  await choose("Second model", "sandbox/slow");
  await say(`count to ${COUNTED}`);
  const answer = lastAnswer("sandbox/slow");
  await answer.getByText("1, 2, 3,").waitFor();
  await hasEnded(lastAnswer("sandbox/reasoning"));
  await button("Stop sandbox/slow").click();
  await answer.getByText("Stopped", { exact: true }).waitFor();
  const shown = await until("its cost is shown", async () => {
    const cost = await measure(answer, "Cost");
    return cost.startsWith("$") && cost;
  });
  const [charge] = await charges("sandbox/slow");
  expect(nanoOf(shown)).toBe(charge!);
  // 5e-5 USD are 125 of the 400 numbers at 4e-7 USD.
  expect(charge!).toBeLessThan(50_000n);
});

browserTest(
  "calls of tools are shown raw, errors by their code, broken streams with both",
  async () => {
    await choose("Model", "sandbox/chat");
    await choose("Second model", "sandbox/error-500");
    await page
      .getByLabel("Additional fields")
      .fill('{"tools": [{"type": "function", "function": {"name": "find_weather"}}]');
    await page.getByText("Enter a JSON object.").waitFor();
    await page.getByLabel("Additional fields").press("End");
    await page.getByLabel("Additional fields").pressSequentially("}");
    await say("What is the weather?");
    await lastAnswer("sandbox/chat")
      .getByText(/^find_weather\(\{/)
      .waitFor();
    await lastAnswer("sandbox/error-500").getByText("(502 provider_error)").waitFor();
    await page.getByLabel("Additional fields").fill("");
    await choose("Second model", "sandbox/cut");
    // The side that called the tool takes this as its result.
    await say("It is sunny today, and tomorrow too");
    const cut = lastAnswer("sandbox/cut");
    await cut.getByText("The provider's stream broke.").waitFor();
    await cut.getByText("You said:").waitFor();
    await hasEnded(lastAnswer("sandbox/chat"));
    const sent = keyedCalls.filter((call) => call.method() === "POST");
    const { messages } = sent.at(-2)!.postDataJSON() as { messages: { role: string }[] };
    expect(messages.slice(-3).map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
    expect(await seriousFindings(page)).toEqual([]);
  },
);

browserTest("the code of a request runs as it is copied, and has no key in it", async () => {
  await button("Clear").click();
  await button("Remove sandbox/cut").click();
  await page.getByLabel("System prompt").fill("");
  await page.getByLabel("Message").fill('It\'s "quoted" for $HOME & `more`');
  await button("Code").click();
  const dialog = page.getByRole("dialog");
  const code = () => textOf(dialog.locator("pre"));
  const curl = await code();
  expect(curl).not.toContain(gateway.secretKey);
  const env = { ...process.env, SECRET_KEY: gateway.secretKey };
  const args = Bun.spawnSync(["sh", "-c", `curl() { printf '%s\\0' "$@"; }\n${curl}`], { env });
  const words = args.stdout.toString().split("\0");
  expect(words).toContain(`Authorization: Bearer ${gateway.secretKey}`);
  expect(JSON.parse(words[words.indexOf("-d") + 1]!)).toMatchObject({
    model: "sandbox/chat",
    messages: [{ role: "user", content: 'It\'s "quoted" for $HOME & `more`' }],
  });
  await dialog.getByRole("tab", { name: "OpenAI SDK" }).click();
  const program = Bun.spawn(["bun", "-e", await code()], { env, cwd: repository });
  expect(await new Response(program.stdout).text()).toContain('It\'s "quoted" for $HOME & `more`');
  await dialog.getByRole("button", { name: "Close" }).click();
});

browserTest(
  "the key is nowhere in the page, its address, its storage or the log, and gone after a reload",
  async () => {
    const traces = async () =>
      [
        ...(await page.evaluate(() => [
          ...[localStorage, sessionStorage, history.state].map((one) => JSON.stringify(one)),
          ...[document.cookie, document.documentElement.outerHTML],
          ...[...document.querySelectorAll("input, textarea")].map(
            (field) => (field as HTMLInputElement).value,
          ),
          ...performance.getEntries().map(({ name }) => name),
        ])),
        page.url(),
        ...gateway.logLines,
      ].join("\n");
    expect(await traces()).not.toContain(gateway.secretKey);
    await page.reload();
    await page.getByRole("textbox", { name: "Secret key" }).waitFor();
    expect(await traces()).not.toContain(gateway.secretKey);
    expect(await page.getByRole("textbox", { name: "Secret key" }).inputValue()).toBe("");
    expect(
      await page.getByRole("textbox", { name: "Secret key" }).getAttribute("autocomplete"),
    ).toBe("off");
  },
);

browserTest(
  "a model's page shows how the organization's requests to its provider ended",
  async () => {
    await page.goto(`${gateway.baseUrl}/dashboard/models?id=sandbox/error-500`);
    const provider = page.getByRole("row").filter({ hasText: "sandbox" });
    await provider.getByRole("cell", { name: "100%", exact: true }).waitFor();
    await open("Playground");
  },
);

browserTest("another session finds neither the key nor what was said", async () => {
  await useKey(gateway.secretKey);
  await choose("Model", "sandbox/chat");
  await say("Between us");
  await lastAnswer("sandbox/chat").getByText("Between us").waitFor();
  await button("Sign out").click();
  await signInAs(page, (await gateway.addOrganization()).managementKey);
  await open("Playground");
  await page.getByRole("textbox", { name: "Secret key" }).waitFor();
  expect(await page.getByText("Between us").count()).toBe(0);
});

browserTest(
  "in all of this no policy was violated, and nothing was asked of another address",
  () => {
    expect(faults).toEqual([]);
  },
);
