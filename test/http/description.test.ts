import { describe, expect, test } from "bun:test";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { openApiDocument } from "../../src/http/openapi.ts";
import { descriptionRoutes } from "../../src/http/system/pages.ts";
import { startStopwatch } from "../support/stopwatch.ts";
import { SAMPLE_ROUTES } from "./description-samples.ts";
import { callPublic } from "./public-context.ts";

const routes = descriptionRoutes({
  document: () => openApiDocument(SAMPLE_ROUTES, { version: "1.2.3" }),
});

describe("GET /openapi.json", () => {
  test("is the document, made once", async () => {
    let made = 0;
    const counted = descriptionRoutes({
      document: () => {
        made++;
        return openApiDocument(SAMPLE_ROUTES, { version: "1.2.3" });
      },
    });
    expect(made).toBe(0);
    await callPublic(counted, "/openapi.json");
    const { response } = await callPublic(counted, "/openapi.json");
    expect(made).toBe(1);
    expect(response.headers.get("content-type")).toBe("application/json");
    expect(await response.json()).toMatchObject({ openapi: "3.1.0", info: { version: "1.2.3" } });
  });
});

describe("GET /docs/api-reference", () => {
  test("is a page that names no other host", async () => {
    const { response } = await callPublic(routes, "/docs/api-reference");
    expect(response.headers.get("content-type")).toBe("text/html; charset=utf-8");
    const page = await response.text();
    expect(page.replaceAll("../", "")).not.toContain("//");
    expect([...page.matchAll(/(?:src|data-url)="([^"]*)"/g)].map(([, url]) => url)).toEqual([
      "../openapi.json",
      "scalar.js",
    ]);
  });

  test("forbids the browser every other host, foreign frames and scripts that are not ours", async () => {
    const { response } = await callPublic(routes, "/docs/api-reference");
    const policy = response.headers.get("content-security-policy")!;
    const rules = new Map(policy.split("; ").map((rule) => [rule.split(" ")[0], rule]));
    expect(rules.get("default-src")).toBe("default-src 'none'");
    expect(rules.get("script-src")).toBe("script-src 'self'");
    expect(rules.get("connect-src")).toBe("connect-src 'self'");
    expect(rules.get("frame-ancestors")).toBe("frame-ancestors 'none'");
    expect(policy).not.toContain("http");
    expect(policy).not.toContain("*");
    expect(policy).not.toContain("unsafe-eval");
  });

  test("switches off what the reader would ask of its maker's servers", async () => {
    const { response } = await callPublic(routes, "/docs/api-reference");
    const [, configuration] = /data-configuration='([^']*)'/.exec(await response.text())!;
    expect(JSON.parse(configuration!)).toMatchObject({
      withDefaultFonts: false,
      telemetry: false,
      agent: { disabled: true },
      mcp: { disabled: true },
    });
  });
});

describe("GET /docs/scalar.js", () => {
  test("is the reader's script from the disk, to be kept for a day", async () => {
    const { response } = await callPublic(routes, "/docs/scalar.js");
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
    expect(response.headers.get("cache-control")).toBe("public, max-age=86400");
    const script = await response.text();
    expect(script.length).toBeGreaterThan(1_000_000);
    expect(script).toContain("data-configuration");
  });

  test("is not sent again to a browser that has it", async () => {
    const { response } = await callPublic(routes, "/docs/scalar.js");
    const etag = response.headers.get("etag")!;
    const again = await callPublic(routes, "/docs/scalar.js", { "if-none-match": etag });
    expect(again.response.status).toBe(304);
    expect(await again.response.text()).toBe("");
    const other = await callPublic(routes, "/docs/scalar.js", { "if-none-match": '"other"' });
    expect(other.response.status).toBe(200);
  });

  test.each([
    ["br", "gzip, deflate, br, zstd", (bytes: Uint8Array) => brotliDecompressSync(bytes)],
    ["zstd", "gzip;q=0.5, zstd", (bytes: Uint8Array) => Bun.zstdDecompressSync(bytes)],
    ["gzip", "gzip, br;q=0", (bytes: Uint8Array) => gunzipSync(bytes)],
  ])("is compressed as %s for who asks with %s, once", async (coding, accepted, expand) => {
    const headers = { "accept-encoding": accepted };
    const { response } = await callPublic(routes, "/docs/scalar.js", headers);
    expect(response.headers.get("content-encoding")).toBe(coding);
    expect(response.headers.get("vary")).toBe("accept-encoding");
    const bytes = await response.bytes();
    const { response: plain } = await callPublic(routes, "/docs/scalar.js");
    const script = await plain.bytes();
    expect(Buffer.compare(expand(bytes), script)).toBe(0);
    expect(bytes.length).toBeLessThan(script.length / 3);
    const etag = response.headers.get("etag")!;
    expect(etag).not.toBe(plain.headers.get("etag"));
    const timesMs: number[] = [];
    for (let time = 0; time < 5; time++) {
      const elapsedMs = startStopwatch();
      await callPublic(routes, "/docs/scalar.js", headers);
      timesMs.push(elapsedMs());
    }
    expect(Math.min(...timesMs)).toBeLessThan(20);
    const again = await callPublic(routes, "/docs/scalar.js", headers);
    expect(again.response.headers.get("etag")).toBe(etag);
    const known = { ...headers, "if-none-match": `"other", W/${etag}` };
    expect((await callPublic(routes, "/docs/scalar.js", known)).response.status).toBe(304);
  });

  test("is sent as it is to who takes no compression", async () => {
    for (const accepted of ["identity", "deflate", "gzip;q=0", "*;q=0"]) {
      const { response } = await callPublic(routes, "/docs/scalar.js", {
        "accept-encoding": accepted,
      });
      expect(response.headers.get("content-encoding")).toBeNull();
      await response.body?.cancel();
    }
  });
});
