import { expect, test } from "bun:test";
import { join } from "node:path";

test("the stand-alone upstream prints its address, is told what to do over HTTP, and ends at SIGTERM", async () => {
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "main.ts"), "--port", "0"], {
    stdout: "pipe",
  });
  try {
    const first = await child.stdout.getReader().read();
    const { base_url: baseUrl } = JSON.parse(new TextDecoder().decode(first.value));
    const { origin } = new URL(baseUrl);
    const post = (path: string, body: object) =>
      fetch(origin + path, { method: "POST", body: JSON.stringify(body) });
    const chat = async () =>
      (await post("/v1/chat/completions", { model: "m", messages: [] })).status;

    expect(await chat()).toBe(200);
    expect(
      (await post("/__behave", { model: "m", behaviour: { do: "error", status: 503 } })).status,
    ).toBe(200);
    expect(
      (await post("/__behave", { model: "m", queue: [{ do: "error", status: 500 }] })).status,
    ).toBe(200);
    expect([await chat(), await chat()]).toEqual([500, 503]);
    expect((await post("/__behave", { model: "m", behaviour: null })).status).toBe(200);
    expect(await chat()).toBe(200);
    expect((await post("/__behave", { model: "m", behaviour: { do: "nothing" } })).status).toBe(
      400,
    );

    const { totals, served } = await (await fetch(`${origin}/__served`)).json();
    expect(totals.m).toMatchObject({ requests: 4, statuses: { 200: 2, 500: 1, 503: 1 } });
    expect(served).toHaveLength(4);
    expect((await post("/__reset", {})).status).toBe(200);
    expect(await (await fetch(`${origin}/__served`)).json()).toEqual({
      now_ms: expect.any(Number),
      totals: {},
      served: [],
    });
  } finally {
    child.kill("SIGTERM");
  }
  expect(await child.exited).toBe(0);
});
