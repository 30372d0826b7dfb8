import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";
import { sendRaw } from "../support/raw-http.ts";

const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test("a browser finds a page with the base URL that it used, and nothing from elsewhere", async () => {
  for (const accept of [BROWSER, "text/html", "*/*"]) {
    const response = await fetch(gateway.baseUrl, { headers: { accept } });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    const policy = response.headers.get("content-security-policy")!;
    expect(policy).toStartWith("default-src 'none'; style-src 'sha256-");
    expect(policy).not.toContain("unsafe");
    expect(policy).not.toContain("script-src");
    const page = await response.text();
    expect(page).toContain(`${gateway.baseUrl}/v1/chat/completions`);
    expect(page).not.toContain("{{");
    expect(page).not.toMatch(/<script|\son\w+=|style="/);
    const links = [...page.matchAll(/(?:href|src)="([^"]*)"/g)].map(([, url]) => url);
    expect(links.toSorted()).toEqual(["data:,", "docs", "openapi.json", "readyz"]);
  }
});

test("the style is the one that the policy allows", async () => {
  const response = await fetch(gateway.baseUrl, { headers: { accept: "text/html" } });
  const [, style] = /<style>([\s\S]*)<\/style>/.exec(await response.text())!;
  const hash = new Bun.CryptoHasher("sha256").update(style!).digest("base64");
  expect(response.headers.get("content-security-policy")).toContain(`'sha256-${hash}'`);
});

test("a program that takes no page gets the usual 404, and HEAD tells everybody that it is there", async () => {
  for (const accept of ["application/json", "text/html;q=0, */*", "text/plain"]) {
    const response = await fetch(gateway.baseUrl, { headers: { accept } });
    await expectError(response, 404, "route_not_found");
    const head = await fetch(gateway.baseUrl, { method: "HEAD", headers: { accept } });
    expect(head.status).toBe(200);
    expect(await head.text()).toBe("");
  }
});

test("a host that is none reaches no page", async () => {
  const response = await sendRaw(gateway, { method: "GET", path: "/", host: 'a"><b>' });
  expect(response.status).toBe(400);
});
