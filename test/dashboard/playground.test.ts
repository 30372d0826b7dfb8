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

async function choose(
  label: "Model" | `${"Second" | "Third" | "Fourth"} model`,
  model: string,
): Promise<void> {
  await page.getByRole("combobox", { name: label, exact: true }).fill(model);
}

async function say(text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Message" }).fill(text);
  await button("Send").click();
}

/** Puts the settings of another address in place of the current ones. */
async function startOver(models: readonly string[]): Promise<void> {
  const [model, ...others] = models;
  const query = [`model=${model}`, ...others.map((other) => `with=${other}`)].join("&");
  await page.goto(`${gateway.baseUrl}/dashboard/playground?${query}`);
  await page.getByRole("heading", { level: 1, name: "Playground" }).waitFor();
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

browserTest("a message is sent without a key, and its charge is the session's", async () => {
  await open("Playground");
  await choose("Model", "sandbox/chat");
  await say("Without a key");
  await hasEnded(lastAnswer("sandbox/chat"));
  await lastAnswer("sandbox/chat").getByText("Without a key").waitFor();
  const [row] = await gateway.sql<{ name: string; expires_at: Date }[]>`
    SELECT k.name, s.expires_at FROM playground_secrets s JOIN api_keys k ON k.id = s.key_id
    JOIN transactions t ON t.key_id = k.id AND t.type = 'usage'`;
  expect(row!.name).toBe("Playground of Default management key");
  expect(await seriousFindings(page)).toEqual([]);
  await button("New conversation").click();
});

browserTest(
  "the playground refuses a pasted key that cannot call models, and says why",
  async () => {
    await button("Use another key").click();
    await useKey("gateway_sk_wrong");
    await page.getByRole("alert").getByText("is not valid").waitFor();
    await useKey(gateway.managementKey);
    await page.getByRole("alert").getByText("A management key cannot call models.").waitFor();
    await useKey(gateway.secretKey);
    await page.getByRole("textbox", { name: "Secret key" }).waitFor({ state: "detached" });
    await page.getByText("Key: Default secret key").waitFor();
  },
);

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
      const charge = (await charges(model)).at(-1);
      expect(nanoOf(await measure(answer, "Cost"))).toBe(charge!);
    }
    expect(await measure(lastAnswer("sandbox/reasoning"), "Tokens")).toMatch(
      /^\d+ → \d+ \(\d+ reasoning\)$/,
    );
    const reasoning = lastAnswer("sandbox/reasoning").locator("details");
    expect(await reasoning.getAttribute("open")).toBeNull();
    // The message before was another conversation.
    const total = (await charges()).slice(1).reduce((sum, charge) => sum + charge, 0n);
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
  await button("New conversation").click();
  await button("Remove sandbox/cut").click();
  await page.getByLabel("System prompt").fill("");
  await page.getByRole("textbox", { name: "Message" }).fill('It\'s "quoted" for $HOME & `more`');
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
    await button("Use another key").click();
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

browserTest("hostile Markdown runs nothing, loads nothing and is shown as text", async () => {
  await startOver(["sandbox/chat"]);
  await say(
    [
      "<script>globalThis.hacked = 1</script><img src=x onerror='globalThis.hacked = 1'>",
      "<iframe src='https://evil.example'></iframe><style>body{display:none}</style>",
      "",
      "[one](javascript:globalThis.hacked=1) [two](https://example.com/page)",
      "![three](https://evil.example/pixel.png) <svg onload='globalThis.hacked=1'>",
      "[four](data:text/html,<script>globalThis.hacked=1</script>)",
      "",
      "```js",
      "const answer = '</code></pre><script>globalThis.hacked = 1</script>';",
      "```",
      "",
      "**strong** <form action='https://evil.example'><button>Send</button></form>",
    ].join("\n"),
  );
  const answer = lastAnswer("sandbox/chat");
  await hasEnded(answer);
  const shown = answer.locator(".markdown");
  await shown.locator(".code-box .hljs-keyword").first().waitFor();
  await shown.locator("strong").first().waitFor();
  expect(await shown.locator("script, img, iframe, style, svg, form, input").count()).toBe(0);
  const links = await shown
    .locator("a")
    .evaluateAll((all) =>
      all.map((link) => [
        link.getAttribute("href"),
        link.getAttribute("rel"),
        link.getAttribute("target"),
      ]),
    );
  const rel = "noopener noreferrer nofollow";
  for (const [href, ...others] of links) {
    if (href !== null) expect(href).toStartWith("https://");
    expect(others).toEqual([rel, "_blank"]);
  }
  expect(links.map(([href]) => href)).toContain("https://evil.example/pixel.png");
  expect(await page.evaluate(() => "hacked" in globalThis)).toBe(false);
  expect(await shown.getByRole("button", { name: "Copy code" }).count()).toBe(1);
  expect(await seriousFindings(page)).toEqual([]);
});

