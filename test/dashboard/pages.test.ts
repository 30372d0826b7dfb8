import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectError } from "../support/error-envelope.ts";
import { startTestGateway, type TestGateway } from "../support/gateway.ts";

const BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const MAX_SCRIPT_BYTES = 160_000;

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startTestGateway();
});
afterAll(() => gateway.stop());

test("a browser that opens the gateway's address is led to the dashboard", async () => {
  for (const accept of [BROWSER, "text/html", "*/*"]) {
    const response = await fetch(gateway.baseUrl, { headers: { accept }, redirect: "manual" });
    expect(response.status).toBe(302);
    // Relative, so that it holds below a proxy's path too.
    expect(response.headers.get("location")).toBe("dashboard");
  }
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

test("each page loads one script and one style from the gateway, by its policy, in few bytes", async () => {
  for (const path of ["/dashboard", "/dashboard/keys"]) {
    const response = await fetch(gateway.baseUrl + path);
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(response.headers.get("content-security-policy")).toBe(
      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    );
    expect(response.headers.get("x-content-type-options")).toBe("nosniff");
    expect(response.headers.get("referrer-policy")).toBe("no-referrer");
    const html = await response.text();
    expect(html).not.toMatch(/<style|\son\w+=|style="|<script(?![^>]*src=)/);
    const files = [...html.matchAll(/(?:href|src)="(?!data:)([^"]*)"/g)].map(([, file]) => file!);
    expect(files).toHaveLength(2);
    for (const file of files) {
      const url = new URL(file, gateway.baseUrl + path);
      expect(url.origin).toBe(gateway.baseUrl);
      const asset = await fetch(url, { headers: { "accept-encoding": "br" }, decompress: false });
      expect(asset.status).toBe(200);
      expect(asset.headers.get("cache-control")).toContain("immutable");
      const bytes = (await asset.arrayBuffer()).byteLength;
      expect(bytes).toBeLessThan(MAX_SCRIPT_BYTES);
      expect(bytes).toBeGreaterThan(0);
    }
  }
});

test("an address with a slash at its end leads to the one without, and what is no file is 404", async () => {
  for (const page of ["dashboard", "dashboard/keys", "dashboard/settings/billing"]) {
    const slash = await fetch(`${gateway.baseUrl}/${page}/?id=1`, { redirect: "manual" });
    expect(slash.status).toBe(308);
    const target = new URL(slash.headers.get("location")!, `http://host/models/${page}/?id=1`);
    expect(target.href).toBe(`http://host/models/${page}?id=1`);
  }
  for (const path of ["assets/other.js", "assets/..%2f..%2fpackage.json", "api/unknown", "a/b/c"]) {
    const response = await fetch(`${gateway.baseUrl}/dashboard/${path}`);
    await expectError(response, 404, "route_not_found");
  }
});

test("the scripts that pages load later have names of their content, and are not in the first load", async () => {
  const html = await (await fetch(`${gateway.baseUrl}/dashboard`)).text();
  const name = /app-\w+\.js/.exec(html)![0];
  const script = await (await fetch(`${gateway.baseUrl}/dashboard/assets/${name}`)).text();
  const later = [...script.matchAll(/import\("\.\/(markdown-\w+\.js)"\)/g)].map(
    ([, file]) => file!,
  );
  expect(later).toHaveLength(1);
  expect(html).not.toContain(later[0]!);
  const file = await fetch(`${gateway.baseUrl}/dashboard/assets/${later[0]}`);
  expect(file.headers.get("cache-control")).toContain("immutable");
  const outdated = await fetch(`${gateway.baseUrl}/dashboard/assets/markdown-0.js`);
  expect(outdated.headers.get("cache-control")).toBe("no-store");
  expect(await outdated.text()).toBe(await file.text());
});

test("a page that another version has served gets its files too, but does not keep them", async () => {
  const response = await fetch(`${gateway.baseUrl}/dashboard/assets/app-0.js`);
  expect(response.status).toBe(200);
  expect(response.headers.get("cache-control")).toBe("no-store");
});
