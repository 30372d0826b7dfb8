import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { createEgressDownload } from "../../src/platform/egress/download.ts";
import { EgressGuard } from "../../src/platform/egress/guard.ts";

let server: Bun.Server<undefined>;
let answer: (path: string) => Response;
const asked: string[] = [];
const guard = new EgressGuard({
  // Only the first name may be reached.
  resolve: async (name) => [name === "kept.test" ? "127.0.0.1" : "127.0.0.9"],
  allowedCidrs: ["127.0.0.1/32"],
  allowsHttp: true,
});
const download = createEgressDownload({ guard });
const options = { maxBytes: 1_000, timeoutMs: 5_000, signal: new AbortController().signal };
const get = (path: string, more: Partial<typeof options> = {}) =>
  download(`http://kept.test:${server.port}${path}`, { ...options, ...more });

beforeAll(() => {
  server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch(request) {
      const { pathname } = new URL(request.url);
      asked.push(`${request.method} ${pathname} ${request.headers.get("host")}`);
      return answer(pathname);
    },
  });
});
afterAll(() => server.stop(true));
beforeEach(() => {
  asked.length = 0;
  answer = () => new Response("bytes");
});

const leadingTo = (location: string) => new Response(null, { status: 302, headers: { location } });

test("brings the bytes, asked for under the name of the URL", async () => {
  expect((await get("/one?x=1")).toString()).toBe("bytes");
  expect(asked).toEqual([`GET /one kept.test:${server.port}`]);
});

test("follows a redirect, and refuses one that leads to what may not be reached", async () => {
  answer = (path) => (path === "/one" ? leadingTo("/two") : new Response("two"));
  expect((await get("/one")).toString()).toBe("two");
  for (const location of [
    `http://other.test:${server.port}/secret`,
    `http://127.0.0.9:${server.port}/secret`,
    "http://169.254.169.254/latest/meta-data",
    "file:///etc/passwd",
    "http://user:password@kept.test/",
  ]) {
    answer = () => leadingTo(location);
    await expect(get("/one")).rejects.toMatchObject({ name: "EgressRefused" });
  }
  expect(asked.filter((line) => line.includes("secret"))).toEqual([]);
});

test("gives up after three redirects", async () => {
  answer = (path) => leadingTo(`${path}x`);
  await expect(get("/one")).rejects.toMatchObject({ name: "DownloadFailed" });
  expect(asked).toHaveLength(4);
});

test("takes no more bytes than wanted, whatever the length says", async () => {
  expect(await get("/all", { maxBytes: 5 })).toHaveLength(5);
  await expect(get("/more", { maxBytes: 4 })).rejects.toThrow("too long");
  let sent = 0;
  answer = () =>
    new Response(
      new ReadableStream({
        pull(controller) {
          sent += 100_000;
          controller.enqueue(new Uint8Array(100_000));
        },
      }),
    );
  await expect(get("/endless")).rejects.toThrow("too long");
  expect(sent).toBeLessThan(50_000_000);
});

test("expands nothing, and takes no other status for the bytes", async () => {
  answer = () =>
    new Response(Bun.gzipSync("x".repeat(100_000)), { headers: { "content-encoding": "gzip" } });
  await expect(get("/bomb")).rejects.toMatchObject({ name: "DownloadFailed" });
  for (const status of [201, 206, 404, 500]) {
    answer = () => new Response("bytes", { status });
    await expect(get("/status")).rejects.toThrow(String(status));
  }
});

test("ends with its time, and with its signal", async () => {
  answer = () => new Response(new ReadableStream({ pull: () => new Promise(() => {}) }));
  await expect(get("/silent", { timeoutMs: 50 })).rejects.toMatchObject({ name: "TimeoutError" });
  const controller = new AbortController();
  const waiting = get("/silent", { signal: controller.signal });
  controller.abort(new Error("the client left"));
  await expect(waiting).rejects.toThrow("the client left");
});