browserTest("a huge answer is plain text, and the page stays usable", async () => {
  await startOver(["sandbox/chat"]);
  await page.getByLabel("Max output tokens").fill("16000");
  await say(`${"international ".repeat(7_000)}*end*`);
  const answer = lastAnswer("sandbox/chat");
  await hasEnded(answer);
  expect(await answer.locator(".markdown em").count()).toBe(0);
  expect((await textOf(answer.locator(".markdown"))).length).toBeGreaterThan(50_000);
});

browserTest(
  "four models answer one prompt, each is asked again alone, and a message is edited",
  async () => {
    const models = ["sandbox/chat", "sandbox/reasoning", "sandbox/slow", "sandbox/error-500"];
    await startOver(models);
    await page.getByLabel("Max output tokens").fill("30");
    await say("Four of you");
    for (const model of models.slice(0, 3)) await hasEnded(lastAnswer(model));
    await lastAnswer("sandbox/error-500").getByText("(502 provider_error)").waitFor();
    expect(await page.getByRole("button", { name: /^Compare with/ }).count()).toBe(0);
    await button("Retry sandbox/reasoning").click();
    await hasEnded(lastAnswer("sandbox/reasoning"));
    expect(await page.getByRole("article").count()).toBe(4);
    await button("Edit message 1").click();
    expect(await page.getByRole("textbox", { name: "Message" }).inputValue()).toBe("Four of you");
    await say("Edited");
    await lastAnswer("sandbox/chat").getByText("Edited").waitFor();
    for (const model of models.slice(0, 3)) await hasEnded(lastAnswer(model));
    expect(await page.getByText("Four of you").count()).toBe(0);
  },
);

browserTest("a tool's call takes the result that is typed for it", async () => {
  await startOver(["sandbox/chat"]);
  await page.getByLabel("Tools (JSON)").fill('[{"name": "find_weather"}]');
  await say("What is the weather?");
  await lastAnswer("sandbox/chat")
    .getByText(/^find_weather\(\{/)
    .waitFor();
  await page.getByLabel("Result of find_weather").fill("It is sunny.");
  const sent = page.waitForRequest((request) => request.url().endsWith("/v1/chat/completions"));
  await button("Send result").click();
  const { messages, tools } = (await sent).postDataJSON();
  expect(tools).toEqual([{ type: "function", function: { name: "find_weather" } }]);
  expect(messages.at(-1)).toMatchObject({ role: "tool", content: "It is sunny." });
  await hasEnded(lastAnswer("sandbox/chat"));
});

browserTest("a link shares models and settings without messages", async () => {
  const shared = { models: ["sandbox/chat"], system: "Be brief.", unknown: 1, temperature: 7 };
  const fragment = encodeURIComponent(JSON.stringify(shared));
  await page.goto(`${gateway.baseUrl}/dashboard/models`);
  await page.goto(`${gateway.baseUrl}/dashboard/playground#settings=${fragment}`);
  await page.getByRole("heading", { level: 1, name: "Playground" }).waitFor();
  expect(await page.getByLabel("System prompt").inputValue()).toBe("Be brief.");
  expect(await page.getByLabel("Temperature").inputValue()).toBe("");
  expect(await page.getByRole("combobox", { name: "Model", exact: true }).inputValue()).toBe(
    "sandbox/chat",
  );
  expect(page.url()).not.toContain("#");
});

browserTest(
  "the history opens a conversation again, and another session finds nothing of it",
  async () => {
    await startOver(["sandbox/chat"]);
    await say("Between us");
    await hasEnded(lastAnswer("sandbox/chat"));
    await page.getByText("History", { exact: true }).click();
    await page.reload();
    await page.getByText("History", { exact: true }).click();
    await button("Between us").click();
    await lastAnswer("sandbox/chat").getByText("Between us").waitFor();
    // A sign-out that does not reach the gateway says so, and another one ends the session.
    await page.route("**/dashboard/api/session", (route) =>
      route.request().method() === "DELETE" ? route.abort() : route.continue(),
    );
    await button("Sign out").click();
    await page.getByText("The gateway could not end your session").waitFor();
    await page.unroute("**/dashboard/api/session");
    await page.reload();
    await button("Sign out").click();
    const other = await gateway.addOrganization();
    await signInAs(page, other.managementKey);
    await open("Playground");
    await page.getByText("History", { exact: true }).click();
    await page.getByText("No conversations yet").waitFor();
    expect(await page.getByText("Between us").count()).toBe(0);
    const stored = await page.evaluate(
      () =>
        new Promise<number>((resolve, reject) => {
          const opening = indexedDB.open("gateway-playground", 1);
          opening.onerror = () => reject(opening.error);
          opening.onsuccess = () => {
            const counting = opening.result
              .transaction("conversations")
              .objectStore("conversations")
              .count();
            counting.onsuccess = () => resolve(counting.result);
            counting.onerror = () => reject(counting.error);
          };
        }),
    );
    expect(stored).toBe(0);
  },
);

browserTest(
  "in all of this no policy was violated, and nothing was asked of another address",
  () => {
    expect(faults).toEqual([]);
  },
);
