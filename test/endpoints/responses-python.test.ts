import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { type ChatGateway, startChatGateway } from "../support/chat-gateway.ts";
import { expectBooksClosed } from "../support/ledger-checks.ts";
import { assertOpenResponses, responseEvents } from "../support/open-responses.ts";
import { until } from "../support/until.ts";
import { hasSeccomp, sayWhySkipped } from "../tools/code-interpreter/platform.ts";
import type { Behaviour } from "../upstream/behaviours.ts";

// biome-ignore lint/suspicious/noExplicitAny: what is compared with what is expected
type Json = Record<string, any>;

const TOOL = { type: "code_interpreter", container: { type: "auto" } };
const OUTPUTS = "code_interpreter_call.outputs";

let gateway: ChatGateway;
beforeAll(async () => {
  gateway = await startChatGateway({
    environment: {
      GATEWAY_CODE_INTERPRETER: "true",
      GATEWAY_CODE_INTERPRETER_PROCESSES: "2",
      GATEWAY_CODE_INTERPRETER_SECONDS: "3",
    },
  });
});
afterAll(() => gateway.stop());
afterEach(() => expectBooksClosed(gateway));

const respond = (body: Json, init?: RequestInit & { key?: string }) =>
  gateway.request("POST", "/v1/responses", { input: "hello", tools: [TOOL], ...body }, init);

const python = (code: string): Behaviour => ({
  do: "complete",
  toolCalls: [{ name: "code_interpreter", arguments: JSON.stringify({ code }) }],
});
const say = (content: string): Behaviour => ({ do: "complete", content });

async function wholeOf(response: Response): Promise<Json> {
  const body = (await response.json()) as Json;
  expect(response.status, JSON.stringify(body)).toBe(200);
  assertOpenResponses("ResponseResource", body);
  return body;
}

