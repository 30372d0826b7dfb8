import { afterAll, expect, test } from "bun:test";
import { differences, lastJson, matchesText } from "./answers.ts";
import { readPage } from "./page.ts";
import { needsOwnGateway, PageSession, type SharedGateway } from "./page-session.ts";

const FENCE = "```";

const block = (info: string, code: string): string => `${FENCE}${info}\n${code}\n${FENCE}\n\n`;

const server = Bun.serve({
  port: 0,
  hostname: "127.0.0.1",
  fetch: ({ url }) =>
    Response.json(
      { object: "list", data: [{ id: "a", is_active: true }], next: null },
      { status: Number(new URL(url).pathname.slice(1)) },
    ),
});
afterAll(() => server.stop(true));

const gateway: SharedGateway = {
  baseUrl: server.url.href,
  operatorKey: "gateway_op_test",
  newOrganization: async () => ({ secretKey: "sk", managementKey: "mgmt" }),
};

async function faultsOf(markdown: string): Promise<string[]> {
  const session = await PageSession.onSharedGateway("test", gateway, undefined);
  try {
    return await session.faults(readPage(markdown));
  } finally {
    await session.stop();
  }
}

const get = (status: number): string => `curl http://127.0.0.1:3000/${status}`;
const LIST = '{"object": "list", "data": [{"id": "b", "is_active": true}], "next": null}';

test("shell variables, files and answers of a page hold in its later blocks of each language", async () => {
  const page = [
    block("json [saved.json]", '{"address": "http://127.0.0.1:3000"}'),
    block("sh", "export NAME=Ada\nTITLE=Countess"),
    block("sh [curl]", `${get(200)}; echo "$TITLE $SECRET_KEY" > title`),
    block(
      "ts [TypeScript]",
      'const { address } = await Bun.file("saved.json").json();\nconsole.log(process.env.NAME, address);',
    ),
    block("json", LIST),
    block("sh", "cat title"),
    block("text", "Count… sk"),
    block("sh", "echo gateway_sk_Ab3d"),
    block("text", "gateway_sk_…"),
  ];
  expect(await faultsOf(page.join(""))).toEqual([]);
});

test("a fault names the line of the block, its problem and its output", async () => {
  const [fault] = await faultsOf(`# Title\n\n${block("sh", `${get(404)} | cat`)}`);
  expect(fault).toStartWith("line 3: curl exited with 22");
  expect(fault).toContain('"object":"list"');
});

test.each([
  ["a command that fails", block("sh", "false\ntrue"), "the block ended its process"],
  ["a rejected request", block("sh", `ANSWER=$(${get(500)})`), "curl exited with 22"],
  ["a rejected request in a pipe", block("sh", `${get(400)} | cat`), "curl exited with 22"],
  ["a request that the page calls rejected", block("sh fails", get(200)), "nothing of the block"],
  ["a program that throws", block("ts", 'throw new Error("no");'), "the block failed"],
  ["another text", block("sh", "echo one") + block("text", "two"), "the page prints\ntwo"],
  ["another answer", block("sh", get(200)) + block("json", "{}"), "missing on the page"],
])("%s is a fault of the page", async (_name, markdown, problem) => {
  const faults = await faultsOf(markdown);
  expect(faults.join("\n")).toContain(problem);
});

test("a rejected request that the page announces is none", async () => {
  const page = block("sh fails", `${get(402)}; ${get(403)}`) + block("json", LIST);
  expect(await faultsOf(page)).toEqual([]);
});

test("a block with a reason does not run, and the answer after it is not compared", async () => {
  const page = `<!-- not run: needs root -->\n${block("sh", "false")}${block("json", "{}")}`;
  expect(readPage(page).steps).toMatchObject([{ notRun: "needs root" }]);
  expect(await faultsOf(page)).toEqual([]);
});

test("a page that starts a gateway or runs its commands gets one of its own", () => {
  const runs = (markdown: string): boolean => needsOwnGateway(readPage(markdown));
  expect(runs(block("sh", "PORT=1 bun run start"))).toBe(true);
  expect(runs(block("sh", "bun run cli org list"))).toBe(true);
  expect(runs(block("sh", "bun run check"))).toBe(false);
  expect(runs(`<!-- not run: takes minutes -->\n${block("sh", "bun run start")}`)).toBe(false);
});

test("an answer is compared by members and kinds, and exactly if the member names a kind or state", () => {
  const compare = (printed: unknown, answer: unknown, isPartial = false): string[] =>
    differences(printed, answer, isPartial);
  expect(compare({ id: "a", n: 1 }, { id: "b", n: 2.5 })).toEqual([]);
  expect(compare({ status: "active" }, { status: "failed" })).toHaveLength(1);
  expect(compare({ is_valid: true }, { is_valid: false })).toHaveLength(1);
  expect(compare({ id: "a" }, { id: null })).toHaveLength(1);
  expect(compare({ id: "a" }, {})).toHaveLength(1);
  expect(compare({}, { id: "a" })).toHaveLength(1);
  expect(compare({}, { id: "a" }, true)).toEqual([]);
  expect(compare({ data: [{ id: "a" }] }, { data: [{ id: "b" }, { id: 3 }] })).toEqual([]);
  expect(compare({ data: [1, 2] }, { data: [1] })).toHaveLength(1);
});

test("the last JSON value of an output is its answer", () => {
  expect(lastJson('HTTP/1.1 200\n{"a": "}"}{"b": [1]}\ndone {')).toEqual({ b: [1] });
  expect(lastJson("none")).toBeUndefined();
});

test("an ellipsis of a printed text stands for any characters", () => {
  expect(matchesText("cost: …\nend", "cost: 0.1 USD\nmore\nend\n")).toBe(true);
  expect(matchesText("cost: …\nend", "cost: 0.1\nend.")).toBe(false);
});
