import { afterAll, beforeAll, expect, test } from "bun:test";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { readText } from "./pages.ts";

const PAGE = "docs/reference/api/index.md";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test("the page of endpoints lists each path below /v1 with the scopes it needs", async () => {
  const { paths } = (await (await gateway.request("GET", "/openapi.json")).json()) as {
    paths: Record<string, Record<string, { description?: string }>>;
  };
  const text = await readText(PAGE);
  const rows = [...text.matchAll(/^\| (.*?) \|.*$/gm)].map(([row, endpoints]) => ({
    row,
    listed: [...endpoints!.matchAll(/(\/[\w/.]+)/g)].map(([, path]) => path!.replace(/\/$/, "")),
  }));
  const faults: string[] = [];
  for (const [path, operations] of Object.entries(paths)) {
    if (!path.startsWith("/v1/")) continue;
    const fitting = rows.filter(({ listed }) =>
      listed.some((prefix) => path === prefix || path.startsWith(`${prefix}/`)),
    );
    if (fitting.length === 0) faults.push(path);
    for (const [method, { description = "" }] of Object.entries(operations)) {
      const scope = /\bscope `([\w:]+)`/.exec(description)?.[1];
      if (scope === undefined || fitting.some(({ row }) => row.includes(`\`${scope}\``))) continue;
      faults.push(`${method} ${path}: ${scope}`);
    }
  }
  expect(faults).toEqual([]);
});