async function fileWith(text: string, key: string): Promise<string> {
  const form = new FormData();
  form.set("purpose", "user_data");
  form.set("file", new File([text], "numbers.csv"));
  const response = await fetch(`${gateway.baseUrl}/v1/files`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}` },
    body: form,
  });
  return ((await response.json()) as Json).id;
}

/** Processes of Python that the gateway has now. */
function interpreters(): string[] {
  return readdirSync("/proc").filter((id) => {
    if (!/^\d+$/.test(id)) return false;
    try {
      const parent = /^PPid:\s*(\d+)$/m.exec(readFileSync(`/proc/${id}/status`, "utf8"))?.[1];
      const command = readFileSync(`/proc/${id}/cmdline`, "utf8");
      return Number(parent) === process.pid && command.includes("python-main.ts");
    } catch {
      return false;
    }
  });
}

/** The one that waits for the next response, at most. */
const onlySpareLeft = () =>
  until("the interpreters of responses to be gone", () => interpreters().length <= 1);

sayWhySkipped();

test("a gateway that is not set to run Python says so, and starts no process", async () => {
  const other = await startChatGateway();
  const response = await other.request("POST", "/v1/responses", {
    model: `test/${other.modelThat(say("never"))}`,
    input: "hello",
    tools: [TOOL],
  });
  expect(response.status).toBe(400);
  const { error } = (await response.json()) as Json;
  expect(error).toMatchObject({ code: "unsupported_parameter", param: "tools.0.type" });
  expect(error.message).toContain("GATEWAY_CODE_INTERPRETER");
  expect(interpreters()).toEqual([]);
  await other.stop();
});

describe.skipIf(!hasSeccomp)("a response with Python", () => {
  test("runs what the model writes, with state from run to run, and shows it on request", async () => {
    const slug = gateway.modelThat(
      python("total = 40\nprint('begun')"),
      python("total + 2"),
      say("It is 42."),
    );
    const body = await wholeOf(await respond({ model: `test/${slug}`, include: [OUTPUTS] }));
    const [first, second, message] = body.output as Json[];
    expect(first).toMatchObject({
      type: "code_interpreter_call",
      status: "completed",
      code: "total = 40\nprint('begun')",
      outputs: [{ type: "logs", logs: "begun\n" }],
    });
    expect(second).toMatchObject({
      code: "total + 2",
      container_id: first!.container_id,
      outputs: [{ type: "logs", logs: "42\n" }],
    });
    expect(message!.content[0].text).toBe("It is 42.");
    const sent = gateway.upstream.served.filter(({ model }) => model === slug);
    const offered = (sent[0]!.requestBody as Json).tools[0].function;
    expect(offered).toMatchObject({ name: "code_interpreter" });
    expect(offered.description).toContain("no numpy, pandas or matplotlib");
    expect((sent[2]!.requestBody as Json).messages.at(-1)).toMatchObject({
      role: "tool",
      content: "42\n",
    });
    await onlySpareLeft();
  }, 60_000);

  test("streams its runs in the published events, and hides outputs that were not asked for", async () => {
    const slug = gateway.modelThat(python("print(1)"), say("One."));
    const events = responseEvents(
      await (await respond({ model: `test/${slug}`, stream: true })).text(),
    );
    const types = events.map(({ type }) => String(type));
    expect(types.filter((type) => type.includes("code_interpreter"))).toEqual([
      "response.code_interpreter_call.in_progress",
      "response.code_interpreter_call_code.delta",
      "response.code_interpreter_call_code.done",
      "response.code_interpreter_call.interpreting",
      "response.code_interpreter_call.completed",
    ]);
    const { response: last } = events.at(-1) as Json;
    assertOpenResponses("ResponseResource", last);
    expect(last.output[0]).toMatchObject({ code: "print(1)", outputs: null });
  }, 60_000);

  test("has the organization's files, and no other's", async () => {
    const own = await fileWith("n\n20\n22\n", gateway.secretKey);
    const slug = gateway.modelThat(
      python('import csv; sum(int(row["n"]) for row in csv.DictReader(open("numbers.csv")))'),
      say("42"),
    );
    const tools = [{ type: "code_interpreter", container: { type: "auto", file_ids: [own] } }];
    const body = await wholeOf(await respond({ model: `test/${slug}`, tools, include: [OUTPUTS] }));
    expect(body.output[0].outputs).toEqual([{ type: "logs", logs: "42\n" }]);

    const stranger = await gateway.addOrganization({ creditUsd: 1 });
    const never = gateway.modelThat(say("never"));
    const key = stranger.secretKey;
    const response = await respond({ model: `test/${never}`, tools }, { key });
    expect(response.status).toBe(404);
    expect(gateway.upstream.served.filter(({ model }) => model === never)).toEqual([]);
  }, 60_000);

  test("goes on after a run that was killed, which its model learns", async () => {
    const slug = gateway.modelThat(python("while True: pass"), say("It takes too long."));
    const body = await wholeOf(await respond({ model: `test/${slug}`, include: [OUTPUTS] }));
    expect(body.status).toBe("completed");
    expect(body.output[0]).toMatchObject({ type: "code_interpreter_call", status: "failed" });
    expect(body.output[0].outputs[0].logs).toContain("Ended after 3 seconds.");
    expect(body.output[1].content[0].text).toBe("It takes too long.");
    await onlySpareLeft();
  }, 60_000);

  test("ends its interpreter when the client goes away", async () => {
    const slug = gateway.modelThat(python("while True: pass"), say("never"));
    const gone = new AbortController();
    const response = await respond(
      { model: `test/${slug}`, stream: true },
      { signal: gone.signal },
    );
    const reader = response.body!.getReader();
    let text = "";
    while (!text.includes("interpreting"))
      text += new TextDecoder().decode((await reader.read()).value);
    // One runs, and one waits for the next response.
    const both = await until("two interpreters", () => {
      const found = interpreters();
      return found.length === 2 && found;
    });
    gone.abort();
    await until("one of the two to be gone", () => {
      const left = interpreters().filter((id) => both.includes(id));
      return left.length === 1;
    });
  }, 60_000);

  test("of which 8 come at once leaves the gateway up: each ends, and no interpreter stays", async () => {
    const slugs = Array.from({ length: 8 }, (_, index) =>
      gateway.modelThat(python(`print(${index})`), say("done")),
    );
    const responses = slugs.map((slug) => respond({ model: `test/${slug}`, include: [OUTPUTS] }));
    const alive = await fetch(`${gateway.baseUrl}/healthz`);
    expect(alive.status).toBe(200);
    for (const [index, response] of (await Promise.all(responses)).entries()) {
      const { output } = await wholeOf(response);
      const [{ logs }] = output[0].outputs;
      expect([`${index}\n`, "All Python interpreters are busy. Try again later."]).toContain(logs);
    }
    await onlySpareLeft();
  }, 90_000);
});
